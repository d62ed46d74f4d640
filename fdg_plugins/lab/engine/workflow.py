# SPDX-License-Identifier: Apache-2.0
"""The workflow of this package in the config of an existing job folder."""

from pathlib import Path
from typing import Any

from fdg_plugins.errors import SettingsError
from fdg_plugins.flare.deploy_map import sites_in
from fdg_plugins.lab.engine.local_apps import META, apps_of, check_is_job
from fdg_plugins.storage import read_json

SERVER_CONFIG, CLIENT_CONFIG = "config/config_fed_server.json", "config/config_fed_client.json"
CONTROLLERS = (
    "fdg_plugins.controllers.FederationController",
    "fdg_plugins.controllers.federation.FederationController",
)


def find_workflow(job: Path) -> tuple[Path, Any, dict[str, Any]]:
    """Return the config file that contains our workflow, its content, and the workflow in it.

    Raises ``SettingsError`` if no config of the job has it, ``DataError`` for one that cannot be read.
    """
    for path in sorted(job.glob(f"*/{SERVER_CONFIG}")):
        config = read_json(path)
        for entry in _workflows(config):
            if entry.get("path") in CONTROLLERS:
                return path, config, entry
    raise SettingsError(f"job {job.name}: no workflow is a FederationController, expected one.")


def arguments_of(workflow: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a workflow; none if they have not the form of arguments."""
    arguments = workflow.get("args")
    return arguments if isinstance(arguments, dict) else {}


def sites_of(job: Path) -> list[str]:
    """Return the sites that the job in folder ``job`` names; FLARE's name for all of them does not count.

    Raises ``DataError`` if the folder is not a job.
    """
    check_is_job(job)
    return sorted(sites_in(apps_of(job, read_json(job / META))))


def _workflows(config: Any) -> list[dict[str, Any]]:
    """Return the workflows in a server's config; none if it has not the form of one."""
    workflows = config.get("workflows") if isinstance(config, dict) else None
    entries = workflows if isinstance(workflows, list) else []
    return [entry for entry in entries if isinstance(entry, dict)]
