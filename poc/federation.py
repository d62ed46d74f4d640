# SPDX-License-Identifier: Apache-2.0
"""A federation on one machine: provisioned, mutually authenticated, one process tree per participant.

    python poc/federation.py start --folder /srv/fdg-poc --data-root /data
    python poc/federation.py start --folder /srv/fdg-vessels --dataset vessels
    python poc/federation.py status --folder /srv/fdg-poc
    python poc/federation.py stop --folder /srv/fdg-poc

The folder then holds a startup kit for the server, every site and every person, as FLARE's provisioning made them,
and ``provision/`` with the project's certificate authority.
"""

import contextlib
import copy
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import psutil
import typer
import yaml

from fdg_plugins.cli.console import OneLineErrors, say
from fdg_plugins.errors import DataError, FDGError, SettingsError

# FLARE and torch are loaded by what needs them: stopping and looking must not take their seconds, nor fail with them.

PROJECT_FILE = Path(__file__).with_name("project.yml")
STATE_FILE = "federation.json"
AUTHORIZATION = "authorization.json"
PROVISION = "provision"
CONSOLE_LOG = "console.log"
HOST = "127.0.0.1"
# Every process of the federation inherits this variable, and is found by it, whoever its parent is by then.
MARK = "FLARE_POC_FOLDER"
DAEMON_SCRIPT = "sub_start.sh"
LEFT_BY_DAEMON = ("daemon_pid.fl", "pid.fl", "shutdown.fl", "restart.fl")

HEARTBEAT_TIMEOUT_S = 30  # FLARE's own is 600: a lost machine would be noticed after ten minutes
RETURNING_SITES = "fdg_plugins.server.rejoin.ReturningSites"
READY_TIMEOUT_S = 180
GRACE_S = 8

Folder = Annotated[Path, typer.Option(help="Folder of the federation; made if it is not there.")]

app = typer.Typer(
    cls=OneLineErrors,
    help="A federation on this machine: a server, a site per domain, three people, with certificates of their own.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


class Project(NamedTuple):
    """The project as FLARE's provisioning takes it, and who is in it."""

    content: dict[str, Any]
    server: dict[str, Any]
    sites: tuple[str, ...]
    people: tuple[str, ...]

    @property
    def ports(self) -> tuple[int, int]:
        """Port of the sites, port of the people."""
        return int(self.server["fed_learn_port"]), int(self.server["admin_port"])


def read_project(port: int | None = None, admin_port: int | None = None, sites: Sequence[str] | None = None) -> Project:
    """Return ``project.yml``, with other ports and sites where they are given."""
    content = yaml.safe_load(PROJECT_FILE.read_text(encoding="utf-8"))
    if sites is not None:
        content["participants"] = _with_sites(content["participants"], sites)
    members: dict[str, list[dict[str, Any]]] = {"server": [], "client": [], "admin": []}
    for participant in content["participants"]:
        members[participant["type"]].append(participant)
    server = members["server"][0]
    server["fed_learn_port"] = port or server["fed_learn_port"]
    server["admin_port"] = admin_port or (port + 1 if port else server["admin_port"])
    names = {kind: tuple(member["name"] for member in found) for kind, found in members.items()}
    return Project(content, server, names["client"], names["admin"])


def _with_sites(participants: Sequence[dict[str, Any]], sites: Sequence[str]) -> list[dict[str, Any]]:
    """Return the participants with other sites, which belong to the organisations of those in the file, in turn."""
    organisations = cycle([member["org"] for member in participants if member["type"] == "client"])
    clients = [{"name": site, "type": "client", "org": org} for site, org in zip(sites, organisations, strict=False)]
    return [*(member for member in participants if member["type"] != "client"), *clients]


def sites_of(dataset: str) -> tuple[str, ...]:
    """Return the domains of a data set, each of which has a site of its name; raise ``SettingsError`` if unknown."""
    from fdg_plugins.data import dataset_spec

    return dataset_spec(dataset).domains


@app.command()
def start(
    folder: Folder,
    port: Annotated[int | None, typer.Option(help="Port of the server for the sites; default 8002.")] = None,
    admin_port: Annotated[int | None, typer.Option(help="Port of the server for people; default: port + 1.")] = None,
    data_root: Annotated[
        Path | None, typer.Option(help="Data root of every site, which holds the data sets; default: the stand-in.")
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help="Data set whose domains are the sites.", show_default="pacs")
    ] = None,
) -> None:
    """Provision into the folder unless that was done, start server and sites, and wait until all are ready.

    The processes take this command's environment: FDG_ROUNDS=2 here is a setting of every job.
    """
    folder = folder.resolve()
    if running := processes(folder):
        raise DataError(f"folder {folder}: its federation runs already, {len(running)} processes; stop it first.")
    if data_root is not None and not data_root.is_dir():
        raise DataError(f"data root {data_root} is not there, expected a folder that holds the data sets.")
    provisioned = (folder / STATE_FILE).exists()
    sites = None if dataset is None else sites_of(dataset)
    project = _known_project(folder, port, admin_port, sites) if provisioned else read_project(port, admin_port, sites)
    for number in project.ports:
        check_port(number)
    if not provisioned:
        say(f"provisioning {project.content['name']} into {folder}")
        provision(project, folder)
    configure(project, folder, data_root)
    try:
        launch(project, folder)
        wait_until_ready(project, folder)
    except BaseException:
        end_all(folder)
        raise
    say(f"ready: server on ports {project.ports[0]} and {project.ports[1]}, sites {', '.join(project.sites)}")
    say(f"people: {', '.join(str(folder / person) for person in project.people)}")


