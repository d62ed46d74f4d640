# SPDX-License-Identifier: Apache-2.0
"""What a participant's startup kit lets a job, a person and another user of the machine do."""

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from fdg_plugins.data import DATASETS
from fdg_plugins.data.site_names import split_site
from fdg_plugins.data.stand_in import is_stand_in
from fdg_plugins.errors import SettingsError, counted, did_you_mean, shorten
from fdg_plugins.flare import kits
from fdg_plugins.flare.cautious_kits import AUTHORIZATION
from fdg_plugins.flare.components import SERVER, SITE
from fdg_plugins.lab.doctor.finding import Finding, findings_of, ok, problem, warning
from fdg_plugins.plugins.files import ALLOWED_PLUGINS
from fdg_plugins.plugins.methods import METHODS
from fdg_plugins.plugins.reports import OF_SETTINGS
from fdg_plugins.privacy.ledger import LEDGER_FOLDER, POLICY_FILE, Ledger, ledger_file, read_policy
from fdg_plugins.settings.site_config import FILE_NAME, SiteConfig, read_site_config
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
    kits.SHELL: "may run FLARE's shell commands here (cat, ls, tail, ...)",
    kits.OPERATE: "may operate this machine from the console (shut it down, restart it, ...), which is for admins",
}
OPERATORS = ("org_admin", "project_admin")  # whose task it is
SERIOUS: dict[Callable[[str], bool], str] = {  # of an entry that no job needs
    kits.opens_side_door: "lets a job send what the site's executor returns past its filters and audit to another site",
    kits.is_too_wide: "allows every callable that can be reached below it; exact class paths are enough",
}


def examine_kit(folder: Path) -> tuple[Finding, ...]:
    """Return what is found in the kit in ``folder``; raise ``DataError`` if there is none. Nothing is changed."""
    kit = kits.read_kit(folder)
    checks: dict[str, Callable[[kits.Kit], Iterator[Finding]]] = {
        kits.CLASS_ALLOW_LIST: _check_list,
        AUTHORIZATION: _check_rights,
        SIGNED: _check_signed,
        kits.RESOURCES: _check_streaming,
        FILE_NAME: _check_config,
    }
    if kit.end == SITE:
        checks |= {PRIVACY: _check_scopes, POLICY_FILE: _check_policy, LEDGER: _check_ledger}
    else:
        checks["job storage"] = _check_storage
    checks["files"] = _check_modes
    return ok("kit", f"{folder}, of a {kit.end}"), *findings_of(
        {name: partial(check, kit) for name, check in checks.items()}
    )


def _check_list(kit: kits.Kit) -> Iterator[Finding]:
    serious = problem if kit.end == SITE else warning
    entries, others = kit.entries, kit.others(kit.entries)
    count, remedy = counted(len(entries), "entry", "entries"), "fdg kit allow writes the least list"
    if kits.CLASS_ALLOW_LIST not in kit.resources:
        yield serious(kits.CLASS_ALLOW_LIST, f"is not there, so that FLARE's own list is in force, {count}; {remedy}")
    elif others:
        needless = f"{len(others)} of {len(entries)} entries are needed by no job of this package"
        yield warning(kits.CLASS_ALLOW_LIST, f"{needless}, such as {others[0]}; {remedy}")
        for is_serious, text in SERIOUS.items():
            if found := list(filter(is_serious, others)):
                yield serious(kits.CLASS_ALLOW_LIST, f"{_some(found)} {text}")
    else:
        yield ok(kits.CLASS_ALLOW_LIST, f"{count}, each a component that jobs need")
    mode, text = kit.resources.get(MODE, "enforce"), "a class that is not on the list is built all the same"
    yield ok(MODE, mode) if mode == "enforce" else problem(MODE, f"is {shorten(mode)}: {text}")


def _check_rights(kit: kits.Kit) -> Iterator[Finding]:
    own = kit.local / AUTHORIZATION
    policy = read_json(own if own.exists() else kit.local / f"{AUTHORIZATION}.default")
    for right, what in RIGHTS.items():
        entitled = OPERATORS if right == kits.OPERATE else ()
        roles = ", ".join(role for role in kits.roles_with(policy, right) if role not in entitled)
        check = f"{AUTHORIZATION}, {right}"
        yield warning(check, f"{roles}: {what}") if roles else ok(check, "nobody but admins" if entitled else "nobody")


def _check_signed(kit: kits.Kit) -> Iterator[Finding]:
    file = next(f"startup/{name}" for name, end in kits.ENDS.items() if end == kit.end)
    unsigned = read_json(kit.folder / file).get(SIGNED, True) is False  # true is FLARE's default for a provisioned kit
    text = f"is false in {file}: a job can be changed between the person and this machine"
    yield problem(SIGNED, text) if unsigned else ok(SIGNED, "true")


def _check_streaming(kit: kits.Kit) -> Iterator[Finding]:
    if kit.streams_logs:
        text = f"lets FLARE send the site's logs, which name its files, to the server: set {kits.STREAMING} to false"
        yield warning(kits.RESOURCES, text)


