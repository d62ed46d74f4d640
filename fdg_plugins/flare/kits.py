# SPDX-License-Identifier: Apache-2.0
"""A participant's startup kit, and the reduction of its ``class_allow_list`` to the minimum."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from nvflare.app_common.default_component_policy import DEFAULT_CLASS_ALLOW_LIST

from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.flare.allow_list import (
    CLASS_ALLOW_LIST,
    RESOURCES,
    declared_components,
    entries_in_force,
    is_too_wide,
    needed_entries,
    other_entries,
    resources_file,
    streams_logs,
)
from fdg_plugins.flare.components import SERVER, SITE, class_paths
from fdg_plugins.flare.internals import fetch
from fdg_plugins.storage import read_json, write_json

CLIENT_FILE = "fed_client.json"
ENDS = {"fed_server.json": SERVER, CLIENT_FILE: SITE}
CONTAINER_LAUNCHERS = ("docker_launcher", "k8s_launcher")  # written by nvflare deploy prepare


class Kit(NamedTuple):
    """A kit: its end (server or site), the resources file to write, and the current resources."""

    end: str
    target: Path
    resources: dict[str, Any]


class Merge(NamedTuple):
    """A list that has been computed but not yet written.

    ``entries``: the whole list. ``added`` and ``removed``: the difference from the kit's current list. ``others``: the
    operator's own entries. ``too_wide``: entries that allow more than the class they name.
    ``streams``: FLARE sends the site's logs to the server, and its class for that is in the list.
    """

    kit: Kit
    entries: list[str]
    added: list[str]
    removed: list[str]
    others: list[str]
    too_wide: list[str]
    streams: bool

    @property
    def changes(self) -> bool:
        """Whether the kit currently has a different list, or no own one."""
        return bool(self.added or self.removed) or CLASS_ALLOW_LIST not in self.kit.resources

    def write(self) -> None:
        """Replace ``local/resources.json`` atomically; raise ``DataError`` if it cannot be written."""
        write_json(self.kit.target, {**self.kit.resources, CLASS_ALLOW_LIST: self.entries})


def read_kit(folder: Path) -> Kit:
    """Return the kit in ``folder``; raise ``DataError`` if it is missing, an administrator's kit or not a kit.

    Raises ``SettingsError`` if its resources are not a JSON object.
    """
    local = folder / "local"
    end = next((end for name, end in ENDS.items() if (folder / "startup" / name).is_file()), None)
    if end is None or not local.is_dir():
        files = " or startup/".join(ENDS)
        raise DataError(
            f"folder {folder} is not a startup kit of a server or site: expected local/ and startup/{files}."
        )
    resources = read_json(source := resources_file(local))
    if not isinstance(resources, dict):
        raise SettingsError(field=f"content of {source}", value=resources, expected="an object")
    return Kit(end, local / RESOURCES, resources)


def runs_in_containers(resources: Mapping[str, Any]) -> bool:
    """Return whether a kit with these resources is for Docker or Kubernetes: its paths are those of containers."""
    return any(one.get("id") in CONTAINER_LAUNCHERS for one in declared_components(resources))


def site_of_kit(folder: Path) -> str:
    """Return the name of the site whose startup kit is in ``folder``, by which FLARE knows it.

    Raises ``SettingsError`` if the kit does not name it.
    """
    path = folder / "startup" / CLIENT_FILE
    try:
        return str(read_json(path)["client"]["fqsn"])
    except (KeyError, TypeError):
        raise SettingsError(f"file {path} has no fqsn of the client, expected the name of the site.") from None


def person_of_kit(folder: Path) -> tuple[str, str]:
    """Return the user name of the personal kit in ``folder``, and the folder from which FLARE's sessions start.

    Raises ``ValueError`` if it is not a user's kit, ``InternalsError`` if this FLARE version does not tell.
    """
    person, kit = fetch("resolve_admin_user_and_dir_from_startup_kit")(str(folder))
    return str(person), str(kit)


def merge_allow_list(kit: Kit, methods: Iterable[str] = ()) -> Merge:
    """Return the minimal list for the kit: the components of ``methods`` (empty: all) and the operator's own entries.

    Components of this package that ``methods`` do not need are removed, as are FLARE's defaults that no job of this
    package needs. Raises ``SettingsError`` for an unknown method or an invalid current list.
    """
    present = entries_in_force(kit.resources, f"kit {kit.target.parent.parent}")
    wanted = needed_entries(kit.end, kit.resources, methods)
    unwanted = {*class_paths(kit.end), *other_entries(DEFAULT_CLASS_ALLOW_LIST, kit.end, kit.resources)} - {*wanted}
    entries = list(dict.fromkeys([*(entry for entry in present if entry not in unwanted), *wanted]))
    return Merge(
        kit=kit,
        entries=entries,
        added=[entry for entry in entries if entry not in present],
        removed=[entry for entry in present if entry not in entries],
        others=other_entries(entries, kit.end, kit.resources),
        too_wide=[entry for entry in entries if is_too_wide(entry)],
        streams=streams_logs(kit.resources, kit.end),
    )
