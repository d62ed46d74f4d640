# SPDX-License-Identifier: Apache-2.0
"""A participant's ``class_allow_list``: the entries that this package's jobs need, and what all others permit.

FLARE reads the list from ``local/resources.json``, or from ``local/resources.json.default`` if the former does not
exist. The former hides the latter completely. A list in the file replaces FLARE's built-in list, which applies if the
file does not contain one.
"""

from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from nvflare.app_common.default_component_policy import DEFAULT_CLASS_ALLOW_LIST

from fdg_plugins.errors import FDGError, SettingsError
from fdg_plugins.flare.components import SITE, class_paths, components
from fdg_plugins.flare.resources import declared_components
from fdg_plugins.storage import read_json
from fdg_plugins.values import counted, shorten

CLASS_ALLOW_LIST = "class_allow_list"
ALLOW_ALL = "*"
RESOURCES = "resources.json"
SIDE_DOORS = "nvflare.app_common.ccwf."
STREAMING = "allow_log_streaming"
LOG_STREAMER = "nvflare.app_common.logging.job_log_streamer.JobLogStreamer"
_ADDS_STREAMER = "nvflare.app_common.logging.site_log_streamer.SiteLogStreamer"


class Group(NamedTuple):
    """FLARE's default entries with the same effect: their path prefixes, and what a job can do with them."""

    prefixes: tuple[str, ...]
    opens: str


# An entry belongs to the first group with a matching prefix; the last group matches everything.
_APP, _OPT = "nvflare.app_common.", "nvflare.app_opt."
GROUPS = (
    Group(
        (SIDE_DOORS,),
        "a job runs the site's own executor and sends what it returns to another site as task data, past the filters "
        "of results, those of the site's privacy.json too, and past the audit",
    ),
    Group(
        (
            *(f"{_APP}{name}" for name in ("executors.", "np.np_trainer.", "np.np_validator.", "psi.", "statistics.")),
            *(f"{_OPT}{name}" for name in ("psi.", "sklearn.", "xgboost.")),
        ),
        "a job has work of FLARE's own done here (statistics, set intersection, XGBoost), without this package's "
        "census, allowed_reports and audit",
    ),
    Group(
        (
            *(f"{_APP}{name}" for name in ("np.", "workflows.lr.np_persistor.", "widgets.validation_json_generator.")),
            *(f"{_OPT}{name}" for name in ("pt.file_model_locator.", "tf.file_model_locator.")),
        ),
        "a job reads model files at paths of its choice, and has others written",
    ),
    Group(
        (
            *(f"{_APP}{name}" for name in ("logging.", "widgets.convert_to_fed_event.", "widgets.event_recorder.")),
            *(f"{_APP}{name}" for name in ("widgets.metrics_artifact_writer.",)),
            f"{_OPT}tracking.",
        ),
        "a job passes on logs, events and metrics, at the server also to a tracking service whose address it names",
    ),
    Group(
        (f"{_APP}workflows.", f"{_OPT}pt.fedopt_ctl.", f"{_OPT}tf.fedopt_ctl.", f"{_OPT}pt.recipes."),
        "another workflow than this package's asks the sites, without census and without checks of what they send",
    ),
    Group(("",), "FLARE's own aggregators, filters, converters and encryption, which no job of this package needs"),
)


def group_of(entry: str) -> Group:
    """Return the group of one of FLARE's default entries."""
    return next(group for group in GROUPS if entry.startswith(group.prefixes))


def by_group(entries: Iterable[str]) -> dict[Group, list[str]]:
    """Return FLARE's default entries by group, the most dangerous group first, without empty groups."""
    found: dict[Group, list[str]] = {group: [] for group in GROUPS}
    for entry in entries:
        found[group_of(entry)].append(entry)
    return {group: members for group, members in found.items() if members}


def entries_in_force(resources: Mapping[str, Any], owner: object) -> list[str]:
    """Return the list in a participant's resources, or FLARE's defaults if there is none.

    Raises ``SettingsError``, naming ``owner``, if the value is not a list of class paths.
    """
    entries = resources.get(CLASS_ALLOW_LIST, list(DEFAULT_CLASS_ALLOW_LIST))
    if not isinstance(entries, list) or not all(isinstance(entry, str) for entry in entries):
        raise SettingsError(f"{owner}: {CLASS_ALLOW_LIST} is {shorten(entries)}, expected a list of class paths.")
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

    FLARE reads an entry without a trailing dot as if it also had one.
    """
    known = {*(component.path for component in components()), *DEFAULT_CLASS_ALLOW_LIST}
    return entry == ALLOW_ALL or entry.endswith(".") or (entry not in known and _names_module(entry))


def _names_module(entry: str) -> bool:
    """Return whether ``entry`` names a module; where it is not installed here, judging by its small first letter."""
    try:
        return find_spec(entry) is not None
    except ModuleNotFoundError as error:
        if error.name == entry:  # what is before its last dot is a module, not a package
            return False
    except Exception:  # noqa: BLE001 - the code of a package may raise anything while it is imported
        pass
    return entry.rpartition(".")[2][:1].islower()


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
        if not isinstance(resources, dict):
            return None
        return len(other_entries(entries_in_force(resources, local), end, resources))
    except FDGError:
        return None


def warning_of(owner: str, count: int | None) -> str | None:
    """Return the server's warning that the list of ``owner`` has ``count`` unneeded entries; None if it has none."""
    if not count:
        return None
    entries = counted(count, "entry", "entries")
    return (
        f"{owner}: its list of allowed classes holds {entries} that these jobs do not need; "
        "`fdg kit allow` writes the least one."
    )