def _check_config(kit: kits.Kit) -> Iterator[Finding]:
    path, is_site = kit.local / FILE_NAME, kit.end == SITE
    if not os.path.lexists(path):
        if is_site:
            yield warning(FILE_NAME, "is not there: the environment of the site's process decides")
        return
    owner = kits.site_of_kit(kit.folder) if is_site else SERVER
    config = read_site_config(owner, path, {}, shared=False)
    allowed = config.allowed_plugins
    names = "any that is installed" if allowed is None else ", ".join(allowed) or "none"
    yield ok(FILE_NAME, f"settings of {owner}, {ALLOWED_PLUGINS}: {names}")
    if others := [shorten(name) for name in read_json(path) if name != owner]:
        text = f"what it says of {_some(others)} holds for nobody here, only what it says of {owner!r}"
        yield warning(FILE_NAME, text)
    leaving = (*OF_SETTINGS, *(one for method in METHODS.all() for one in method.leaves))
    known = {one.report for one in leaving if one.report is not None}
    for name in sorted({*(config.allowed_reports or ())} - known):
        yield warning(
            FILE_NAME, f"allowed_reports has {shorten(name)}, which is no report; {did_you_mean(name, known)}"
        )
    if is_site:
        judge, text = _judge_data(config, config.domain or split_site(owner)[0], in_containers=kit.in_containers)
        yield judge("data root", text)


def _judge_data(config: SiteConfig, domain: str, *, in_containers: bool) -> tuple[Callable[[str, str], Finding], str]:
    root, file = config.data_root, config.dataset_file
    if root is None:
        return warning, "none is named: the site draws a STAND-IN, unless its process's environment has FDG_DATA_ROOT"
    lacking = [path for path in (root, file) if path is not None and not os.path.lexists(path)]
    if in_containers and lacking:
        return warning, f"{lacking[0]} is not there: only jobs in containers that have it find their images"
    if not root.is_dir() or not os.access(root, os.R_OK | os.X_OK):
        return problem, f"{root} is not a folder that this user can read"
    if file is not None and not file.is_file():
        return problem, f"dataset_file {file} is not a file"
    folders = [spec.folder for spec in DATASETS.all() if spec.folder]
    if any(is_stand_in(root, folder) for folder in folders):
        return warning, f"{root} holds the STAND-IN, drawings"
    has_data = any((root / folder).is_dir() for folder in (domain, *folders))
    return (ok if has_data else problem), f"{root} holds {'' if has_data else 'no '}data for domain {domain!r}"


def _check_storage(kit: kits.Kit) -> Iterator[Finding]:
    place = Path((kit.component("job_manager").get("args") or {}).get("uri_root", ""))
    if Path("/tmp") in place.parents:
        text = "which a restart may empty, and other federations of this machine may share: job_manager, uri_root"
        yield warning("job storage", f"{place}, {text}")
    else:
        yield ok("job storage", str(place))


def _check_scopes(kit: kits.Kit) -> Iterator[Finding]:
    """Yield which scopes the site's privacy policy has; a job chooses its scope, so the weakest one counts."""
    if not (private := _private_scopes(kit)):
        yield ok(PRIVACY, "is not there: no filter of the site's own")
        return
    without = [name for name, is_private in private.items() if not is_private]
    if 0 < len(without) < len(private):
        text = f"has no differential privacy, and a job chooses its scope; {POLICY_FILE} holds for all"
        yield warning(PRIVACY, f"{_some(without)} {text}")
    else:
        kind = "without" if without else "all with"
        yield ok(PRIVACY, f"scopes {', '.join(private)}, {kind} differential privacy")


def _private_scopes(kit: kits.Kit) -> dict[str, bool]:
    """Return whether each scope of the site's privacy policy has differential privacy; empty without a policy."""
    path = kit.local / PRIVACY
    if not path.exists():
        return {}
    try:
        return {
            str(scope.get("name")): any(map(_is_private, scope.get("task_result_filters") or ()))
            for scope in read_json(path)["scopes"]
        }
    except (TypeError, KeyError, AttributeError):
        raise SettingsError(field=f"scopes of {path}", value=None, expected="a list of scopes with filters") from None


def _is_private(entry: Mapping[str, Any]) -> bool:
    return (
        entry.get("path", entry.get("class_path")) in DP_PATHS
        and entry.get("disabled") is not True
        and str(entry.get("direction") or "out").lower() != "in"
    )


def _check_policy(kit: kits.Kit) -> Iterator[Finding]:
    path = kit.local / POLICY_FILE
    if not os.path.lexists(path):
        yield ok(POLICY_FILE, "is not there: no bounds of the site's own on what jobs release")
        return
    limits = read_policy("of this kit", path).limits()
    text = ", ".join(f"{name} {value:g}" for name, value in limits.items()) or "no bound"
    lacking, private = [name for name in DEMANDED if name not in limits], _private_scopes(kit)
    if limits and lacking and not (private and all(private.values())):
        yield warning(POLICY_FILE, f"{text}; without {', '.join(lacking)}, it demands no differential privacy itself")
    else:
        yield ok(POLICY_FILE, text)


def _check_ledger(kit: kits.Kit) -> Iterator[Finding]:
    site = kits.site_of_kit(kit.folder)
    try:
        path = ledger_file(site, kit.local)
    except SettingsError as error:  # the folder that the policy names may be there in the containers alone
        yield (warning if kit.in_containers else problem)(LEDGER, f"nothing can be released: {error}")
        return
    if path.parent != kit.local / LEDGER_FOLDER:
        yield _check_modes_below(path.parent, f"files, {path.parent}")
    if os.path.lexists(path):
        yield ok(LEDGER, f"{counted(len(Ledger(path, site).read().releases), 'release')} in {path}")


def _check_modes(kit: kits.Kit) -> Iterator[Finding]:
    for key in filter(_is_open, (kit.folder / "startup").glob("*.key")):
        yield problem("files", f"{key} can be read by others than its owner: chmod 600")
    for place in filter(os.path.lexists, (kit.folder / FOLDER, kit.local / LEDGER_FOLDER)):
        yield _check_modes_below(place, f"files, {place.relative_to(kit.folder)}")


def _check_modes_below(place: Path, check: str) -> Finding:
    if not (opened := list(_open_below(place))):
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