@app.command()
def status(folder: Folder) -> None:
    """Say which processes of the federation run."""
    folder = folder.resolve()
    project = _known_project(folder)
    found = processes(folder)
    for name in (project.server["name"], *project.sites):
        own = sorted(process.pid for process in found if _belongs(process, folder / name))
        say(f"{name:<14}{f'{len(own)} processes: ' + ', '.join(map(str, own)) if own else 'not running'}")
    if not found:
        raise typer.Exit(1)


@app.command()
def stop(folder: Folder) -> None:
    """End every process of the federation, also after a crash; kits, logs and jobs stay."""
    folder = folder.resolve()
    say(f"stopped: {end_all(folder)} processes ended, none is left")


def check_port(port: int) -> None:
    """Raise ``SettingsError`` for a port that something else listens on."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As the server does: a connection of the last run that lingers is no obstacle, a listener is.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except (OSError, OverflowError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise SettingsError(
                f"port {port} of this machine cannot be used ({reason}), expected a free one: --port, --admin-port."
            ) from error


class _ProvisionLog:
    """What FLARE's provisioning says; shown only if it fails."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def debug(self, text: str) -> None:
        """Drop it."""

    def info(self, text: str) -> None:
        """Drop it."""

    def warning(self, text: str) -> None:
        """Keep it."""
        self.lines.append(text)

    error = warning


def provision(project: Project, folder: Path) -> None:
    """Make certificates and startup kits with FLARE's provisioning; the kits lie directly in ``folder``."""
    taken = [name for name in (project.server["name"], *project.sites, *project.people) if (folder / name).exists()]
    if taken:
        raise DataError(f"folder {folder} holds {taken[0]}, but no {STATE_FILE}: expected an empty folder.")
    from nvflare.lighter.constants import CtxKey
    from nvflare.lighter.prov_utils import prepare_builders
    from nvflare.lighter.provision import prepare_project
    from nvflare.lighter.provisioner import Provisioner

    log = _ProvisionLog()
    with contextlib.redirect_stdout(io.StringIO()):
        builders = prepare_builders(project.content)
        provisioner = Provisioner(str(folder / PROVISION), builders)
        context = provisioner.provision(prepare_project(copy.deepcopy(project.content)), logger=log)
    if context.get(CtxKey.BUILD_ERROR):
        raise FDGError(f"folder {folder}: FLARE's provisioning failed: {'; '.join(log.lines)}")
    (folder / PROVISION).chmod(0o700)  # it holds the private key of the certificate authority
    kits = Path(context[CtxKey.CURRENT_PROD_DIR])
    for kit in sorted(kits.iterdir()):
        shutil.move(kit, folder / kit.name)
    kits.rmdir()
    _write_state(folder, {"version": 1, "ports": project.ports, "sites": project.sites, "pids": {}})


