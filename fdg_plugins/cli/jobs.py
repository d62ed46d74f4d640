# SPDX-License-Identifier: Apache-2.0
"""Job folders: reject what FLARE's own tools would reject or distort, and write config-only and resuming copies."""

import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fdg_plugins.errors import DataError, SettingsError, shorten
from fdg_plugins.flare.components import SERVER, class_paths
from fdg_plugins.lab.engine.workflow import (
    CUSTOM,
    META,
    apps_of,
    arguments_of,
    check_is_job,
    find_workflow,
)
from fdg_plugins.storage import check_outside, read_json, write_json, writing

SIGNATURE = ".__nvfl_sig.json"  # FLARE signs the folders of a submitted job in place
LEFT_OUT = (CUSTOM, "__pycache__", SIGNATURE)
SAFE_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
SAFE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


@contextmanager
def own_arguments() -> Iterator[None]:
    """Hide the command line from FLARE while ``fdg_plugins.recipes`` is imported.

    FLARE's recipe module removes ``--export`` and ``--export-dir`` from ``sys.argv`` when it is imported, which suits a
    script that executes a recipe; from then on, every recipe would be exported instead of run.
    """
    arguments, sys.argv = sys.argv, sys.argv[:1]
    try:
        yield
    finally:
        sys.argv = arguments


def export(job: Path, to: Path, name: str | None = None) -> Path:
    """Write ``job`` without its ``custom/`` folders and signatures to ``to/name``, atomically, and return that path."""
    meta, name = check_job(job), job.resolve().name if name is None else name
    if not SAFE_NAME.fullmatch(name):
        raise SettingsError(field="name", value=name, expected="letters, digits, '_', '-' and '.' only")
    target = free_target(to, name)
    check_outside(job, target, "target")
    with writing(target):
        to.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=to, prefix=f".{name}.") as folder:
            copy = Path(folder) / name
            shutil.copytree(job, copy, ignore=shutil.ignore_patterns(*LEFT_OUT))
            write_json(copy / META, {**meta, "name": name})
            copy.rename(target)
    return target


def free_target(to: Path, name: str) -> Path:
    """Return the folder of a new job in ``to``; raise ``DataError`` if it exists already."""
    if (to / name).exists():
        raise DataError(f"target {to / name} exists already, expected a name that is free.")
    return to / name


def check_job(job: Path) -> dict[str, Any]:
    """Return the meta of the job in ``job``; raise an error if it is not a job, brings code or has unsafe keys."""
    check_is_job(job)
    meta = read_json(job / META)
    apps_of(job, meta)
    for problem in _unfit(job):
        raise DataError(f"job {job}: {problem}.")
    return dict(meta)


def _unfit(job: Path) -> Iterator[str]:
    for path in sorted(job.rglob("*")):
        inside = path.relative_to(job)
        if path.is_symlink():
            yield f"{inside} is a link, expected files and folders only"
        if CUSTOM in inside.parts[:-1] and path.is_file() and path.name != "README.md":
            yield f"{inside} is code that the job brings, expected only README.md in {CUSTOM}/"
        is_config = path.suffix == ".json" and path.name != SIGNATURE and CUSTOM not in inside.parts
        for key, _ in _pairs_in(read_json(path)) if is_config else ():
            if not SAFE_KEY.fullmatch(key):  # nvflare job submit would distort it
                yield f"{inside} has the key {shorten(key)}, expected letters, digits, '_' and '-' only"


def foreign_components(job: Path) -> list[str]:
    """Return the class paths in a job's configs that no job of this package names."""
    pairs = (pair for config in sorted(job.glob("*/config/*.json")) for pair in _pairs_in(read_json(config)))
    paths = [str(value) for key, value in pairs if key == "path"]
    return [path for path in paths if not path.startswith("fdg_plugins.") and path not in class_paths(SERVER)]


def _pairs_in(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        yield from value.items()
        value = list(value.values())
    for one in value if isinstance(value, list) else ():
        yield from _pairs_in(one)


def write_resuming_job(job: Path, to: Path, run: str | None) -> Path:
    """Write a copy of ``job`` that resumes ``run`` (None: unchanged) below ``to``; return its folder."""
    own_name = check_job(job).get("name")
    twin = export(job, to, own_name if isinstance(own_name, str) else None)
    if run is not None:
        change_workflow(twin, resume=run)
    return twin


def change_workflow(job: Path, **arguments: Any) -> None:
    """Give the workflow of a job further arguments."""
    path, config, workflow = find_workflow(job)
    workflow["args"] = {**arguments_of(workflow), **arguments}
    write_json(path, config)
