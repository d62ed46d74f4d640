# SPDX-License-Identifier: Apache-2.0
"""``fdg kit``: what an operator does with a participant's startup kit."""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from fdg_plugins.cli.console import FAILED, group, make_table, say, show, warn
from fdg_plugins.cli.doctor import show_findings
from fdg_plugins.cli.options import PluginFiles, load_plugins, read_values
from fdg_plugins.cli.privacy import privacy
from fdg_plugins.data import DATASETS
from fdg_plugins.errors import DataError, SettingsError, did_you_mean, visible
from fdg_plugins.flare.cautious_kits import AUTHORIZATION
from fdg_plugins.flare.cautious_kits import harden as harden_kit
from fdg_plugins.flare.components import SITE
from fdg_plugins.flare.gpus import checked_gpus, lend_gpus
from fdg_plugins.flare.kits import CLASS_ALLOW_LIST, LOG_STREAMER, STREAMING, is_too_wide, read_kit, site_of_kit
from fdg_plugins.lab.doctor.kit import examine_kit
from fdg_plugins.settings.site_config import FILE_NAME, PATHS, update_site_config
from fdg_plugins.state.folders import Leftover, leftovers, remove_state
from fdg_plugins.storage import read_json, write_json

kit = group("kit", "Set up and check a participant's startup kit.")
KitArgument = Annotated[
    Path,
    Argument(metavar="KIT", help="The startup kit of a server or site: the folder that holds local/ and startup/."),
]
LISTS = ("allowed_plugins", "allowed_reports")
kit.command("privacy")(privacy)


@kit.command("allow")
def allow(
    folder: KitArgument,
    method: Annotated[list[str] | None, Option(help="Allow only what it needs. May be repeated.")] = None,
    plugin: PluginFiles = None,
) -> None:
    """Allow this package's components at one server or site, by their exact class paths, and no others.

    Writes class_allow_list of local/resources.json, which FLARE reads at the start of every job: no restart is needed.
    Entries that the operator has added stay. FLARE's own defaults go, because some of them let a job send results past
    the site's filters.

    Examples:

      fdg kit allow /srv/flare/photo
      fdg kit allow /srv/flare/photo --method fedomg --method fedga
    """
    load_plugins(plugin)
    found = read_kit(folder)
    present, entries = found.entries, found.least_list(method or ())
    for entry in filter(is_too_wide, entries):
        warn(f"entry {entry!r} of class_allow_list allows every callable below it; exact class paths are enough.")
    if found.streams_logs:
        warn(
            f"FLARE sends this site's logs, which name its files, to the server; the list allows {LOG_STREAMER}, which "
            f"FLARE adds to every job for that, until {STREAMING} is false in {found.target.name}."
        )
    added, removed = [one for one in entries if one not in present], {*present} - {*entries}
    if is_new := found.resources.get(CLASS_ALLOW_LIST) != entries:
        found.write_list(entries)
    counts = f"added {len(added)}, removed {len(removed)}"
    say(f"{found.end} kit {folder}: {counts}; {len(entries)} entries in all")
    for entry in added:
        say(f"  + {entry}")
    for entry in found.others(entries):
        say(f"  kept {entry}, which is neither this package's nor FLARE's: added here")
    say(f"{found.target}: {'written' if is_new else 'left as it was'}")


@kit.command("site")
def site(
    folder: KitArgument,
    domain: Annotated[str | None, Option(help="Domain that the site holds; default: its name.")] = None,
    data_root: Annotated[str | None, Option(metavar="PATH", help="Folder that holds its data sets.")] = None,
    settings: Annotated[
        list[str] | None,
        Option("--set", metavar="NAME=VALUE", help="Another setting of the site. May be repeated."),
    ] = None,
) -> None:
    """Write a site's own config, local/fdg_site.json of its kit; other entries that it has are kept.

    No job can change this file, and it does not leave the site. The site reads it at the start of every task: no
    restart is needed. docs/security.md has all settings. Paths of a site in containers are those inside them.

    --set gpus=N and gpu_memory=GIB are written into local/resources.json instead, for FLARE's resource manager, which
    lends so many GPUs to jobs, with so much memory of each, from the site's next start.

    Examples:

      fdg kit site /srv/flare/site-1 --domain photo --data-root /data
      fdg kit site /srv/flare/site-1 --set device=cuda:0 --set part=3/10
    """
    found = read_kit(folder)
    if found.end != SITE:
        raise SettingsError(f"kit {folder} is a server's, expected that of a site.")
    given = read_values(settings, lists=LISTS)
    gpus, memory = given.pop("gpus", None), given.pop("gpu_memory", None)
    lent = None if gpus is None and memory is None else checked_gpus(gpus, memory)
    given |= {name: text for name, text in (("domain", domain), ("data_root", data_root)) if text is not None}
    given |= {name: _place(name, str(given[name]), found.in_containers) for name in PATHS if name in given}
    name, file = site_of_kit(folder), found.local / FILE_NAME
    if domain is not None:
        stored = read_json(file).get(name, {}) if file.exists() else {}
        _check_domain(domain, {**stored, **given})
    entry = update_site_config(file, name, given)
    say(visible(f"{file}: site {name}"))
    for key, value in entry.items():
        say(visible(f"  {key}: {value}"))
    if lent is not None:
        write_json(found.target, lend_gpus(found.resources, lent))
        say(visible(f"{found.target}: lends {lent} to jobs from the site's next start"))


