# SPDX-License-Identifier: Apache-2.0
"""What a participant's startup kit permits to a job, to a user of the federation and to other users of the machine."""

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fdg_plugins.doctor.examination import guarded
from fdg_plugins.doctor.finding import Finding, Status
from fdg_plugins.errors import SettingsError
from fdg_plugins.filters.ledger import LEDGER_FILE, LEDGER_FOLDER, POLICY_FILE, read_policy
from fdg_plugins.flare.allow_list import (
    ALLOW_ALL,
    CLASS_ALLOW_LIST,
    entries_in_force,
    is_too_wide,
    opens_side_door,
    other_entries,
)
from fdg_plugins.flare.components import SITE
from fdg_plugins.flare.kits import Kit, read_kit
from fdg_plugins.messages import shorten
from fdg_plugins.settings.site_config import FILE_NAME, read_site_config
from fdg_plugins.state.folders import FOLDER
from fdg_plugins.storage import read_json

MODE = "class_list_enforcement_mode"
ENFORCE = "enforce"
AUTHORIZATION = "authorization.json"
PRIVACY = "privacy.json"
DP_FILTER = ".DifferentialPrivacyFilter"
REMEDY = "fdg allow-list --kit writes the least list"
OTHERS = stat.S_IRWXG | stat.S_IRWXO


def examine_kit(folder: Path) -> tuple[Finding, ...]:
    """Return the findings on the kit in ``folder``; raise ``DataError`` if there is none. Changes nothing."""
    kit = read_kit(folder)
    local = folder / "local"
    findings = [
        Finding("kit", Status.OK, f"{folder}, of a {kit.end}"),
        *guarded(CLASS_ALLOW_LIST, lambda: check_list(kit)),
        *guarded(MODE, lambda: check_mode(kit.resources)),
        *guarded(AUTHORIZATION, lambda: check_rights(local)),
    ]
    if kit.end == SITE:
        findings += [
            *guarded("allow_log_streaming", lambda: check_log_streaming(kit.resources)),
            *guarded(FILE_NAME, lambda: check_site_config(local / FILE_NAME)),
            *guarded(PRIVACY, lambda: check_scopes(local / PRIVACY)),
            *guarded(POLICY_FILE, lambda: check_policy(local / POLICY_FILE)),
        ]
    return (*findings, *guarded("files", lambda: check_modes(folder)))


def check_list(kit: Kit) -> Iterator[Finding]:
    """Yield what the kit's list allows in addition to the components that jobs of this package need."""
    entries = entries_in_force(kit.resources, kit.target)
    if CLASS_ALLOW_LIST not in kit.resources:
        text = f"is not there, so that FLARE's own list is in force, {len(entries)} entries; {REMEDY}"
        yield Finding(CLASS_ALLOW_LIST, Status.PROBLEM if kit.end == SITE else Status.WARNING, text)
        return
    others = other_entries(entries, kit.end)
    doors = [entry for entry in others if opens_side_door(entry)]
    wide = [entry for entry in others if is_too_wide(entry)]
    if not others:
        yield Finding(CLASS_ALLOW_LIST, Status.OK, f"{len(entries)} entries, each a component that jobs need")
        return
    yield Finding(
        CLASS_ALLOW_LIST,
        Status.WARNING,
        f"{len(others)} of {len(entries)} entries are needed by no job of this package, such as {others[0]}; {REMEDY}",
    )
    serious = Status.PROBLEM if kit.end == SITE else Status.WARNING
    if doors:
        text = "lets a job send what the site's executor returns to another site, past the site's filters and audit"
        yield Finding(CLASS_ALLOW_LIST, serious, f"{_some(doors)} {text}")
    if wide:
        below = "everything" if ALLOW_ALL in wide else "every callable that can be reached below it"
        yield Finding(CLASS_ALLOW_LIST, serious, f"{_some(wide)} allows {below}; exact class paths are enough")


