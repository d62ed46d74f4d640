# SPDX-License-Identifier: Apache-2.0
"""``fdg kit``: what an operator does with a participant's startup kit."""

import tempfile
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fdg_plugins.cli.console import FAILED, OneLineErrors, say, warn
from fdg_plugins.cli.doctor import show_findings
from fdg_plugins.cli.options import PluginFiles, load_plugins, read_values
from fdg_plugins.cli.tables import make_table, show
from fdg_plugins.errors import DataError, SettingsError, did_you_mean, visible

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fdg_plugins.flare.kits import Kit, Merge
    from fdg_plugins.state.leftovers import Leftover

kit_app = typer.Typer(
    name="kit",
    cls=OneLineErrors,
    help="Set up and check a participant's startup kit.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
KitArgument = Annotated[
    Path,
    typer.Argument(
        help="The startup kit of a server or site: the folder that holds local/ and startup/.", show_default=False
    ),
]
LISTS = ("allowed_plugins", "allowed_reports")


@kit_app.command("allow")
def allow(
    kit: KitArgument,
    method: Annotated[
        list[str] | None,
        typer.Option(help="Allow only what this method needs, as fdg explain lists them; may be repeated."),
    ] = None,
    plugin: PluginFiles = None,
) -> None:
    """Allow this package's components at one server or site, by their exact class paths, and no others.

    Writes class_allow_list of local/resources.json, which FLARE reads at the start of every job: no restart is needed.
    The list is minimal: the components that the jobs of this package name, and those the operator has added. FLARE's
    own defaults are removed, because some of them let a job send results past the site's filters.

    Examples:

      fdg kit allow /srv/flare/photo

      fdg kit allow /srv/flare/photo --method fedomg --method fedga
    """
    from fdg_plugins.flare.kits import merge_allow_list, read_kit

    load_plugins(plugin)
    merge = merge_allow_list(read_kit(kit), method or ())
    _warn_of_list(merge)
    if merge.changes:
        merge.write()
    counts = f"added {len(merge.added)}, removed {len(merge.removed)}"
    say(f"{merge.kit.end} kit {kit}: {counts}; {len(merge.entries)} entries in all")
    for entry in merge.added:
        say(f"  + {entry}")
    for entry in merge.others:
        say(f"  kept {entry}, which is neither this package's nor FLARE's: added here")
    say(f"{merge.kit.target}: {'written' if merge.changes else 'left as it was'}")


def _warn_of_list(merge: "Merge") -> None:
    """Warn of what the list permits in addition to the components of this package."""
    from fdg_plugins.flare.allow_list import LOG_STREAMER, STREAMING

    for entry in merge.too_wide:
        warn(f"entry {entry!r} of class_allow_list allows every callable below it; exact class paths are enough.")
    if merge.streams:
        warn(
            f"FLARE sends this site's logs, which name its files, to the server; the list allows {LOG_STREAMER}, which "
            f"FLARE adds to every job for that, until {STREAMING} is false in {merge.kit.target.name}."
        )


@kit_app.command("site")
def site(
    kit: KitArgument,
    domain: Annotated[
        str | None, typer.Option(help="Domain that the site holds; default: the site's name.", show_default=False)
    ] = None,
    data_root: Annotated[
        str | None, typer.Option(metavar="PATH", help="Folder that holds the site's data sets.", show_default=False)
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="Another setting of the site. May be repeated.", show_default=False
        ),
    ] = None,
) -> None:
    """Write a site's own config, local/fdg_site.json of its kit; other entries that it has are kept.

    No job can change this file, and it does not leave the site. The site reads it at the start of every task: no
    restart is needed. docs/security.md has all settings. For a site in containers, the paths are those that its
    containers have (docs/containers.md).

    --set gpus=N and gpu_memory=GIB are written into local/resources.json instead, for FLARE's resource manager, which
    lends so many GPUs to jobs, with so much memory of each, from the site's next start (docs/gpus.md).

    Examples:

      fdg kit site /srv/flare/site-1 --domain photo --data-root /data

      fdg kit site /srv/flare/site-1 --set device=cuda:0 --set part=3/10

      fdg kit site /srv/flare/site-1 --set gpus=1 --set gpu_memory=16
    """
    from fdg_plugins.flare.components import SITE
    from fdg_plugins.flare.gpus import checked_gpus, lend_gpus
    from fdg_plugins.flare.kits import read_kit, site_of_kit
    from fdg_plugins.settings.site_config import FILE_NAME, update_site_config
    from fdg_plugins.storage import read_json, write_json

    found = read_kit(kit)
    if found.end != SITE:
        raise SettingsError(f"kit {kit} is a server's, expected that of a site.")
    given = read_values(settings or [], lists=LISTS)
    gpus, memory = given.pop("gpus", None), given.pop("gpu_memory", None)
    if memory is not None and gpus is None:
        raise SettingsError("gpu_memory needs gpus, expected the number of GPUs with it.")
    lent = None if gpus is None else checked_gpus(gpus, memory)
    given |= {name: text for name, text in (("domain", domain), ("data_root", data_root)) if text is not None}
    given |= {name: _place(name, str(given[name]), found) for name in ("data_root", "dataset_file") if name in given}
    name, file = site_of_kit(kit), kit / "local" / FILE_NAME
    stored = read_json(file).get(name, {}) if file.exists() else {}
    if domain is not None:
        _check_domain(domain, {**stored, **given})
    entry = update_site_config(file, name, given)
    say(visible(f"{file}: site {name}"))
    for key, value in entry.items():
        say(visible(f"  {key}: {value}"))
    if lent is not None:
        write_json(found.target, lend_gpus(found.resources, lent))
        say(visible(f"{found.target}: lends {lent} to jobs from the site's next start"))


