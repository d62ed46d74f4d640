# SPDX-License-Identifier: Apache-2.0
"""``fdg poc``: a federation on this machine, with a startup kit for the server, every site and every person.

The folder holds the kits as FLARE's provisioning made them, and in ``provision.d/`` the project's certificate
authority.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fdg_plugins.cli.console import OneLineErrors, say
from fdg_plugins.cli.own_data import choose_data
from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.flare.gpus import checked_gpus

if TYPE_CHECKING:
    from fdg_plugins.lab.poc.kits import SiteData

Folder = Annotated[Path, typer.Option(help="Folder of the federation; fdg poc start makes it.")]
PortOption = Annotated[
    int | None, typer.Option(min=1, max=65535, metavar="N", help="Port of the server for the sites; default 8002.")
]
AdminPortOption = Annotated[
    int | None,
    typer.Option(min=1, max=65535, metavar="N", help="Port of the server for people; default: port + 1."),
]
WORKSPACE = Path("poc", "workspace")

poc_app = typer.Typer(
    name="poc",
    cls=OneLineErrors,
    help="Start, look at and stop a federation on this machine.\n\n"
    "It has a server, a site per domain and three people, with certificates of their own. FLARE "
    "provisions it like a federation of several machines. It runs as separate processes, and takes jobs from fdg "
    "submit, nvflare job submit and FLARE's console.",
    epilog="Exit codes: 0 done, 1 the federation does not run (status), 2 the request cannot be carried out.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def sites_of(dataset: Any) -> dict[str, str]:
    """Return the domain of each site, by the site's name; raise ``SettingsError`` for an unknown data set.

    ``dataset``: the name of a data set, or the description of one's own.
    """
    from fdg_plugins.data import dataset_spec

    spec = dataset_spec(dataset)
    return dict(zip(spec.sites, spec.domains, strict=True))


def choose_site_data(
    data: Path | None, dataset: str | None, data_root: Path | None, site_data: Sequence[str]
) -> "SiteData":
    """Return the data that the options name, checked."""
    from fdg_plugins.lab.poc.kits import SiteData

    chosen = choose_data(data, dataset, data_root)
    domains = {} if chosen.dataset is None else sites_of(chosen.dataset)
    roots = _site_roots(site_data)
    for root in filter(None, (chosen.root, *roots.values())):
        if not root.is_dir():
            raise DataError(f"data root {root} is not there, expected a folder that holds the data sets.")
    return SiteData(domains, chosen.root, roots, chosen.file)


def _site_roots(texts: Sequence[str]) -> dict[str, Path]:
    """Return the folder of each site in ``SITE=DIR``; raise ``SettingsError`` for a site that is named twice."""
    roots: dict[str, Path] = {}
    for site, root in map(_site_root, texts):
        if site in roots:
            raise SettingsError(f"--site-data names site {site!r} twice, expected each site once.")
        roots[site] = root
    return roots


def _site_root(text: str) -> tuple[str, Path]:
    """Return the site and the folder in ``SITE=DIR``."""
    site, equals, folder = text.partition("=")
    if not (site and equals and folder):
        raise SettingsError(f"--site-data is {text!r}, expected SITE=DIR.")
    return site, Path(folder)


@poc_app.command()
def start(
    folder: Folder = WORKSPACE,
    port: PortOption = None,
    admin_port: AdminPortOption = None,
    data_root: Annotated[
        Path | None, typer.Option(help="Data root of every site, which holds the data sets; default: the stand-in.")
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(help="Data set whose domains are the sites, or a file that describes yours.", show_default="pacs"),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Images of your own, DIR/<domain>/<class>/<image>: a site per domain.", show_default=False),
    ] = None,
    site_data: Annotated[
        list[str] | None,
        typer.Option(metavar="SITE=DIR", help="Data root of one site. May be repeated.", show_default=False),
    ] = None,
    gpus: Annotated[
        int | None, typer.Option(help="GPUs of this machine that each site lends to jobs.", show_default=False)
    ] = None,
    gpu_memory: Annotated[
        float | None,
        typer.Option(metavar="GIB", help="GiB of each GPU, for each site by itself.", show_default=False),
    ] = None,
) -> None:
    """Provision into the folder unless that was done, start server and sites, and wait until all are ready.

    The processes take this command's environment: FDG_ROUNDS=2 here is a setting of every job.
    """
    from fdg_plugins.lab.poc.kits import check_folder, configure, provision
    from fdg_plugins.lab.poc.processes import check_port, end_all, launch, processes, wait_until_ready
    from fdg_plugins.lab.poc.project import STATE_FILE, known_project, read_project

    folder = folder.resolve()
    check_folder(folder)
    if running := processes(folder):
        raise DataError(f"folder {folder}: its federation runs already, {len(running)} processes; stop it first.")
    provisioned = (folder / STATE_FILE).exists()
    chosen = choose_site_data(data, dataset, data_root, site_data or [])
    lent = None if gpus is None and gpu_memory is None else checked_gpus(gpus or 0, gpu_memory)
    sites = tuple(chosen.domains) or None
    project = known_project(folder, port, admin_port, sites) if provisioned else read_project(port, admin_port, sites)
    chosen.check_sites(project.sites)
    for number in project.ports:
        check_port(number)
    if not provisioned:
        say(f"provisioning {project.content['name']} into {folder}")
        provision(project, folder)
    configure(project, folder, chosen, lent)
    try:
        launch(project, folder)
        wait_until_ready(project, folder)
    except BaseException:
        end_all(folder)
        raise
    say(f"ready: server on ports {project.ports[0]} and {project.ports[1]}, sites {', '.join(project.sites)}")
    say(f"people: {', '.join(str(folder / person) for person in project.people)}")


@poc_app.command()
def status(folder: Folder = WORKSPACE) -> None:
    """Say which processes of the federation run."""
    from fdg_plugins.lab.poc.processes import belongs, processes
    from fdg_plugins.lab.poc.project import known_project

    folder = folder.resolve()
    project = known_project(folder)
    found = processes(folder)
    for name in (project.server["name"], *project.sites):
        own = sorted(process.pid for process in found if belongs(process, folder / name))
        say(f"{name:<14}{f'{len(own)} processes: ' + ', '.join(map(str, own)) if own else 'not running'}")
    if not found:
        raise typer.Exit(1)


@poc_app.command()
def stop(folder: Folder = WORKSPACE) -> None:
    """End every process of the federation, also after a crash; kits, logs and jobs stay."""
    from fdg_plugins.lab.poc.processes import end_all, processes
    from fdg_plugins.lab.poc.project import check_holds_federation

    folder = folder.resolve()
    if not processes(folder):
        check_holds_federation(folder)
    say(f"stopped: {end_all(folder)} processes ended, none is left")
