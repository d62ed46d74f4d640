# SPDX-License-Identifier: Apache-2.0
"""What a participant's startup kit lets a job, a person and another user of the machine do."""

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fdg_plugins.data import DATASETS
from fdg_plugins.data.site_names import split_site
from fdg_plugins.data.stand_in import is_stand_in
from fdg_plugins.errors import SettingsError, counted, shorten
from fdg_plugins.flare.allow_list import (
    CLASS_ALLOW_LIST,
    OPERATE,
    RESOURCES,
    SHELL,
    STREAMING,
    declared_component,
    entries_in_force,
    is_too_wide,
    opens_side_door,
    other_entries,
    roles_with,
    streams_logs,
)
from fdg_plugins.flare.cautious_kits import AUTHORIZATION
from fdg_plugins.flare.components import SERVER, SITE
from fdg_plugins.flare.kits import ENDS, Kit, read_kit, runs_in_containers, site_of_kit
from fdg_plugins.lab.doctor.finding import Finding, findings_of, ok, problem, warning
from fdg_plugins.plugins.admission import ALLOWED_PLUGINS
from fdg_plugins.privacy.ledger import LEDGER_FOLDER, POLICY_FILE, Ledger, ledger_file, read_policy
from fdg_plugins.settings.site_config import FILE_NAME, SiteConfig, read_allowed_plugins, read_site_config
from fdg_plugins.state.folders import FOLDER
from fdg_plugins.storage import read_json

MODE = "class_list_enforcement_mode"
SIGNED = "require_signed_jobs"
PRIVACY = "privacy.json"
LEDGER = "privacy ledger"
DEMANDED = ("clip_norm", "noise_multiplier", "max_epsilon")  # what a policy must have to hold for every job
DP_FILTER = "DifferentialPrivacyFilter"
DP_PATHS = (f"fdg_plugins.filters.{DP_FILTER}", f"fdg_plugins.filters.privacy.{DP_FILTER}")
OTHERS = stat.S_IRWXG | stat.S_IRWXO
RIGHTS = {
    "byoc": "may submit jobs that bring code, for which FLARE checks no class",
    SHELL: "may run FLARE's shell commands here (cat, ls, tail, ...)",
    OPERATE: "may operate this machine from the console (shut it down, restart it, ...), which is for admins",
}
OPERATORS = ("org_admin", "project_admin")  # whose task it is


def examine_kit(folder: Path) -> tuple[Finding, ...]:
    """Return what is found in the kit in ``folder``; raise ``DataError`` if there is none. Nothing is changed."""
    kit = read_kit(folder)
    local = folder / "local"
    checks: dict[str, Callable[[], Iterator[Finding]]] = {
        CLASS_ALLOW_LIST: lambda: _check_list(kit),
        AUTHORIZATION: lambda: _check_rights(local),
        SIGNED: lambda: _check_signed(folder / "startup", kit.end),
        RESOURCES: lambda: _check_streaming(kit),
        FILE_NAME: lambda: _check_config(kit, site_of_kit(folder) if kit.end == SITE else SERVER),
    }
    if kit.end == SITE:
        checks |= {
            PRIVACY: lambda: _check_scopes(local / PRIVACY),
            POLICY_FILE: lambda: _check_policy(local),
            LEDGER: lambda: _check_ledger(site_of_kit(folder), local, in_containers=runs_in_containers(kit.resources)),
        }
    else:
        checks["job storage"] = lambda: _check_storage(kit.resources)
    checks["files"] = lambda: _check_modes(folder)
    return ok("kit", f"{folder}, of a {kit.end}"), *findings_of(checks)