def check_mode(resources: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield whether FLARE rejects a class that is not on the list, or only reports it."""
    mode = resources.get(MODE, ENFORCE)
    if mode == ENFORCE:
        yield Finding(MODE, Status.OK, ENFORCE)
    else:
        text = f"is {shorten(mode)}: a class that is not on the list is built all the same, expected {ENFORCE!r}"
        yield Finding(MODE, Status.PROBLEM, text)


def check_rights(local: Path) -> Iterator[Finding]:
    """Yield who may bring code, to which no list of classes applies, and who may run shell commands here."""
    policy = local / AUTHORIZATION
    policy = policy if policy.exists() else local / f"{AUTHORIZATION}.default"
    content = read_json(policy)
    permissions = content.get("permissions") if isinstance(content, dict) else None
    if not isinstance(permissions, dict):
        raise SettingsError(f"file {policy} holds no permissions, expected rights by role.")
    holders = {right: [role for role in permissions if _has(permissions[role], right)] for right in _RIGHTS}
    for right, roles in holders.items():
        check = f"{AUTHORIZATION}, {right}"
        if roles:
            yield Finding(check, Status.WARNING, f"{', '.join(sorted(roles))}: {_RIGHTS[right]}")
        else:
            yield Finding(check, Status.OK, "nobody")


_RIGHTS = {
    "byoc": "may submit jobs that bring code, for which FLARE checks no class",
    "shell_commands": "may run FLARE's shell commands here (cat, ls, tail, ...)",
}


def _has(rights: Any, right: str) -> bool:
    """Return whether a role's ``rights`` include ``right``; text in place of rights is the value of all of them."""
    value = rights.get(right, "none") if isinstance(rights, dict) else rights
    return value != "none"


def check_log_streaming(resources: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield whether FLARE sends the site's logs, which name files, to the server."""
    allowed = resources.get("allow_log_streaming", True)
    if allowed is False:
        yield Finding("allow_log_streaming", Status.OK, "false")
    else:
        text = "is not false: FLARE sends the site's logs, which name its files, to the server"
        yield Finding("allow_log_streaming", Status.WARNING, text)


def check_site_config(path: Path) -> Iterator[Finding]:
    """Yield whether the site's own config can be read."""
    if not path.exists():
        yield Finding(FILE_NAME, Status.WARNING, "is not there: the environment of the site's process decides")
        return
    content = read_json(path)
    if not isinstance(content, dict):
        raise SettingsError(f"file {path} holds {shorten(content)}, expected settings by site.")
    for site in content:
        read_site_config(site, path, {})
    yield Finding(FILE_NAME, Status.OK, f"settings of {', '.join(content) or 'no site'}")


def check_scopes(path: Path) -> Iterator[Finding]:
    """Yield the scopes of the site's privacy policy; a job chooses its scope, so the weakest one counts."""
    if not path.exists():
        yield Finding(PRIVACY, Status.OK, "is not there: no filter of the site's own")
        return
    content = read_json(path)
    scopes = content.get("scopes") if isinstance(content, dict) else None
    if not isinstance(scopes, list) or not all(isinstance(scope, dict) for scope in scopes):
        raise SettingsError(f"file {path} has no list of scopes.")
    names = [str(scope.get("name")) for scope in scopes]
    if content.get("default_scope") not in names:
        yield Finding(PRIVACY, Status.PROBLEM, f"default_scope is none of its scopes: {', '.join(names) or 'none'}")
        return
    without = [name for name, scope in zip(names, scopes, strict=True) if not _is_private(scope)]
    if len(without) in (0, len(names)):
        kind = "without" if without else "all with"
        yield Finding(PRIVACY, Status.OK, f"scopes {', '.join(names)}, {kind} differential privacy")
    else:
        text = f"{_some(without)} has no differential privacy, and a job chooses its scope; {POLICY_FILE} holds for all"
        yield Finding(PRIVACY, Status.WARNING, text)


def _is_private(scope: Mapping[str, Any]) -> bool:
    filters = scope.get("task_result_filters") or []
    return any(str(one.get("path", "")).endswith(DP_FILTER) for one in filters if isinstance(one, dict))


def check_policy(path: Path) -> Iterator[Finding]:
    """Yield the bounds of the site's privacy policy."""
    if not os.path.lexists(path):
        yield Finding(POLICY_FILE, Status.OK, "is not there: no bounds of the site's own on what jobs release")
        return
    policy = read_policy("of this kit", path)
    bounds = {name: value for name, value in policy.model_dump().items() if value is not None}
    yield Finding(
        POLICY_FILE, Status.OK, ", ".join(f"{name} {value:g}" for name, value in bounds.items()) or "no bound"
    )


def check_modes(folder: Path) -> Iterator[Finding]:
    """Yield files with keys, or derived from the site's data, that other users of the machine can read."""
    keys = [path for path in (folder / "startup").glob("*.key") if _is_open(path)]
    if keys:
        yield Finding("files", Status.PROBLEM, f"{keys[0]} can be read by others than its owner: chmod 600")
    ledger = folder / "local" / LEDGER_FOLDER
    for place in (folder / FOLDER, ledger):
        inside = sorted(place.rglob("*")) if place.is_dir() else []
        opened = [path for path in (place, *inside) if os.path.lexists(path) and _is_open(path)]
        name = f"files, {place.relative_to(folder)}"
        if opened:
            text = f"{opened[0]} can be read by others than its owner, {len(opened)} in all: chmod -R go= {place}"
            yield Finding(name, Status.WARNING, text)
        elif os.path.lexists(place):
            yield Finding(name, Status.OK, "readable by their owner only")
    if ledger.is_dir() and not (ledger / LEDGER_FILE).is_file():
        yield Finding(f"files, {ledger.relative_to(folder)}", Status.WARNING, f"{LEDGER_FILE} is not there")


def _is_open(path: Path) -> bool:
    return not path.is_symlink() and bool(path.stat().st_mode & OTHERS)


def _some(names: list[str]) -> str:
    """Return the first of ``names``, and the number of the others."""
    return names[0] if len(names) == 1 else f"{names[0]} (and {len(names) - 1} more)"