def configure(project: Project, folder: Path, data_root: Path | None) -> None:
    """Write every participant's local policy and config; what an operator has added there stays."""
    from fdg_plugins.flare.kits import merge_allow_list, read_kit
    from fdg_plugins.settings.site_config import FILE_NAME
    from fdg_plugins.storage import write_json

    server = folder / project.server["name"]
    for participant in (server, *(folder / site for site in project.sites)):
        kit = read_kit(participant)
        if not kit.target.exists():
            adjust = _adjust_server if participant == server else _adjust_site
            adjust(kit.resources, participant)
            write_json(kit.target, kit.resources)
        merge_allow_list(read_kit(participant)).write()
        _forbid_code(participant / "local")
    for site in project.sites:
        path = folder / site / "local" / FILE_NAME
        if not path.exists() or data_root is not None:
            entry = {"domain": site, "device": "auto", "threads": 1}
            root = {"data_root": str(data_root.resolve())} if data_root else {}
            write_json(path, {site: {**entry, **root}})


def _adjust_server(resources: dict[str, Any], server: Path) -> None:
    resources["servers"][0]["heart_beat_timeout"] = HEARTBEAT_TIMEOUT_S
    # FLARE's default is one folder under /tmp for all federations of the machine.
    for component in [*resources["components"], resources["snapshot_persistor"]]:
        _own_storage(component, server)
    # FLARE starts a running job nowhere again: without it, a site that comes back waits for the next job.
    resources["components"].append({"id": "returning_sites", "path": RETURNING_SITES, "args": {}})


def _adjust_site(resources: dict[str, Any], site: Path) -> None:
    # A log names files. FLARE sends it to the server by default; its provisioning overlooks "false" in project.yml.
    resources["allow_log_streaming"] = False


def _forbid_code(local: Path) -> None:
    """Write the participant's own authorization policy: FLARE's, with no right for leads to bring code of their own."""
    from fdg_plugins.storage import read_json, write_json

    policy = local / AUTHORIZATION
    if not policy.exists():
        content = read_json(local / f"{AUTHORIZATION}.default")
        content["permissions"]["lead"]["byoc"] = "none"
        write_json(policy, content)


def _own_storage(component: dict[str, Any], server: Path) -> None:
    arguments = component.get("args", {})
    if component.get("id") == "job_manager":
        arguments["uri_root"] = str(server / "jobs-storage")
    if "storage" in arguments:
        arguments["storage"]["args"]["root_dir"] = str(server / "snapshot-storage")


def launch(project: Project, folder: Path) -> None:
    """Start server and sites by FLARE's own ``start.sh``, whose daemon restarts a participant that dies."""
    environment = participant_environment(folder)
    for name in (project.server["name"], *project.sites):
        for file in LEFT_BY_DAEMON:
            (folder / name / file).unlink(missing_ok=True)
        with (folder / name / CONSOLE_LOG).open("ab") as log:
            subprocess.run(
                ["bash", str(folder / name / "startup" / "start.sh")],
                cwd=folder / name,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                check=True,
            )


def participant_environment(folder: Path, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment of the federation's processes: the caller's, this Python first, the mark."""
    interpreters = str(Path(sys.executable).parent)
    return {**environment, "PATH": f"{interpreters}{os.pathsep}{environment.get('PATH', '')}", MARK: str(folder)}


def wait_until_ready(project: Project, folder: Path) -> None:
    """Return when the server's admin service knows every site; raise an error with the logs' place if it does not."""
    deadline = time.monotonic() + READY_TIMEOUT_S
    missing = list(project.sites)
    while missing:
        if time.monotonic() > deadline:
            raise FDGError(
                f"folder {folder}: not ready after {READY_TIMEOUT_S} s, waiting for {', '.join(missing)}; "
                f"all were ended, and each participant's {CONSOLE_LOG} says why."
            )
        time.sleep(1.0)
        if _listens(project.ports[1]):
            known = connected_sites(project, folder)
            missing = [site for site in project.sites if site not in known]
    state = _read_state(folder)
    pids = {
        name: sorted(process.pid for process in processes(folder) if _belongs(process, folder / name))
        for name in (project.server["name"], *project.sites)
    }
    _write_state(folder, {**state, "pids": pids})


def _listens(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((HOST, port)) == 0


def connected_sites(project: Project, folder: Path) -> set[str]:
    """Return the sites that the server knows, as its first person sees it; none while it cannot be asked."""
    from nvflare.fuel.flare_api.flare_api import new_secure_session

    person = project.people[0]
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            session = new_secure_session(person, str(folder / person), timeout=10.0)
            try:
                return {client.name for client in session.get_system_info().client_info}
            finally:
                session.close()
    except Exception:  # noqa: BLE001 - FLARE raises a type of its own for every way in which a server is not yet there
        return set()


def processes(folder: Path) -> list[psutil.Process]:
    """Return the processes that carry the folder's mark, this one aside."""
    return [process for process in psutil.process_iter() if process.pid != os.getpid() and _is_marked(process, folder)]


def _is_marked(process: psutil.Process, folder: Path) -> bool:
    try:
        return process.environ().get(MARK) == str(folder) and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.Error, OSError):
        return False


