# SPDX-License-Identifier: Apache-2.0
"""An existing job folder: its apps and sites, and the workflow of this package in its config."""

from pathlib import Path
from typing import Any

from fdg_plugins.errors import DataError, SettingsError, nearest, shorten
from fdg_plugins.flare.context import sites_in
from fdg_plugins.storage import read_json

META, CUSTOM = "meta.json", "custom"
SERVER_CONFIG = "config/config_fed_server.json"
CONTROLLERS = (
    "fdg_plugins.controllers.FederationController",
    "fdg_plugins.controllers.federation.FederationController",
)


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


def find_workflow(job: Path) -> tuple[Path, Any, dict[str, Any]]:
    """Return the config file that contains our workflow, its content, and the workflow in it."""
    for path in sorted(job.glob(f"*/{SERVER_CONFIG}")):
        config = read_json(path)
        workflows = config.get("workflows") if isinstance(config, dict) else None
        for entry in workflows if isinstance(workflows, list) else ():
            if isinstance(entry, dict) and entry.get("path") in CONTROLLERS:
                return path, config, entry
    raise SettingsError(f"job {job.name}: no workflow is a FederationController, expected one.")


def arguments_of(workflow: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a workflow; none if they have not the form of arguments."""
    arguments = workflow.get("args")
    return arguments if isinstance(arguments, dict) else {}


def sites_of(job: Path) -> list[str]:
    """Return the sites that the job in folder ``job`` names; FLARE's name for all of them does not count."""
    check_is_job(job)
    return sorted(sites_in(apps_of(job, read_json(job / META))))