def _check_list(kit: Kit) -> Iterator[Finding]:
    serious = problem if kit.end == SITE else warning
    entries = entries_in_force(kit.resources, kit.target)
    others = other_entries(entries, kit.end, kit.resources)
    count, remedy = counted(len(entries), "entry", "entries"), "fdg kit allow writes the least list"
    if CLASS_ALLOW_LIST not in kit.resources:
        yield serious(CLASS_ALLOW_LIST, f"is not there, so that FLARE's own list is in force, {count}; {remedy}")
    elif others:
        needless = f"{len(others)} of {len(entries)} entries are needed by no job of this package"
        yield warning(CLASS_ALLOW_LIST, f"{needless}, such as {others[0]}; {remedy}")
        if doors := list(filter(opens_side_door, others)):
            text = "lets a job send what the site's executor returns to another site, past the site's filters and audit"
            yield serious(CLASS_ALLOW_LIST, f"{_some(doors)} {text}")
        if wide := list(filter(is_too_wide, others)):
            text = "allows every callable that can be reached below it; exact class paths are enough"
            yield serious(CLASS_ALLOW_LIST, f"{_some(wide)} {text}")
    else:
        yield ok(CLASS_ALLOW_LIST, f"{count}, each a component that jobs need")
    if (mode := kit.resources.get(MODE, "enforce")) == "enforce":
        yield ok(MODE, mode)
    else:
        yield problem(MODE, f"is {shorten(mode)}: a class that is not on the list is built all the same")


def _check_rights(local: Path) -> Iterator[Finding]:
    own = local / AUTHORIZATION
    policy = read_json(own if own.exists() else local / f"{AUTHORIZATION}.default")
    for right, what in RIGHTS.items():
        entitled = OPERATORS if right == OPERATE else ()
        roles = ", ".join(role for role in roles_with(policy, right) if role not in entitled)
        check = f"{AUTHORIZATION}, {right}"
        yield warning(check, f"{roles}: {what}") if roles else ok(check, "nobody but admins" if entitled else "nobody")


def _check_signed(startup: Path, end: str) -> Iterator[Finding]:
    (file,) = (name for name, of in ENDS.items() if of == end)
    if read_json(startup / file).get(SIGNED, True) is False:  # true is FLARE's default for a provisioned kit
        yield problem(SIGNED, f"is false in startup/{file}: a job can be changed between the person and this machine")
    else:
        yield ok(SIGNED, "true")


def _check_streaming(kit: Kit) -> Iterator[Finding]:
    if streams_logs(kit.resources, kit.end):
        text = f"lets FLARE send the site's logs, which name its files, to the server: set {STREAMING} to false"
        yield warning(RESOURCES, text)


def _check_config(kit: Kit, owner: str) -> Iterator[Finding]:
    path = kit.target.with_name(FILE_NAME)
    if not os.path.lexists(path):
        if kit.end == SITE:
            yield warning(FILE_NAME, "is not there: the environment of the site's process decides")
        return
    config = read_site_config(owner, path, {}, shared=False) if kit.end == SITE else None
    allowed = read_allowed_plugins(owner, path, shared=False)
    names = "any that is installed" if allowed is None else ", ".join(allowed) or "none"
    yield ok(FILE_NAME, f"settings of {owner}, {ALLOWED_PLUGINS}: {names}")
    if others := [shorten(name) for name in read_json(path) if name != owner]:
        text = f"what it says of {_some(others)} holds for nobody here, only what it says of {owner!r}"
        yield warning(FILE_NAME, text)
    if config is not None:
        yield _check_data_root(config.domain or split_site(owner)[0], config, runs_in_containers(kit.resources))


def _check_data_root(domain: str, config: SiteConfig, in_containers: bool) -> Finding:
    check, root, file = "data root", config.data_root, config.dataset_file
    if root is None:
        text = "none is named: the site draws a STAND-IN, unless the environment of its process has FDG_DATA_ROOT"
        return warning(check, text)
    lacking = [path for path in (root, file) if path is not None and not os.path.lexists(path)]
    if in_containers and lacking:
        return warning(check, f"{lacking[0]} is not there: only jobs in containers that have it find their images")
    if not root.is_dir() or not os.access(root, os.R_OK | os.X_OK):
        return problem(check, f"{root} is not a folder that this user can read")
    if file is not None and not file.is_file():
        return problem(check, f"dataset_file {file} is not a file")
    folders = [spec.folder for spec in DATASETS.all() if spec.folder]
    if any(is_stand_in(root, folder) for folder in folders):
        return warning(check, f"{root} holds the STAND-IN, drawings")
    if (root / domain).is_dir() or any((root / folder).is_dir() for folder in folders):
        return ok(check, f"{root} holds data for domain {domain!r}")
    return problem(check, f"{root} holds no data for domain {domain!r}")


