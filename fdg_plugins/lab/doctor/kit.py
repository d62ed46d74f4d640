# SPDX-License-Identifier: Apache-2.0
"""What a participant's startup kit lets a job, a person and another user of the machine do."""

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from nvflare.apis.fl_constant import FilterKey

from fdg_plugins.errors import SettingsError
from fdg_plugins.flare.allow_list import (
    ALLOW_ALL,
    CLASS_ALLOW_LIST,
    STREAMING,
    entries_in_force,
    is_too_wide,
    opens_side_door,
    other_entries,
)
from fdg_plugins.flare.components import SERVER, SITE
from fdg_plugins.flare.kits import ENDS, Kit, read_kit, runs_in_containers, site_of_kit
from fdg_plugins.flare.rights import OPERATE, SHELL, roles_with
from fdg_plugins.lab.doctor.finding import Finding, guarded, ok, problem, warning
from fdg_plugins.lab.doctor.kit_machine import GPUS, STORAGE, check_data_root, check_lent_gpus, check_storage
from fdg_plugins.naming import nearest
from fdg_plugins.plugins.admission import ALLOWED_PLUGINS
from fdg_plugins.privacy.ledger import (
    DEFAULT_DELTA,
    LEDGER_FILE,
    LEDGER_FOLDER,
    POLICY_FILE,
    Ledger,
    ledger_file,
    read_limits,
    read_policy,
)
from fdg_plugins.settings.site_config import FILE_NAME, read_allowed_plugins, read_site_config
from fdg_plugins.state.folders import FOLDER
from fdg_plugins.storage import read_json
from fdg_plugins.values import counted, shorten

MODE = "class_list_enforcement_mode"
ENFORCE = "enforce"
NOT_ENFORCED = f"a class that is not on the list is built all the same, expected {ENFORCE!r}"
STREAMED = "is not false: FLARE sends the site's logs, which name its files, to the server"
AUTHORIZATION = "authorization.json"
SIGNED = "require_signed_jobs"
PRIVACY = "privacy.json"
LEDGER = f"ledger of {POLICY_FILE}"
RELEASES = "privacy ledger"
DEMANDED = ("clip_norm", "noise_multiplier", "max_epsilon")  # what a policy must have to hold for every job
DP_FILTER = "DifferentialPrivacyFilter"
DP_PATHS = (f"fdg_plugins.filters.{DP_FILTER}", f"fdg_plugins.filters.privacy.{DP_FILTER}")
DIRECTIONS = (FilterKey.IN, FilterKey.OUT, FilterKey.INOUT)
MISSPELT = 0.8  # how much a path resembles one of ours if ours is meant
REMEDY = "fdg kit allow --kit writes the least list"
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
    local, mode = folder / "local", kit.resources.get(MODE, ENFORCE)
    findings = [
        ok("kit", f"{folder}, of a {kit.end}"),
        *guarded(CLASS_ALLOW_LIST, lambda: check_list(kit)),
        ok(MODE, ENFORCE) if mode == ENFORCE else problem(MODE, f"is {shorten(mode)}: {NOT_ENFORCED}"),
        *guarded(AUTHORIZATION, lambda: check_rights(local)),
        *guarded(SIGNED, lambda: check_signed(folder / "startup", kit.end)),
    ]
    if kit.end == SITE:
        findings += [
            ok(STREAMING, "false") if kit.resources.get(STREAMING) is False else warning(STREAMING, STREAMED),
            *guarded(FILE_NAME, lambda: check_site_config(kit, site_of_kit(folder))),
            *guarded(GPUS, lambda: check_lent_gpus(kit.resources, f"kit {folder}")),
            *guarded(PRIVACY, lambda: check_scopes(local / PRIVACY)),
            *guarded(POLICY_FILE, lambda: check_policy(local / POLICY_FILE)),
            *guarded(RELEASES, lambda: check_ledger(site_of_kit(folder), local)),
        ]
    else:
        findings += guarded(STORAGE, lambda: check_storage(kit.resources))
        findings += guarded(FILE_NAME, lambda: check_server_config(local / FILE_NAME))
    return (*findings, *guarded("files", lambda: check_modes(folder)))