def _check_domain(domain: str, entry: Mapping[str, Any]) -> None:
    root = Path(entry.get("data_root") or "/dev/null")
    there = [spec for spec in DATASETS.all() if spec.needs_data_root and (root / spec.folder).is_dir()]
    known = [name for spec in there for name in spec.domains]
    if known and domain not in known and "dataset_file" not in entry and not (root / domain).is_dir():
        raise SettingsError(f"--domain is {domain!r}, which no data set in {root} has; {did_you_mean(domain, known)}")


def _place(name: str, text: str, in_containers: bool) -> str:
    """Return a path as the site's config has it; one of a site in containers is taken as it is, with a warning."""
    path = Path(text)
    if path.is_dir() if name == "data_root" else path.is_file():
        return text if in_containers else str(path.resolve())
    if path.exists() or not (in_containers and path.is_absolute()):
        kind = "folder" if name == "data_root" else "file"
        raise DataError(field=name, value=text, expected=f"a {kind}, of a site in containers its absolute path there")
    warn(f"{name} {visible(text)} is not there, expected in the containers of the site.")
    return text


@kit.command("harden")
def harden(folder: KitArgument) -> None:
    """Give a server's or a site's kit the policies of a cautious operator, where it has none yet.

    Writes class_allow_list, turns off the streaming of a site's logs, lets no lead bring code, run shell commands or
    operate the machine, and has a server restart a running job at a site that comes back. In a local/resources.json
    that is there, as after fdg kit allow, only the list changes: it is added, or loses FLARE's defaults. Kits of fdg
    poc start and deploy/project.yml have this; nvflare deploy prepare drops it for Docker or Kubernetes.

    Examples:

      fdg kit harden /srv/flare/photo-docker
    """
    found = read_kit(folder)
    files = (found.target, found.local / AUTHORIZATION)
    before = [file.read_bytes() if file.exists() else None for file in files]
    harden_kit(folder)
    for file, content in zip(files, before, strict=True):
        say(f"{file}: {'left as it was' if file.read_bytes() == content else 'written'}")
    say(f"what it permits: fdg kit check {folder}")


@kit.command("check")
def check(folder: KitArgument) -> int:
    """Check a kit: which classes a job may build, who may bring code, what leaves with its logs, its privacy policy.

    Also its data root, and which of its files other users of the machine can read. Nothing is changed. Exit codes: 0 no
    problem, 1 at least one.
    """
    return show_findings(examine_kit(folder))


@kit.command("clean")
def clean(
    folder: Annotated[
        Path,
        Argument(metavar="KIT", help="A participant's startup kit, or the workspace of FLARE's simulator."),
    ],
    run: Annotated[str | None, Option(help="Only this run, by the id of the job that started it.")] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Say what would be removed, and remove nothing.")] = False,
) -> int:
    """Remove the state of runs: below fdg_state/, one folder for each run.

    A finished run removes its state at the server; a site removes what no task has used for a month. Interrupted runs
    can be resumed (fdg resume); after this command they cannot. What has changed within a day is kept.

    Exit codes: 0 done, 1 something could not be removed, 2 there is no such kit or run.

    Examples:

      fdg kit clean /srv/flare/photo --dry-run
      fdg kit clean /srv/flare/server --run 3379af42-b0b1-4066-889e-7cf89997f720
    """
    found = leftovers(folder, run=run)
    if run is not None and not found:
        raise DataError(f"run {run} has left nothing in {folder}.")
    rows = [_removed(one, dry_run) for one in found]
    if rows:
        show(make_table(("run", "bytes", "last change", ""), rows, ("bytes",)))
    else:
        say(visible(f"{folder}: no run has left anything"))
    return FAILED if any(outcome.startswith("not removed") for *_, outcome in rows) else 0


def _removed(leftover: Leftover, dry_run: bool) -> tuple[str, str, str, str]:
    outcome = "would be removed" if dry_run else "removed"
    if leftover.kept_because is not None:
        outcome = f"kept: {leftover.kept_because}"
    elif not dry_run:
        try:
            remove_state(leftover.path)
        except OSError as error:
            outcome = f"not removed: {error.strerror}"
    changed = datetime.fromtimestamp(leftover.changed).astimezone().isoformat(sep=" ", timespec="minutes")
    return str(leftover.path), f"{leftover.num_bytes:,}", changed, outcome