def _check_storage(resources: Mapping[str, Any]) -> Iterator[Finding]:
    place = Path(((declared_component(resources, "job_manager") or {}).get("args") or {}).get("uri_root", ""))
    if Path("/tmp") in place.parents:
        text = "which other federations of this machine share, and a restart may empty: job_manager, uri_root"
        yield warning("job storage", f"{place}, {text}")
    else:
        yield ok("job storage", str(place))


def _check_scopes(path: Path) -> Iterator[Finding]:
    """Yield which scopes the site's privacy policy has; a job chooses its scope, so the weakest one counts."""
    if not path.exists():
        yield ok(PRIVACY, "is not there: no filter of the site's own")
        return
    private = {str(scope.get("name")): _is_private(scope) for scope in _scopes(path)}
    without = [name for name, is_private in private.items() if not is_private]
    if 0 < len(without) < len(private):
        text = f"has no differential privacy, and a job chooses its scope; {POLICY_FILE} holds for all"
        yield warning(PRIVACY, f"{_some(without)} {text}")
    else:
        kind = "without" if without else "all with"
        yield ok(PRIVACY, f"scopes {', '.join(private)}, {kind} differential privacy")


def _scopes(path: Path) -> list[dict[str, Any]]:
    content = read_json(path)
    scopes = content.get("scopes") if isinstance(content, dict) else None
    if not isinstance(scopes, list) or not all(isinstance(scope, dict) for scope in scopes):
        raise SettingsError(f"file {path} has no list of scopes.")
    return scopes


def _is_private(scope: Mapping[str, Any]) -> bool:
    filters = scope.get("task_result_filters")
    return any(
        entry.get("path", entry.get("class_path")) in DP_PATHS
        and entry.get("disabled") is not True
        and str(entry.get("direction") or "out").lower() != "in"
        for entry in (filters if isinstance(filters, list) else ())
        if isinstance(entry, dict)
    )


def _check_policy(local: Path) -> Iterator[Finding]:
    path, own = local / POLICY_FILE, local / PRIVACY
    if not os.path.lexists(path):
        yield ok(POLICY_FILE, "is not there: no bounds of the site's own on what jobs release")
        return
    policy = read_policy("of this kit", path)
    limits = policy.limits()
    text = ", ".join(f"{name} {value:g}" for name, value in limits.items()) or "no bound"
    lacking = [name for name in DEMANDED if name not in limits]
    scopes = _scopes(own) if own.exists() else []
    if limits and lacking and not (scopes and all(map(_is_private, scopes))):
        yield warning(POLICY_FILE, f"{text}; without {', '.join(lacking)}, it demands no differential privacy itself")
    else:
        yield ok(POLICY_FILE, text)


def _check_ledger(site: str, local: Path, *, in_containers: bool) -> Iterator[Finding]:
    try:
        path = ledger_file(site, local)
    except SettingsError as error:  # the folder that the policy names may be there in the containers alone
        yield (warning if in_containers else problem)(LEDGER, f"nothing can be released: {error}")
        return
    if path.parent != local / LEDGER_FOLDER:
        yield _check_modes_below(path.parent, f"files, {path.parent}")
    if os.path.lexists(path):
        yield ok(LEDGER, f"{counted(len(Ledger(path, site).read().releases), 'release')} in {path}")


def _check_modes(folder: Path) -> Iterator[Finding]:
    for key in filter(_is_open, (folder / "startup").glob("*.key")):
        yield problem("files", f"{key} can be read by others than its owner: chmod 600")
    for place in filter(os.path.lexists, (folder / FOLDER, folder / "local" / LEDGER_FOLDER)):
        yield _check_modes_below(place, f"files, {place.relative_to(folder)}")


def _check_modes_below(place: Path, check: str) -> Finding:
    opened = list(_open_below(place))
    if not opened:
        return ok(check, "readable by their owner only")
    text = f"{opened[0]} can be read by others than its owner, {len(opened)} in all: chmod -R go= {place}"
    return warning(check, text)


def _open_below(place: Path) -> Iterator[Path]:
    """Yield what others can read at ``place`` and below; what is in a folder that they cannot enter, they cannot."""
    if _is_open(place):
        yield place
        for path in sorted(place.iterdir()) if place.is_dir() else ():
            yield from _open_below(path)


def _is_open(path: Path) -> bool:
    return not path.is_symlink() and bool(path.stat().st_mode & OTHERS)


def _some(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} (and {len(names) - 1} more)"