def _belongs(process: psutil.Process, kit: Path) -> bool:
    try:
        return any(part == str(kit) or part.startswith(f"{kit}{os.sep}") for part in process.cmdline())
    except psutil.Error:
        return False


def end_all(folder: Path) -> int:
    """End every process of the federation; the daemons first, or they would start what was just ended."""
    ended: set[int] = set()
    deadline = time.monotonic() + GRACE_S
    for daemon in _daemons(folder):
        ended.add(daemon.pid)
        _send(daemon, signal.SIGKILL)
    for process in (found := processes(folder)):
        _send(process, signal.SIGTERM)
    ended.update(process.pid for process in found)
    while (left := processes(folder)) and time.monotonic() < deadline:
        time.sleep(0.2)
    # One may have started another meanwhile: until a look finds none.
    for _ in range(50):
        if not left:
            break
        for process in left:
            ended.add(process.pid)
            _send(process, signal.SIGKILL)
        time.sleep(0.2)
        left = processes(folder)
    if left:
        raise FDGError(f"folder {folder}: process {left[0].pid} cannot be ended.")
    for file in LEFT_BY_DAEMON:
        for path in folder.glob(f"*/{file}"):
            path.unlink(missing_ok=True)
    return len(ended)


def _daemons(folder: Path) -> Iterator[psutil.Process]:
    for process in processes(folder):
        with contextlib.suppress(psutil.Error):
            if any(part.endswith(DAEMON_SCRIPT) for part in process.cmdline()):
                yield process


def _send(process: psutil.Process, number: int) -> None:
    with contextlib.suppress(psutil.Error):
        process.send_signal(number)


def _read_state(folder: Path) -> dict[str, Any]:
    try:
        state: dict[str, Any] = json.loads((folder / STATE_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"file {folder / STATE_FILE} cannot be read: {error}.") from error
    return state


def _write_state(folder: Path, state: Mapping[str, Any]) -> None:
    temporary = folder / f".{STATE_FILE}"
    temporary.write_text(json.dumps(state, indent=1), encoding="utf-8")
    temporary.replace(folder / STATE_FILE)


def _known_project(
    folder: Path, port: int | None = None, admin_port: int | None = None, sites: Sequence[str] | None = None
) -> Project:
    """Return the project that was provisioned into ``folder``; raise an error for other ports or sites than it has."""
    if not (folder / STATE_FILE).exists():
        raise DataError(f"folder {folder} holds no federation, expected one that start has made.")
    state = _read_state(folder)
    ports = state["ports"]
    for wanted, fixed in ((port, ports[0]), (admin_port, ports[1])):
        if wanted not in (None, fixed):
            raise SettingsError(
                f"port {wanted} was asked for, but {folder} was provisioned for {ports[0]} and {ports[1]}; "
                "other ports need another folder."
            )
    project = read_project(*ports, state.get("sites"))  # folders of version 0.1.0 have no entry
    if sites is not None and sorted(sites) != sorted(project.sites):
        raise SettingsError(
            f"sites {', '.join(sites)} were asked for (--dataset), but {folder} was provisioned for "
            f"{', '.join(project.sites)}; other sites need another folder."
        )
    return project


if __name__ == "__main__":
    app()
