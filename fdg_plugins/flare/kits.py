# SPDX-License-Identifier: Apache-2.0
"""A participant's startup kit: its ``class_allow_list``, reduced to what this package's jobs need, and its rights.

FLARE reads the list from ``local/resources.json``, or from ``local/resources.json.default`` if the former does not
exist. The former hides the latter completely. A list in the file replaces FLARE's built-in list, which applies if the
file does not contain one.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nvflare.app_common.default_component_policy import DEFAULT_CLASS_ALLOW_LIST

from fdg_plugins.errors import DataError, FDGError, SettingsError, shorten
from fdg_plugins.flare.components import SERVER, SITE, class_paths, components
from fdg_plugins.flare.internals import fetch
from fdg_plugins.plugins.fields import check_value
from fdg_plugins.storage import read_json, write_json

CLIENT_FILE = "fed_client.json"
ENDS = {"fed_server.json": SERVER, CLIENT_FILE: SITE}
CONTAINER_LAUNCHERS = ("docker_launcher", "k8s_launcher")  # written by nvflare deploy prepare
RESOURCES = "resources.json"
CLASS_ALLOW_LIST = "class_allow_list"
ALLOW_ALL = "*"
SIDE_DOORS = "nvflare.app_common.ccwf."
STREAMING = "allow_log_streaming"
LOG_STREAMER = "nvflare.app_common.logging.job_log_streamer.JobLogStreamer"
_ADDS_STREAMER = "nvflare.app_common.logging.site_log_streamer.SiteLogStreamer"
SHELL = "shell_commands"
OPERATE = "operate"  # shut down, restart, remove and disable sites, configure logs, report the environment
EVERY = "*"  # takes precedence over all rights that are named
_NEVER = {"none", "no"}
_ALWAYS = {"any", "all"}


@dataclass(frozen=True)
class Kit:
    """A kit: its folder, its end (server or site), and its current resources."""

    folder: Path
    end: str
    resources: dict[str, Any]

    @property
    def local(self) -> Path:
        """The folder of the participant's own policies."""
        return self.folder / "local"

    @property
    def target(self) -> Path:
        """The file of the participant's own resources."""
        return self.local / RESOURCES

    def component(self, name: str) -> dict[str, Any]:
        """Return the first component with the id ``name``; empty if there is none."""
        return next((one for one in declared_components(self.resources) if one.get("id") == name), {})

    @property
    def in_containers(self) -> bool:
        """Whether the kit is for Docker or Kubernetes: its paths are those of containers."""
        return any(map(self.component, CONTAINER_LAUNCHERS))

    @property
    def streams_logs(self) -> bool:
        """Whether FLARE sends the site's logs to the server, as it does by default.

        It then adds its :data:`LOG_STREAMER` to the config of every job, which fails where the list lacks that class.
        """
        paths = [one.get("path") for one in declared_components(self.resources)]
        return self.end == SITE and self.resources.get(STREAMING) is not False and _ADDS_STREAMER in paths

    @property
    def entries(self) -> list[str]:
        """The list in force; raises ``SettingsError`` if it is not one of class paths."""
        found = self.resources.get(CLASS_ALLOW_LIST, list(DEFAULT_CLASS_ALLOW_LIST))
        check_value(f"{CLASS_ALLOW_LIST} of {self.folder}", found, list[str])
        return list(found)

    def needed(self, methods: Iterable[str] = ()) -> list[str]:
        """Return the entries that jobs of ``methods`` (empty: all) need."""
        return [*class_paths(self.end, methods), *([LOG_STREAMER] if self.streams_logs else [])]

    def others(self, entries: Sequence[str]) -> list[str]:
        """Return the entries that no job of this package needs."""
        needed = set(self.needed())
        return [entry for entry in entries if entry not in needed]

    def least_list(self, methods: Iterable[str] = ()) -> list[str]:
        """Return the least list: the components of ``methods`` (empty: all), and the operator's own entries.

        Components of this package that ``methods`` do not need are left out, as are FLARE's defaults that no job of
        this package needs. Raises ``SettingsError`` for an unknown method or an invalid current list.
        """
        wanted = self.needed(methods)
        unwanted = {*class_paths(self.end), *self.others(DEFAULT_CLASS_ALLOW_LIST)} - {*wanted}
        return list(dict.fromkeys([*(entry for entry in self.entries if entry not in unwanted), *wanted]))

    def write_list(self, entries: list[str]) -> None:
        """Replace ``local/resources.json`` atomically; raise ``DataError`` if it cannot be written."""
        write_json(self.target, {**self.resources, CLASS_ALLOW_LIST: entries})


def read_kit(folder: Path) -> Kit:
    """Return the kit in ``folder``; raise ``DataError`` if it is missing, an administrator's kit or not a kit.

    Raises ``SettingsError`` if its resources are not a JSON object.
    """
    end = next((end for name, end in ENDS.items() if (folder / "startup" / name).is_file()), None)
    if end is None or not (folder / "local").is_dir():
        files = " or startup/".join(ENDS)
        raise DataError(
            f"folder {folder} is not a startup kit of a server or site: expected local/ and startup/{files}."
        )
    return Kit(folder, end, _resources(folder))


def _resources(folder: Path) -> dict[str, Any]:
    own = folder / "local" / RESOURCES
    source = own if own.exists() else own.with_name(f"{RESOURCES}.default")
    resources: dict[str, Any] = read_json(source)
    check_value(f"content of {source}", resources, dict[str, Any])
    return resources


def count_other_components(workspace: Path, end: str) -> int | None:
    """Return how many entries no job of this package needs at ``end``; None if the resources cannot be read.

    ``workspace`` is the participant's kit, which holds ``local/``.
    """
    try:
        kit = Kit(workspace, end, _resources(workspace))
        return len(kit.others(kit.entries))
    except FDGError:
        return None


def declared_components(resources: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the components that resources declare, without entries that are not objects, which FLARE refuses."""
    declared = resources.get("components")
    return [one for one in declared if isinstance(one, dict)] if isinstance(declared, list) else []


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


def site_of_kit(folder: Path) -> str:
    """Return the name of the site whose startup kit is in ``folder``, by which FLARE knows it.

    Raises ``SettingsError`` if the kit does not name it.
    """
    path = folder / "startup" / CLIENT_FILE
    try:
        return str(read_json(path)["client"]["fqsn"])
    except (KeyError, TypeError):
        raise SettingsError(f"file {path} has no fqsn of the client, expected the name of the site.") from None


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
