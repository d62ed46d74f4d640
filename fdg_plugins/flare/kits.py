# SPDX-License-Identifier: Apache-2.0
"""A participant's startup kit, and the reduction of its ``class_allow_list`` to the minimum."""

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from nvflare.app_common.default_component_policy import DEFAULT_CLASS_ALLOW_LIST

from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.flare.allow_list import (
    CLASS_ALLOW_LIST,
    RESOURCES,
    entries_in_force,
    is_too_wide,
    needed_entries,
    other_entries,
    resources_file,
    streams_logs,
)
from fdg_plugins.flare.components import SERVER, SITE, class_paths
from fdg_plugins.flare.internals import fetch
from fdg_plugins.flare.resources import declared_components
from fdg_plugins.storage import read_json, write_json
from fdg_plugins.values import shorten

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
    operator's own entries, which are neither this package's nor FLARE's defaults. ``defaults``: FLARE's defaults in the
    list that no job of this package needs. ``too_wide``: entries that allow more than the class they name.
    ``streams``: FLARE sends the site's logs to the server, and its class for that is in the list.
    """

    kit: Kit
    entries: list[str]
    added: list[str]
    removed: list[str]
    others: list[str]
    defaults: list[str]
    too_wide: list[str]
    streams: bool

    @property
    def changes(self) -> bool:
        """Whether the kit currently has a different list, or none of its own."""
        return bool(self.added or self.removed) or CLASS_ALLOW_LIST not in self.kit.resources

    def write(self) -> None:
        """Replace ``local/resources.json`` atomically; raise ``DataError`` if it cannot be written."""
        write_json(self.kit.target, {**self.kit.resources, CLASS_ALLOW_LIST: self.entries})


def read_kit(folder: Path) -> Kit:
    """Return the kit in ``folder``; raise ``DataError`` if it is missing, an administrator's kit or not a kit.

    Raises ``SettingsError`` if its resources are not a JSON object.
    """
    if not folder.is_dir():
        raise DataError(f"kit {folder} is not there, expected a participant's startup kit with local/ and startup/.")
    end, local = _end_of(folder / "startup"), folder / "local"
    if end is None or not local.is_dir():
        raise DataError(
            f"folder {folder} is not a startup kit of a server or site: expected local/ and startup/fed_server.json or "
            "startup/fed_client.json."
        )
    return Kit(end, local / RESOURCES, _read_resources(resources_file(local)))


def _end_of(startup: Path) -> str | None:
    """Return the end, server or site, whose config is in a kit's folder ``startup``; None if it has neither."""
    return next((end for name, end in ENDS.items() if (startup / name).is_file()), None)


def _read_resources(source: Path) -> dict[str, Any]:
    resources = read_json(source)
    if not isinstance(resources, dict):
        raise SettingsError(f"file {source} holds {shorten(resources)}, expected an object.")
    return resources


def runs_in_containers(resources: Mapping[str, Any]) -> bool:
    """Return whether a kit with these resources is for Docker or Kubernetes: its paths are those of containers."""
    return any(one.get("id") in CONTAINER_LAUNCHERS for one in declared_components(resources))


def site_of_kit(folder: Path) -> str:
    """Return the name of the site whose startup kit is in ``folder``, by which FLARE knows it.

    Raises ``SettingsError`` if the kit does not name it.
    """
    path = folder / "startup" / CLIENT_FILE
    content = read_json(path)
    client = content.get("client") if isinstance(content, dict) else None
    site = client.get("fqsn") if isinstance(client, dict) else None
    if not isinstance(site, str) or not site:
        raise SettingsError(f"file {path}: fqsn of the client is {shorten(site)}, expected the name of the site.")
    return site


def person_of_kit(folder: Path) -> tuple[str, str]:
    """Return the user name of the personal kit in ``folder``, and the folder from which FLARE's sessions start.

    Raises ``ValueError`` if it is not a user's kit, ``InternalsError`` if this FLARE version does not tell.
    """
    person, kit = fetch("resolve_admin_user_and_dir_from_startup_kit")(str(folder))
    return str(person), str(kit)


def merge_allow_list(kit: Kit, methods: Iterable[str] = (), *, keep_flare_defaults: bool = False) -> Merge:
    """Return the minimal list for the kit: the components of ``methods`` (empty: all) and the operator's own entries.

    Components of this package that ``methods`` do not need are removed, as are FLARE's defaults that no job of this
    package needs, unless ``keep_flare_defaults`` is true. Raises ``SettingsError`` for an unknown method or an invalid
    current list.
    """
    present = entries_in_force(kit.resources, f"kit {kit.target.parent.parent}")
    defaults = set(other_entries(DEFAULT_CLASS_ALLOW_LIST, kit.end, kit.resources))
    wanted = needed_entries(kit.end, kit.resources, methods)
    kept = _without({*class_paths(kit.end)} - {*wanted}, present)
    kept = [*kept, *DEFAULT_CLASS_ALLOW_LIST] if keep_flare_defaults else _without(defaults, kept)
    entries = list(dict.fromkeys([*kept, *wanted]))
    return Merge(
        kit=kit,
        entries=entries,
        added=_without(present, entries),
        removed=_without(entries, present),
        others=_without(defaults, other_entries(entries, kit.end, kit.resources)),
        defaults=[entry for entry in entries if entry in defaults],
        too_wide=[entry for entry in entries if is_too_wide(entry)],
        streams=streams_logs(kit.resources, kit.end),
    )


def _without(known: Collection[str], entries: Iterable[str]) -> list[str]:
    return [entry for entry in entries if entry not in known]