def _check_domain(domain: str, entry: "Mapping[str, Any]") -> None:
    """Raise ``SettingsError`` for a domain that none of the data sets below the data root has, as one misspelt."""
    from fdg_plugins.data import DATASETS

    root = Path(entry.get("data_root") or "/dev/null")
    if not root.is_dir() or "dataset_file" in entry or (root / domain).is_dir():
        return
    there = [spec for spec in DATASETS.all() if spec.needs_data_root and (root / spec.folder).is_dir()]
    known = [name for spec in there for name in spec.domains]
    if known and domain not in known:
        raise SettingsError(f"--domain is {domain!r}, which no data set in {root} has; {did_you_mean(domain, known)}")


def _place(name: str, text: str, kit: "Kit") -> str:
    """Return a path as the site's config has it; one of a site in containers is taken as it is, with a warning."""
    from fdg_plugins.flare.kits import runs_in_containers

    path = Path(text)
    if path.is_dir() if name == "data_root" else path.is_file():
        return text if runs_in_containers(kit.resources) else str(path.resolve())
    if path.exists() or not (runs_in_containers(kit.resources) and path.is_absolute()):
        kind = "folder" if name == "data_root" else "file"
        raise DataError(field=name, value=text, expected=f"a {kind}, of a site in containers its absolute path there")
    warn(f"{name} {visible(text)} is not there, expected in the containers of the site.")
    return text


