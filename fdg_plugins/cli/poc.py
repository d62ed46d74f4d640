# SPDX-License-Identifier: Apache-2.0
"""``fdg poc``: a federation on this machine, with a startup kit for the server, every site and every person."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from fdg_plugins.cli.console import FAILED, group, say
from fdg_plugins.cli.options import DataRootOption, DatasetOption, SitesOption, choose_data
from fdg_plugins.data import dataset_spec
from fdg_plugins.data.own_files import FEWEST_DOMAINS
from fdg_plugins.errors import DataError
from fdg_plugins.lab.poc import kits
from fdg_plugins.lab.poc.processes import belongs, check_port, end_all, launch
from fdg_plugins.lab.sweep.run import SHELL_SIGNS, check_signs, processes_below
from fdg_plugins.settings.defaults import domains_of_sites

Folder = Annotated[Path, Argument(resolve_path=True, help="Folder of the federation; fdg poc start makes it.")]
WORKSPACE = Path("poc", "workspace")

poc = group(
    "poc",
    "Start, look at and stop a federation on this machine.\n\n"
    "It has a server, a site per domain and three people, with certificates, as separate processes. It takes jobs from "
    "fdg submit, nvflare job submit and FLARE's console.",
    "Exit codes: 0 done, 1 the federation does not run (status), 2 the request cannot be carried out.",
)


@poc.command()
def start(
    folder: Folder = WORKSPACE,
    port: Annotated[int | None, Option(min=1, max=65535, metavar="N", help="The sites'; people use the next.")] = None,
    data_root: DataRootOption = None,
    dataset: DatasetOption = None,
    sites: SitesOption = None,
) -> None:
    """Provision into the folder unless that was done, start server and sites, and wait until all are ready.

    The domains of the data set are the sites, of which one is enough to evaluate models; with --sites, so many share
    all but the first, which is held out. fdg kit site FOLDER/SITE tells one site where its images are, and which GPUs
    it lends. The processes take this command's environment: FDG_ROUNDS=2 here is a setting of every job.
    """
    check_signs(folder, SHELL_SIGNS)
    if running := processes_below(folder):
        raise DataError(f"folder {folder}: its federation runs already, {len(running)} processes; stop it first.")
    # One site is enough to evaluate; so many share two sources at least.
    chosen = choose_data(dataset, data_root, 1 if sites is None else FEWEST_DOMAINS)
    if chosen.root is not None and not chosen.root.is_dir():
        raise DataError(field="data root", value=chosen.root, expected="a folder that holds the data sets")
    domains: dict[str, str] = {}
    if sites is not None:
        domains = domains_of_sites(chosen.dataset or "pacs", {"sites": sites})
    elif chosen.dataset is not None:
        spec = dataset_spec(chosen.dataset)
        domains = dict(zip(spec.sites, spec.domains, strict=True))
    provisioned, names = (folder / kits.STATE_FILE).exists(), tuple(domains) or None
    project = kits.known_project(folder, port, names) if provisioned else kits.read_project(port, sites=names)
    for number in project.ports:
        check_port(number)
    if not provisioned:
        say(f"provisioning {project.content['name']} into {folder}")
        kits.provision(project, folder)
    kits.configure(project, folder, domains, chosen.root, chosen.file)
    launch(project, folder)
    say(f"ready: server on ports {project.ports[0]} and {project.ports[1]}, sites {', '.join(project.sites)}")
    say(f"people: {', '.join(str(folder / person) for person in project.people)}")


@poc.command()
def status(folder: Folder = WORKSPACE) -> int:
    """Say which processes of the federation run."""
    project, found = kits.known_project(folder), processes_below(folder)
    for name in (project.server["name"], *project.sites):
        own = sorted(process.pid for process in found if belongs(process, folder / name))
        say(f"{name:<14}{f'{len(own)} processes: ' + ', '.join(map(str, own)) if own else 'not running'}")
    return 0 if found else FAILED


@poc.command()
def stop(folder: Folder = WORKSPACE) -> None:
    """End every process of the federation, also after a crash; kits, logs and jobs stay."""
    if not processes_below(folder):
        kits.known_project(folder)
    say(f"stopped: {end_all(folder)} processes ended, none is left")
