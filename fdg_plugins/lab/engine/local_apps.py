# SPDX-License-Identifier: Apache-2.0
"""The workspaces of a job's participants on one machine, laid out as FLARE's simulator does.

Below the job's workspace, every participant has a folder with ``startup``, ``local`` and ``<job id>``, and in the last
the job's meta and the participant's app. What is in the workspace's own ``local`` goes to all of them.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from nvflare.apis.app_validation import AppValidationKey
from nvflare.apis.job_def import JobMetaKey

from fdg_plugins.errors import DataError, SettingsError, nearest, shorten
from fdg_plugins.storage import read_json

META = "meta.json"
SERVER = "server"
ALL = "@ALL"
LOCAL, STARTUP, CUSTOM = "local", "startup", "custom"


class Deployed(NamedTuple):
    """The sites of a job in the order of its meta, the meta, and the folders with code that its apps bring."""

    sites: tuple[str, ...]
    meta: dict[str, Any]
    custom: tuple[Path, ...]


def deploy(job: Path, workspace: Path, job_id: str) -> Deployed:
    """Make the workspaces of server and sites below ``workspace``, each with its app of the job in folder ``job``.

    Raises ``SettingsError`` or ``DataError`` for a folder that is not a job, and for names that are not folder names.
    """
    meta = read_json(job / META)
    apps = dict(_apps(job, meta))
    if SERVER not in apps:
        raise SettingsError(f"job {job.name}: deploy_map in {META} names no server.")
    sites = tuple(name for name in apps if name != SERVER)
    meta[JobMetaKey.JOB_CLIENTS.value] = [{"name": site} for site in sites]
    meta.pop(AppValidationKey.BYOC, None)
    if any((app / CUSTOM).is_dir() for app in apps.values()):
        # What FLARE notes of a job with code of its own; it then allows any component.
        meta[AppValidationKey.BYOC] = True
    for name, app in apps.items():
        _make_workspace(workspace, name, job_id, app, meta)
    # The same app is at many sites: its code is needed once.
    first = {app: workspace / name / job_id / f"app_{name}" / CUSTOM for name, app in reversed(apps.items())}
    return Deployed(sites, meta, tuple(folder for folder in first.values() if folder.is_dir()))


def check_is_job(job: Path) -> None:
    """Raise ``DataError`` for a folder that is not a job; it names the job beside it with the nearest name."""
    if (job / META).is_file():
        return
    near = nearest(str(job), [str(meta.parent) for meta in sorted(job.parent.glob(f"*/{META}"))])
    raise DataError(f"folder {job} is not a job: it has no {META}{f'; did you mean {near!r}?' if near else '.'}")


def apps_of(job: Path, meta: Any) -> dict[str, Any]:
    """Return the apps in a job's meta, each with its sites; raise ``DataError`` for a meta without them."""
    apps = meta.get("deploy_map") if isinstance(meta, dict) else None
    if not isinstance(apps, dict) or not apps:
        raise DataError(f"job {job.name}: deploy_map in {META} is {shorten(apps)}, expected apps with their sites.")
    return apps


def _apps(job: Path, meta: Any) -> Iterator[tuple[str, Path]]:
    """Yield each participant of a job with the folder of its app."""
    for app, names in apps_of(job, meta).items():
        for name in names if isinstance(names, list) else ():
            if name == ALL:
                raise SettingsError(
                    f"job {job.name}: deploy_map in {META} has {ALL}, expected the name of each participant."
                )
            yield _name(name, job), job / _name(app, job)


def _name(text: Any, job: Path) -> str:
    """Return the name of a participant or of an app, which is that of a folder; raise ``SettingsError`` otherwise."""
    if isinstance(text, str) and text not in ("", ".", "..", LOCAL, STARTUP) and not set(text) & set("/\\\0"):
        return text
    raise SettingsError(f"job {job.name}: deploy_map in {META} names {shorten(text)}, expected the name of a folder.")


def _make_workspace(workspace: Path, name: str, job_id: str, app: Path, meta: dict[str, Any]) -> None:
    own = workspace / name
    if (own / job_id).exists():
        raise DataError(f"workspace {workspace} holds the files of another run, expected a new folder.")
    try:
        for folder in (LOCAL, STARTUP):
            (own / folder).mkdir(parents=True)
        if (workspace / LOCAL).is_dir():
            shutil.copytree(workspace / LOCAL, own / LOCAL, dirs_exist_ok=True)
        shutil.copytree(app, own / job_id / f"app_{name}")
        (own / job_id / META).write_text(json.dumps(meta, indent=1), encoding="utf-8")
    except (OSError, shutil.Error) as error:
        raise DataError(f"app {app.name} cannot be copied to {own}: {error}.") from error
