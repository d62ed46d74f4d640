# SPDX-License-Identifier: Apache-2.0
"""A participant's startup kit and its ``class_allow_list``.

FLARE reads the list from ``local/resources.json``, or from ``local/resources.json.default`` while there is no such
file; the first hides the second completely, and a list of one's own replaces FLARE's built-in one.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from nvflare.app_common.default_component_policy import DEFAULT_CLASS_ALLOW_LIST

from fdg_plugins.cli.components import COMPONENTS, SERVER, SITE, class_paths
from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.messages import shorten
from fdg_plugins.storage import read_json, write_json

CLASS_ALLOW_LIST = "class_allow_list"
ALLOW_ALL = "*"
RESOURCES = "resources.json"
ENDS = {"fed_server.json": SERVER, "fed_client.json": SITE}


class Kit(NamedTuple):
    """A kit: which end it is of, the file that FLARE will read, and what is in force now."""

    end: str
    target: Path
    resources: dict[str, Any]


class Merge(NamedTuple):
    """A list that was merged but not yet written: all entries, the new ones, those of FLARE, those too wide."""

    kit: Kit
    entries: list[str]
    added: list[str]
    defaults: list[str]
    too_wide: list[str]

    def write(self) -> None:
        """Replace ``local/resources.json``: a reader, or a crash, meets the old file or the new one."""
        try:
            write_json(self.kit.target, {**self.kit.resources, CLASS_ALLOW_LIST: self.entries})
        except OSError as error:
            raise DataError(f"file {self.kit.target} cannot be written: {error.strerror}.") from error


def read_kit(folder: Path) -> Kit:
    """Return the kit in ``folder``; raise ``DataError`` for one that is missing, of an administrator, or no kit."""
    if not folder.is_dir():
        raise DataError(f"kit {folder} is not there, expected a participant's startup kit with local/ and startup/.")
    ends = [end for name, end in ENDS.items() if (folder / "startup" / name).is_file()]
    if not ends or not (folder / "local").is_dir():
        raise DataError(
            f"folder {folder} is no startup kit of a server or site: expected local/, and startup/fed_server.json or "
            "startup/fed_client.json."
        )
    target = folder / "local" / RESOURCES
    source = target if target.exists() else folder / "local" / f"{RESOURCES}.default"
    resources = read_json(source)
    if not isinstance(resources, dict):
        raise SettingsError(f"file {source} holds {shorten(resources)}, expected an object.")
    return Kit(ends[0], target, resources)


def merge_allow_list(kit: Kit, methods: Iterable[str] = ()) -> Merge:
    """Return the kit's list with FLARE's defaults and the components of ``methods`` (none: all) added to its end."""
    present = kit.resources.get(CLASS_ALLOW_LIST, [])
    if not isinstance(present, list) or not all(isinstance(entry, str) for entry in present):
        raise SettingsError(
            f"kit {kit.target.parent.parent}: {CLASS_ALLOW_LIST} is {shorten(present)}, expected a list of class paths."
        )
    wanted = dict.fromkeys([*DEFAULT_CLASS_ALLOW_LIST, *class_paths(kit.end, methods)])
    added = [entry for entry in wanted if entry not in present]
    return Merge(
        kit=kit,
        entries=[*present, *added],
        added=added,
        defaults=[entry for entry in added if entry in DEFAULT_CLASS_ALLOW_LIST],
        too_wide=[entry for entry in present if _is_too_wide(entry)],
    )


def _is_too_wide(entry: str) -> bool:
    """Return whether ``entry`` covers a component without naming it; FLARE takes the dot at its end as given."""
    below = entry if entry.endswith(".") else f"{entry}."
    return entry == ALLOW_ALL or any(component.path.startswith(below) for component in COMPONENTS)