def check_list(kit: Kit) -> Iterator[Finding]:
    """Yield what the kit's list allows beside the components that jobs of this package need."""
    serious = problem if kit.end == SITE else warning
    entries = entries_in_force(kit.resources, kit.target)
    others = other_entries(entries, kit.end, kit.resources)
    if CLASS_ALLOW_LIST not in kit.resources:
        text = (
            f"is not there, so that FLARE's own list is in force, {counted(len(entries), 'entry', 'entries')}; {REMEDY}"
        )
        yield serious(CLASS_ALLOW_LIST, text)
    elif others:
        needless = f"{len(others)} of {len(entries)} entries are needed by no job of this package"
        yield warning(CLASS_ALLOW_LIST, f"{needless}, such as {others[0]}; {REMEDY}")
        yield from _check_others(others, serious)
    else:
        yield ok(CLASS_ALLOW_LIST, f"{counted(len(entries), 'entry', 'entries')}, each a component that jobs need")


def _check_others(others: list[str], serious: Callable[[str, str], Finding]) -> Iterator[Finding]:
    """Yield a ``serious`` finding each for entries that lead past the site's filters, and for those that are wide."""
    if doors := list(filter(opens_side_door, others)):
        text = "lets a job send what the site's executor returns to another site, past the site's filters and audit"
        yield serious(CLASS_ALLOW_LIST, f"{_some(doors)} {text}")
    if wide := list(filter(is_too_wide, others)):
        below = "everything" if ALLOW_ALL in wide else "every callable that can be reached below it"
        yield serious(CLASS_ALLOW_LIST, f"{_some(wide)} allows {below}; exact class paths are enough")


def check_rights(local: Path) -> Iterator[Finding]:
    """Yield who may bring code, which no list of classes holds up, run shell commands, or operate though no admin."""
    policy = _read_rights(local)
    for right, what in RIGHTS.items():
        entitled = OPERATORS if right == OPERATE else ()
        roles = ", ".join(role for role in roles_with(policy, right) if role not in entitled)
        check = f"{AUTHORIZATION}, {right}"
        yield warning(check, f"{roles}: {what}") if roles else ok(check, "nobody but admins" if entitled else "nobody")


def _read_rights(local: Path) -> Any:
    """Return the authorization policy, FLARE's default if the kit has none of its own."""
    policy = local / AUTHORIZATION
    return read_json(policy if policy.exists() else local / f"{AUTHORIZATION}.default")


def check_signed(startup: Path, end: str) -> Iterator[Finding]:
    """Yield whether the participant runs jobs that carry no signature of the person who submitted them."""
    (file,) = (name for name, of in ENDS.items() if of == end)
    content = read_json(startup / file)
    value = content.get(SIGNED, True) if isinstance(content, dict) else None  # FLARE's default for a provisioned kit
    if value is True:
        yield ok(SIGNED, "true")
    elif value is False:
        yield problem(SIGNED, f"is false in startup/{file}: a job can be changed between the person and this machine")
    else:
        yield warning(SIGNED, f"is {shorten(value)} in startup/{file}, expected true, as which FLARE reads it")


def check_site_config(kit: Kit, site: str) -> Iterator[Finding]:
    """Yield whether the config of the kit's ``site`` can be read; a job ends here if the file has none of it."""
    path = kit.target.with_name(FILE_NAME)
    if not os.path.lexists(path):
        yield warning(FILE_NAME, "is not there: the environment of the site's process decides")
        return
    config = read_site_config(site, path, {}, shared=False)
    yield ok(FILE_NAME, f"settings of {site}")
    yield from _check_other_entries(path, site)
    yield check_data_root(site, config, in_containers=runs_in_containers(kit.resources))


def check_server_config(path: Path) -> Iterator[Finding]:
    """Yield which plug-ins the server's operator allows, if there is such a file."""
    if os.path.lexists(path):
        allowed = read_allowed_plugins(SERVER, path, shared=False)
        names = "any that is installed" if allowed is None else ", ".join(allowed) or "none"
        yield ok(FILE_NAME, f"{ALLOWED_PLUGINS}: {names}")
        yield from _check_other_entries(path, SERVER)


