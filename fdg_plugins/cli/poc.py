# SPDX-License-Identifier: Apache-2.0
"""``fdg poc``: a federation on this machine, with a startup kit for the server, every site and every person.

The folder holds the kits as FLARE's provisioning made them, and in ``provision.d/`` the project's certificate
authority.
"""

from pathlib import Path
from typing import Annotated

import typer

from fdg_plugins.cli.console import FAILED, OneLineErrors, say
from fdg_plugins.cli.options import DataRootOption, DatasetOption, choose_data
from fdg_plugins.errors import DataError

# FLARE and torch are loaded by what needs them: stopping and looking must not take their seconds, nor fail with them.

Folder = Annotated[Path, typer.Argument(help="Folder of the federation; fdg poc start makes it.")]
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


@poc_app.command()
def start(
    folder: Folder = WORKSPACE,
    port: Annotated[
        int | None,
        typer.Option(
            min=1, max=65535, metavar="N", help="Port of the server for the sites, default 8002; people use the next."
        ),
    ] = None,
    data_root: DataRootOption = None,
    dataset: DatasetOption = None,
) -> None:
    """Provision into the folder unless that was done, start server and sites, and wait until all are ready.

    The domains of the data set are the sites. fdg kit site FOLDER/SITE tells one site where its images are, and which
    GPUs it lends. The processes take this command's environment: FDG_ROUNDS=2 here is a setting of every job.
    """
    from fdg_plugins.data import dataset_spec
    from fdg_plugins.lab.poc.kits import SiteData, check_folder, configure, provision
    from fdg_plugins.lab.poc.processes import check_port, end_all, launch, processes, wait_until_ready
    from fdg_plugins.lab.poc.project import STATE_FILE, known_project, read_project

    folder = folder.resolve()
    check_folder(folder)
    if running := processes(folder):
        raise DataError(f"folder {folder}: its federation runs already, {len(running)} processes; stop it first.")
    provisioned = (folder / STATE_FILE).exists()
    chosen = choose_data(dataset, data_root)
    if chosen.root is not None and not chosen.root.is_dir():
        raise DataError(f"data root {chosen.root} is not there, expected a folder that holds the data sets.")
    spec = None if chosen.dataset is None else dataset_spec(chosen.dataset)
    domains = {} if spec is None else dict(zip(spec.sites, spec.domains, strict=True))
    sites = tuple(domains) or None
    project = known_project(folder, port, None, sites) if provisioned else read_project(port, None, sites)
    for number in project.ports:
        check_port(number)
    if not provisioned:
        say(f"provisioning {project.content['name']} into {folder}")
        provision(project, folder)
    configure(project, folder, SiteData(domains, chosen.root, chosen.file))
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
        raise typer.Exit(FAILED)


@poc_app.command()
def stop(folder: Folder = WORKSPACE) -> None:
    """End every process of the federation, also after a crash; kits, logs and jobs stay."""
    from fdg_plugins.lab.poc.processes import end_all, processes
    from fdg_plugins.lab.poc.project import check_holds_federation

    folder = folder.resolve()
    if not processes(folder):
        check_holds_federation(folder)
    say(f"stopped: {end_all(folder)} processes ended, none is left")
