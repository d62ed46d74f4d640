# SPDX-License-Identifier: Apache-2.0
"""What a participant permits: its ``class_allow_list``, with what this package's jobs need, and its rights for roles.

FLARE reads the list from ``local/resources.json``, or from ``local/resources.json.default`` if the former does not
exist. The former hides the latter completely. A list in the file replaces FLARE's built-in list, which applies if the
file does not contain one.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from nvflare.app_common.default_component_policy import DEFAULT_CLASS_ALLOW_LIST

from fdg_plugins.errors import FDGError, SettingsError, shorten
from fdg_plugins.flare.components import SITE, class_paths, components
from fdg_plugins.flare.internals import fetch
from fdg_plugins.storage import read_json

CLASS_ALLOW_LIST = "class_allow_list"
ALLOW_ALL = "*"
RESOURCES = "resources.json"
SIDE_DOORS = "nvflare.app_common.ccwf."
STREAMING = "allow_log_streaming"
LOG_STREAMER = "nvflare.app_common.logging.job_log_streamer.JobLogStreamer"
_ADDS_STREAMER = "nvflare.app_common.logging.site_log_streamer.SiteLogStreamer"
SHELL = "shell_commands"
OPERATE = "operate"  # shut down, restart, remove and disable sites, configure logs, report the environment
EVERY = "*"  # takes precedence over all rights that are named
_NEVER = {"none", "no"}
_ALWAYS = {"any", "all"}


def declared_components(resources: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the components that resources declare, without entries that are not objects, which FLARE refuses."""
    declared = resources.get("components")
    return [one for one in declared if isinstance(one, dict)] if isinstance(declared, list) else []


def declared_component(resources: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """Return the first component with the id ``name``; None if resources declare none."""
    return next((one for one in declared_components(resources) if one.get("id") == name), None)


def entries_in_force(resources: Mapping[str, Any], owner: object) -> list[str]:
    """Return the list in a participant's resources, or FLARE's defaults if there is none.

    Raises ``SettingsError``, naming ``owner``, if the value is not a list of class paths.
    """
    entries = resources.get(CLASS_ALLOW_LIST, list(DEFAULT_CLASS_ALLOW_LIST))
    if not isinstance(entries, list) or not all(isinstance(entry, str) for entry in entries):
        raise SettingsError(field=CLASS_ALLOW_LIST, value=entries, expected="a list of class paths", site=str(owner))
    return entries


def streams_logs(resources: Mapping[str, Any], end: str) -> bool:
    """Return whether FLARE sends the logs of the site with these resources to the server, as it does by default.

    It then adds its :data:`LOG_STREAMER` to the config of every job, which fails where the list lacks that class.
    """
    paths = [one.get("path") for one in declared_components(resources)]
    return end == SITE and resources.get(STREAMING) is not False and _ADDS_STREAMER in paths


def needed_entries(end: str, resources: Mapping[str, Any], methods: Iterable[str] = ()) -> list[str]:
    """Return the entries that jobs of ``methods`` (empty: all) need at ``end``, where these are its resources."""
    return [*class_paths(end, methods), *([LOG_STREAMER] if streams_logs(resources, end) else [])]


def other_entries(entries: Sequence[str], end: str, resources: Mapping[str, Any]) -> list[str]:
    """Return the entries that no job of this package needs at ``end``, where the participant has these resources."""
    needed = set(needed_entries(end, resources))
    return [entry for entry in entries if entry not in needed]


def is_too_wide(entry: str) -> bool:
    """Return whether ``entry`` allows more than one class: everything, or all classes in a package or module.

    FLARE reads an entry without a trailing dot as if it also had one. What begins with a small letter counts as module.
    """
    known = {*(component.path for component in components()), *DEFAULT_CLASS_ALLOW_LIST}
    is_module = entry not in known and entry.rpartition(".")[2][:1].islower()
    return entry == ALLOW_ALL or entry.endswith(".") or is_module


def opens_side_door(entry: str) -> bool:
    """Return whether ``entry`` allows a FLARE class that itself forwards the result of a site's executor."""
    below = entry if entry.endswith(".") else f"{entry}."
    return entry == ALLOW_ALL or entry.startswith(SIDE_DOORS) or SIDE_DOORS.startswith(below)


def resources_file(local: Path) -> Path:
    """Return the file in ``local`` from which FLARE reads a participant's resources."""
    target = local / RESOURCES
    return target if target.exists() else local / f"{RESOURCES}.default"


def count_other_components(workspace: Path, end: str) -> int | None:
    """Return how many entries no job of this package needs at ``end``; None if the resources cannot be read.

    ``workspace`` is the participant's kit, which holds ``local/``.
    """
    local = workspace / "local"
    try:
        resources = read_json(resources_file(local))
        return len(other_entries(entries_in_force(resources, local), end, resources))
    except (FDGError, AttributeError):
        return None


def roles_with(policy: Mapping[str, Any], right: str) -> list[str]:
    """Return the roles to whom ``policy`` may give ``right``, or any command of the category of that name.

    A right that holds under a condition counts. Raises ``SettingsError`` if FLARE cannot read the policy.
    """
    categories = fetch("COMMAND_CATEGORIES")
    try:
        read, problem = fetch("parse_policy_config")(policy, categories)
    except (TypeError, AttributeError) as error:
        read, problem = None, str(error)
    if read is None:
        raise SettingsError(f"FLARE cannot read the policy: {shorten(problem)}.")
    commands = [command for command, category in categories.items() if category == right] or [right]
    return sorted(
        role
        for role, given in read.role_rights.items()
        if any(_can_hold(given[one]) for one in ([EVERY] if EVERY in given else commands) if one in given)
    )


def _can_hold(expression: str | list[str]) -> bool:
    """Return whether a condition, or one of several, is ever met; those with "not" block whatever the others allow."""
    conditions = [expression] if isinstance(expression, str) else expression
    words = [" ".join(condition.lower().split()) for condition in conditions]
    allowing = [word for word in words if not word.startswith("not ")]
    blocked = any(word.removeprefix("not ") in _ALWAYS for word in words if word not in allowing)
    return not blocked and (not allowing or any(word not in _NEVER for word in allowing))
