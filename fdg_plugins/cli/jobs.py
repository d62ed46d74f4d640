# SPDX-License-Identifier: Apache-2.0
"""Job folders: reject what FLARE's own tools would reject or distort, and write config-only copies.

Jobs can also be made from recipes: the commands that do so use :func:`own_arguments`.
"""

import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.plugins.own_dataset import DatasetRef
from fdg_plugins.storage import check_outside, read_json, write_json

META = "meta.json"
CUSTOM = "custom"
CONFIG_FILES = ("config_fed_server.json", "config_fed_client.json")
SAFE_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
SAFE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


@contextmanager
def own_arguments() -> Iterator[None]:
    """Hide the command line from FLARE while ``fdg_plugins.recipes`` is imported.

    FLARE's recipe module removes ``--export`` and ``--export-dir`` from ``sys.argv`` when it is imported, which suits a
    script that executes a recipe; from then on, every recipe would be exported instead of run.
    """
    arguments = sys.argv
    sys.argv = arguments[:1]
    try:
        yield
    finally:
        sys.argv = arguments


def export(job: Path, to: Path, name: str | None = None) -> Path:
    """Write ``job`` without its ``custom/`` folders to ``to/name``, atomically, and return that path."""
    meta = check_job(job)
    name = job.resolve().name if name is None else name
    if not SAFE_NAME.fullmatch(name):
        raise SettingsError(field="name", value=name, expected="letters, digits, '_', '-' and '.' only")
    target = _free_target(to, name)
    check_outside(job, target, "target")
    try:
        to.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=to, prefix=f".{name}.") as folder:
            copy = Path(folder) / name
            shutil.copytree(job, copy, ignore=shutil.ignore_patterns(CUSTOM, "__pycache__"))
            write_json(copy / META, {**meta, "name": name})
            copy.rename(target)
    except OSError as error:
        raise DataError(f"target {target} cannot be written: {error.strerror}.") from error
    return target


def export_method(
    method: str,
    dataset: DatasetRef,
    to: Path,
    name: str | None = None,
    plugins: Sequence[Path] = (),
    settings: Mapping[str, Any] = MappingProxyType({}),
) -> tuple[Path, list[str]]:
    """Write the job of a method to ``to``; return its folder, and the names of the code files that it brings.

    ``settings`` are those of the recipe. Raises ``SettingsError`` for settings that the recipe rejects, ``DataError``
    for an existing target or one that cannot be written.
    """
    with own_arguments():
        from fdg_plugins.recipes import make_recipe
    recipe = make_recipe(method, dataset, plugins=plugins, name=name, **settings)
    target = _free_target(to, recipe.name)
    try:
        return target, recipe.export_for_submission(to)
    except OSError as error:
        raise DataError(f"target {target} cannot be written: {error.strerror}.") from error


def _free_target(to: Path, name: str) -> Path:
    """Return the folder of a new job in ``to``; raise ``DataError`` if it exists already."""
    target = to / name
    if target.exists():
        raise DataError(f"target {target} exists already, expected a name that is free.")
    return target


def check_job(job: Path) -> dict[str, Any]:
    """Return the meta of the job in ``job``; raise an error if it is not a job, brings code or has unsafe keys."""
    from fdg_plugins.lab.engine.workflow import apps_of, check_is_job

    check_is_job(job)
    meta = read_json(job / META)
    for app in apps_of(job, meta):
        if not any((job / app / "config" / file).is_file() for file in CONFIG_FILES):
            raise DataError(f"job {job}: app {app} has no config/{' or config/'.join(CONFIG_FILES)}.")
    for path in sorted(job.rglob("*")):
        inside = path.relative_to(job)
        if path.is_symlink():
            raise DataError(f"job {job}: {inside} is a link, expected files and folders only.")
        if CUSTOM in inside.parts[:-1] and path.is_file() and path.name != "README.md":
            raise DataError(f"job {job}: {inside} is code that the job brings, expected only README.md in {CUSTOM}/.")
        if CUSTOM not in inside.parts and path.suffix == ".json":
            _check_keys(job, inside)
    return dict(meta)


def _check_keys(job: Path, inside: Path) -> None:
    if distorted := [key for key in _keys(read_json(job / inside)) if not SAFE_KEY.fullmatch(key)]:
        raise SettingsError(
            f"job {job}: key {distorted[0]!r} in {inside} would be distorted by nvflare job submit, expected letters, "
            "digits, '_' and '-' only."
        )


def _keys(value: Any) -> Iterator[str]:
    """Yield every key in a JSON value."""
    if isinstance(value, dict):
        yield from value
        value = list(value.values())
    for item in value if isinstance(value, list) else ():
        yield from _keys(item)