def _check_other_entries(path: Path, owner: str) -> Iterator[Finding]:
    """Yield a warning of the entries of others in a config: what was meant for ``owner`` may be there."""
    if others := [shorten(name) for name in read_json(path) if name != owner]:
        yield warning(
            FILE_NAME, f"what it says of {_some(others)} holds for nobody here, only what it says of {owner!r}"
        )


def check_scopes(path: Path) -> Iterator[Finding]:
    """Yield which scopes the site's privacy policy has; a job chooses its scope, so the weakest one counts."""
    if not path.exists():
        yield ok(PRIVACY, "is not there: no filter of the site's own")
        return
    scopes, default = _read_scopes(path)
    names = [str(scope.get("name")) for scope in scopes]
    if faults := list(_faults(scopes)):
        yield from (problem(PRIVACY, f"{fault}; FLARE refuses the whole file") for fault in faults)
    elif default in names:
        yield _check_privacy(names, scopes)
    else:
        yield problem(PRIVACY, f"default_scope is none of its scopes: {', '.join(names) or 'none'}")


def _check_privacy(names: list[str], scopes: list[dict[str, Any]]) -> Finding:
    """Return whether the scopes differ in having differential privacy."""
    without = [name for name, scope in zip(names, scopes, strict=True) if not _is_private(scope)]
    if 0 < len(without) < len(names):
        text = "has no differential privacy, and a job chooses its scope"
        return warning(PRIVACY, f"{_some(without)} {text}; {POLICY_FILE} holds for all")
    kind = "without" if without else "all with"
    return ok(PRIVACY, f"scopes {', '.join(names)}, {kind} differential privacy")


def _read_scopes(path: Path) -> tuple[list[dict[str, Any]], Any]:
    """Return the scopes in the file, and the name of the one that a job without a word of it has."""
    content = read_json(path)
    scopes = content.get("scopes") if isinstance(content, dict) else None
    if not isinstance(scopes, list) or not all(isinstance(scope, dict) for scope in scopes):
        raise SettingsError(f"file {path} has no list of scopes.")
    return scopes, content.get("default_scope")


def _has_private_scopes(path: Path) -> bool:
    """Return whether every scope of the site's privacy policy has differential privacy, and FLARE takes the policy."""
    scopes = _read_scopes(path)[0] if path.exists() else []
    return bool(scopes) and all(map(_is_private, scopes)) and not any(_faults(scopes))


def _is_private(scope: Mapping[str, Any]) -> bool:
    return any(map(_adds_noise, _result_filters(scope)))


def _result_filters(scope: Mapping[str, Any]) -> list[Any]:
    filters = scope.get("task_result_filters")
    return filters if isinstance(filters, list) else []  # as FLARE reads it


def _adds_noise(entry: Any) -> bool:
    """Return whether a filter is ours of differential privacy, on what leaves the site."""
    if not isinstance(entry, dict) or entry.get("disabled") is True or _path_of(entry) not in DP_PATHS:
        return False
    return _direction_of(entry) in (FilterKey.OUT, FilterKey.INOUT)


def _path_of(entry: Mapping[str, Any]) -> Any:
    return entry.get("path", entry.get("class_path"))


def _direction_of(entry: Mapping[str, Any]) -> str:
    return str(entry.get("direction") or FilterKey.OUT).lower()


def _faults(scopes: list[dict[str, Any]]) -> Iterator[str]:
    """Yield why FLARE refuses scopes: for their names, or for a filter of differential privacy that is not one."""
    names = [scope.get("name") for scope in scopes]
    if len({name for name in names if isinstance(name, str)}) < len(names):
        yield f"names of its scopes are {shorten(names)}, expected texts, each another"
    for scope in scopes:
        for entry in _result_filters(scope):
            if fault := _fault(entry):
                yield f"scope {shorten(scope.get('name'))}: {fault}"


