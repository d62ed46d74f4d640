# SPDX-License-Identifier: Apache-2.0
"""What a recipe has written: the files, configs and filters of a job."""

import json
from pathlib import Path
from typing import Any

from fdg_plugins.recipes import FDGRecipe

SITE_FILE = "app_site/config/config_fed_client.json"
SERVER_FILE = "app_server/config/config_fed_server.json"


def files(folder: Path) -> dict[str, bytes]:
    """Return the files below ``folder`` by their path in it."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def config(job: Path, file: str = SERVER_FILE) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((job / file).read_text(encoding="utf-8"))
    return content


def workflow(job: Path) -> dict[str, Any]:
    found: dict[str, Any] = config(job)["workflows"][0]["args"]
    return found


def arguments(recipe: FDGRecipe, folder: Path) -> dict[str, Any]:
    """Return the arguments of the workflow in the job that ``recipe`` writes to ``folder``."""
    recipe.export(str(folder))
    return workflow(folder / recipe.name)


def filters(job: Path, file: str) -> dict[tuple[str, str], list[tuple[str, dict[str, Any]]]]:
    """Return class names and arguments of the filters in a config file, by kind and task, in order."""
    found = config(job, file)
    return {
        (kind, task): [(made["path"].rpartition(".")[2], made["args"]) for made in chain["filters"]]
        for kind in ("task_data_filters", "task_result_filters")
        for chain in found[kind]
        for task in chain["tasks"]
    }