@kit_app.command("harden")
def harden(kit: KitArgument) -> None:
    """Give a server's or a site's kit the policies of a cautious operator, where it has none of its own yet.

    Writes class_allow_list with the components that jobs of this package need, turns off the streaming of a site's
    logs, lets no lead bring code, run shell commands or operate the machine, and has a server restart a running job at
    a site that comes back. It is what fdg poc start and the builder in deploy/project.yml do, for a kit that was made
    otherwise; and for one that nvflare deploy prepare has copied for Docker or Kubernetes, which drops
    local/resources.json and with it all of this.

    Other entries of local/resources.json and local/authorization.json are kept, except a longer list of components.

    Examples:

      nvflare deploy prepare /srv/flare/photo --output /srv/flare/photo-docker --config docker/site.yml

      fdg kit harden /srv/flare/photo-docker
    """
    from fdg_plugins.flare.cautious_kits import AUTHORIZATION
    from fdg_plugins.flare.cautious_kits import harden as harden_kit
    from fdg_plugins.flare.kits import read_kit

    target = read_kit(kit).target
    files = (target, target.with_name(AUTHORIZATION))
    before = [file.read_bytes() if file.exists() else None for file in files]
    harden_kit(kit)
    for file, content in zip(files, before, strict=True):
        say(f"{file}: {'left as it was' if file.read_bytes() == content else 'written'}")
    say(f"what it permits: fdg kit check {kit}")


@kit_app.command("check")
def check(kit: KitArgument) -> None:
    """Check a kit: which classes a job may build, who may bring code, what leaves with its logs, its privacy policy.

    Also its data root, and which of its files other users of the machine can read.
    Nothing is changed. Exit codes: 0 no problem, 1 at least one.

    Examples:

      fdg kit check /srv/flare/photo
    """
    from fdg_plugins.lab.doctor.kit import examine_kit

    show_findings(examine_kit(kit))


@kit_app.command("clean")
def clean(
    kit: Annotated[
        Path,
        typer.Argument(help="A participant's startup kit, or the workspace of FLARE's simulator.", show_default=False),
    ],
    run: Annotated[
        str | None,
        typer.Option(help="Only this run, unless it has changed within an hour: the id of the job that started it."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be removed, and remove nothing.")] = False,
) -> None:
    """Remove the state of runs: below fdg_state/, one folder for each run.

    A finished run removes its state at the server; a site removes what no task has used for a month. Interrupted runs
    can be resumed (fdg resume); after this command they cannot. What has changed within a day is kept. Links are not
    followed, and nothing else is touched; folders of received tensors that a killed server left in the temporary folder
    are only named.

    Exit codes: 0 done, 1 something could not be removed, 2 there is no such kit or run.

    Examples:

      fdg kit clean /srv/flare/photo --dry-run

      fdg kit clean /srv/flare/server --run 3379af42-b0b1-4066-889e-7cf89997f720
    """
    from fdg_plugins.state.leftovers import leftovers, offload_folders

    found = leftovers(kit, run=run)
    if run is not None and not found:
        raise DataError(f"run {run} has left nothing in {kit}.")
    if not found:
        say(visible(f"{kit}: no run has left anything"))
    rows = [_row(leftover, dry_run) for leftover in found]
    if rows:
        show(make_table(("run", "bytes", "last change", ""), rows, ("bytes",)))
    temporary = Path(tempfile.gettempdir())
    is_site = (kit / "startup" / "fed_client.json").exists()
    if not is_site and (folders := offload_folders(temporary)):
        say(f"\nTensors that arrived in files, of jobs that run or of a server that was killed, in {temporary}:")
        for folder in folders:
            say(visible(f"  {folder.name}"))
        say("Remove them by hand once no job with enable_tensor_disk_offload runs on this machine.")
    if any(row[-1].startswith("not removed") for row in rows):
        raise typer.Exit(FAILED)


def _row(leftover: "Leftover", dry_run: bool) -> tuple[str, ...]:
    """Remove a removable folder, and return what to show of it."""
    from fdg_plugins.state.folders import remove_state

    outcome = "would be removed" if dry_run else "removed"
    if leftover.kept_because is not None:
        outcome = f"kept: {leftover.kept_because}"
    elif not dry_run:
        try:
            remove_state(leftover.path)
        except DataError as error:
            outcome = f"not removed: {error}"
    changed = datetime.fromtimestamp(leftover.changed).astimezone().isoformat(sep=" ", timespec="minutes")
    return str(leftover.path), f"{leftover.num_bytes:,}", changed, outcome