def _fault(entry: Any) -> str:
    """Return why FLARE does not build the filter of an entry that means ours; empty if nothing is known against it."""
    if not isinstance(entry, dict):
        return f"a filter is {shorten(entry)}, expected an object"
    path, args = _path_of(entry), entry.get("args", {})
    if entry.get("disabled") is True or not nearest(path, DP_PATHS, cutoff=MISSPELT):
        return ""
    if path not in DP_PATHS:
        return f"path is {shorten(path)}, expected {DP_PATHS[0]}"
    if not isinstance(args, dict):
        return f"args of {DP_FILTER} are {shorten(args)}, expected an object"
    if _direction_of(entry) not in DIRECTIONS:
        return f"direction of {DP_FILTER} is {shorten(entry['direction'])}, expected one of {', '.join(DIRECTIONS)}"
    try:
        read_limits({"delta": DEFAULT_DELTA, **args})
    except SettingsError as error:
        return str(error).rstrip(".")
    return ""


def check_policy(path: Path) -> Iterator[Finding]:
    """Yield the bounds of the site's privacy policy."""
    if not os.path.lexists(path):
        yield ok(POLICY_FILE, "is not there: no bounds of the site's own on what jobs release")
        return
    policy = read_policy("of this kit", path)
    limits = policy.limits()
    text = ", ".join(f"{name} {value:g}" for name, value in limits.items()) or "no bound"
    lacking = [name for name in DEMANDED if name not in limits]
    if limits and lacking and not _has_private_scopes(path.with_name(PRIVACY)):
        yield warning(POLICY_FILE, f"{text}; without {', '.join(lacking)}, it demands no differential privacy itself")
    else:
        yield ok(POLICY_FILE, text)
    if policy.ledger is not None:
        yield from _check_named_ledger(Path(policy.ledger), path.parent / LEDGER_FOLDER / LEDGER_FILE)


def _check_named_ledger(folder: Path, own: Path) -> Iterator[Finding]:
    """Yield whether releases can be entered into the folder that the policy names, beside that in the kit."""
    if not folder.is_absolute():
        yield problem(LEDGER, f"{folder} is not an absolute path: nothing can be released")
    elif os.path.lexists(own) and not (folder.is_dir() and folder.samefile(own.parent)):
        yield problem(LEDGER, f"{own} is not in {folder}, which {POLICY_FILE} names: nothing can be released")
    elif not folder.is_dir():
        yield warning(LEDGER, f"{folder} is not a folder here: only jobs in containers with it can release anything")
    else:
        yield _check_modes_below(folder, LEDGER)


def check_ledger(site: str, local: Path) -> Iterator[Finding]:
    """Yield what the ledger holds, if there is one; a site whose ledger cannot be used releases nothing."""
    try:
        path = ledger_file(site, local)
    except SettingsError:
        return  # the check of the policy says it
    if os.path.lexists(path):
        yield ok(RELEASES, f"{counted(len(Ledger(path, site).read().releases), 'release')} in {path}")


def check_modes(folder: Path) -> Iterator[Finding]:
    """Yield files with keys, or derived from the site's data, that other users of the machine can read."""
    for key in filter(_is_open, (folder / "startup").glob("*.key")):
        yield problem("files", f"{key} can be read by others than its owner: chmod 600")
    ledger = folder / "local" / LEDGER_FOLDER
    for place in filter(os.path.lexists, (folder / FOLDER, ledger)):
        yield _check_modes_below(place, f"files, {place.relative_to(folder)}")
    if ledger.is_dir() and not (ledger / LEDGER_FILE).is_file():
        yield warning(f"files, {ledger.relative_to(folder)}", f"{LEDGER_FILE} is not there")


def _check_modes_below(place: Path, check: str) -> Finding:
    opened = list(_open_below(place))
    if not opened:
        return ok(check, "readable by their owner only")
    return warning(
        check, f"{opened[0]} can be read by others than its owner, {len(opened)} in all: chmod -R go= {place}"
    )


def _open_below(place: Path) -> Iterator[Path]:
    """Yield what others can read at ``place`` and below; what is in a folder that they cannot enter, they cannot."""
    if _is_open(place):
        yield place
        for path in sorted(place.iterdir()) if place.is_dir() else ():
            yield from _open_below(path)


def _is_open(path: Path) -> bool:
    return not path.is_symlink() and bool(path.stat().st_mode & OTHERS)


def _some(names: list[str]) -> str:
    """Return the first of ``names``, and how many more there are."""
    return names[0] if len(names) == 1 else f"{names[0]} (and {len(names) - 1} more)"
