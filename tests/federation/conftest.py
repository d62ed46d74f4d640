# SPDX-License-Identifier: Apache-2.0
"""One provisioned federation of separate processes for the tests of this folder, on free ports, started as a user does.

Each of pytest's workers has one, since files are dealt out to the workers: no test here may need what another file did,
nor stop what is shared. The server's job store and its folders are read directly: a question to the admin service takes
seconds. What is waited for may take minutes: the machine may be slow, and another federation runs on it.
"""

import json
import os
import random
import re
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
from nvflare.fuel.flare_api.flare_api import Session, new_secure_session

from fdg_plugins.controllers import RunRecord
from fdg_plugins.data import PACS
from fdg_plugins.lab.poc.processes import belongs
from fdg_plugins.lab.sweep.run import DAEMON_SCRIPT
from tests.cli.commands import fdg
from tests.federation.bare_environment import make_bare_environment
from tests.finished_runs import record_in
from tests.processes import Done, command_line, execute, shell

ROOT = Path(__file__).parents[2]
COMMANDS = Path(sys.executable).parent
JOB_TIMEOUT_S = 600
LOGIN_TIMEOUT_S = 120.0
# Below those that an operating system gives to outgoing connections, which are many here.
PORTS = range(20_000, 30_000)
JOB_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")

# Small enough for two cores.
PROTOCOL: dict[str, Any] = {
    "model": "convnet",
    "pretrained": "none",
    "image_size": 16,
    "rounds": 2,
    "local_epochs": 1,
    "learning_rate": 0.01,
}
ISOLATED = "photo"
SERVER_CONFIG = "app_server/config/config_fed_server.json"
LIMITS = {"clip_norm": 0.5, "noise_multiplier": 8.0, "max_epsilon": 1000.0}
FILTER = {"path": "fdg_plugins.filters.DifferentialPrivacyFilter", "args": LIMITS}
SCOPE = {"scopes": [{"name": "private", "task_result_filters": [FILTER]}], "default_scope": "private"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder: they need half a minute to start, and are run by themselves."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.federation)


class Ended(NamedTuple):
    """A job that has ended: its status, and the server's log of it."""

    status: str
    log: str


class Federation:
    """The folder of a federation, and what its people do with it."""

    def __init__(
        self,
        folder: Path,
        ports: tuple[int, int],
        data_root: Path,
        plugin: Path | None = None,
        commands: Path = COMMANDS,
    ) -> None:
        self.commands = commands
        self.folder, self.ports, self.data_root = folder, ports, data_root
        self.plugins = {} if plugin is None else {"PYTHONPATH": f"{plugin}{os.pathsep}{ROOT}"}
        self._sessions: dict[str, Session] = {}
        self.sites = list(PACS.domains)

    def control(self, command: str, *arguments: object) -> Done:
        words = (self.commands / "fdg", "poc", command, self.folder, *arguments)
        return execute(*words, folder=self.folder.parent, env=self.environment)

    def start(self) -> Done:
        return self.control("start", "--port", self.ports[0], "--data-root", self.data_root)

    def session(self, person: str) -> Session:
        """Return a session of ``person`` with the server, which takes seconds to make."""
        if person not in self._sessions:
            name = f"{person}@fdg.example"
            self._sessions[person] = new_secure_session(name, str(self.folder / name), timeout=LOGIN_TIMEOUT_S)
        return self._sessions[person]

    def close(self) -> None:
        for session in self._sessions.values():
            session.close()
        self._sessions.clear()

    @property
    def environment(self) -> dict[str, str]:
        """What a shell would have in which nothing of this project is set."""
        clean = {name: value for name, value in shell().items() if not name.startswith("NVFLARE_")}
        home = self.folder.parent / "home"  # in which FLARE's tools keep a registry of kits
        home.mkdir(exist_ok=True)
        return {**clean, "HOME": str(home), **self.plugins}

    def meta(self, job: str) -> dict[str, Any]:
        """Return what the server's store holds of a job."""
        path = self.folder / "server" / "jobs-storage" / job / "meta"
        for _ in range(20):  # the server rewrites it in place
            try:
                content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            except (OSError, ValueError):
                time.sleep(0.1)
            else:
                return content
        raise AssertionError(f"{path} cannot be read")

    def log(self, participant: str = "server", job: str | None = None) -> str:
        path = self.folder / participant / (f"{job}/log.txt" if job else "log.txt")
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def wait_for(self, job: str) -> Ended:
        log = ""

        def has_ended() -> bool:
            nonlocal log
            log = self.log(job=job) or log
            return bool(self.meta(job)["status"].startswith("FINISHED"))

        until(has_ended, f"job {job} goes on")
        return Ended(str(self.meta(job)["status"]), log)

    def record_of(self, job: str, folder: Path) -> RunRecord:
        """Return the record of a job that must end well; its result is downloaded to ``folder``."""
        ended = self.wait_for(job)
        assert ended.status == "FINISHED:COMPLETED", ended.log[-3000:]
        self.session("lead").download_job_result(job, str(folder))
        return record_in(folder)

    def wait_until_running(self, job: str, text: str) -> None:
        """Return when the server's log of a job holds ``text``."""

        def is_there() -> bool:
            assert not self.meta(job)["status"].startswith("FINISHED"), self.meta(job)
            return text in self.log(job=job)

        until(is_there, f"nobody has logged {text}")

    def processes(self) -> list[psutil.Process]:
        """Return the processes that name the federation's folder in their command line, whoever started them."""
        others = (process for process in psutil.process_iter() if process.pid != os.getpid())
        return [process for process in others if str(self.folder) in command_line(process)]


def kill(federation: Federation, participant: str, word: str = "") -> int:
    """Send signal 9 to the participant's processes whose command line holds ``word``; return how many there were."""
    kit = federation.folder / participant
    found = [one for one in federation.processes() if belongs(one, kit) and word in command_line(one)]
    for process in sorted(found, key=lambda one: DAEMON_SCRIPT not in command_line(one)):  # it restarts what dies
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(found, timeout=60)
    return len(found)


def until(done: Callable[[], object], what: str) -> None:
    """Return when ``done()`` is true; fail with ``what`` is wrong when it is not for long."""
    deadline = time.monotonic() + JOB_TIMEOUT_S
    while not done():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


@contextmanager
def local_files(federation: Federation, participant: str, files: Mapping[str, str]) -> Iterator[None]:
    """Let a participant have other files in ``local/`` for a while."""
    local = federation.folder / participant / "local"
    before = {name: (local / name).read_bytes() if (local / name).exists() else None for name in files}
    for name, content in files.items():
        (local / name).parent.mkdir(exist_ok=True)
        (local / name).write_text(content, encoding="utf-8")
    try:
        yield
    finally:
        for name, old in before.items():
            if old is not None:
                (local / name).write_bytes(old)
            elif "/" in name:  # a folder of its own, in which Python has compiled it
                shutil.rmtree((local / name).parent)
            else:
                (local / name).unlink()


def free_ports() -> tuple[int, int]:
    """Return two ports in a row on which nothing listens; another worker draws others."""
    for port in random.SystemRandom().sample(PORTS, 100):
        with socket.socket() as one, socket.socket() as other, suppress(OSError):
            one.bind(("127.0.0.1", port))
            other.bind(("127.0.0.1", port + 1))
            return port, port + 1
    raise AssertionError(f"no two free ports among a hundred of {PORTS}")


@contextmanager
def running_federation(
    folder: Path, data_root: Path, plugin: Path | None = None, commands: Path = COMMANDS
) -> Iterator[Federation]:
    """Start a federation of the domains of PACS in ``folder``; in the end it is stopped, and no process is left.

    ``plugin``: a folder in which a plug-in is installed for every participant. ``commands``: of the environment in
    which server and sites run.
    """
    found = Federation(folder, free_ports(), data_root, plugin, commands)
    try:
        started = found.start()
        assert started.returncode == 0, started.stdout
        yield found
    finally:
        found.close()
        stopped = found.control("stop")
        left = found.processes()
        for process in left:
            process.kill()
    assert stopped.returncode == 0, stopped.stdout
    assert left == []


@pytest.fixture(scope="session")
def federation(tmp_path_factory: pytest.TempPathFactory, data_root: Path, example_plugin: Path) -> Iterator[Federation]:
    """A federation that the tests share, and leave as they found it; the example plug-in is installed everywhere.

    Server and sites have what the package needs, without any extra: no test needs the lab there. One site works
    beside FLARE's process, as all do by default: every such process adds seconds to every job.
    """
    folder = tmp_path_factory.mktemp("poc")
    commands = make_bare_environment(folder / "bare")
    with running_federation(folder / "federation", data_root, example_plugin, commands=commands) as found:
        for site in set(found.sites) - {ISOLATED}:
            path = found.folder / site / "local" / "fdg_site.json"
            edit_json(path, own_settings(site, isolate=False))
        yield found


@pytest.fixture(scope="module")
def own_federation(tmp_path_factory: pytest.TempPathFactory, data_root: Path) -> Iterator[Federation]:
    """A federation of a module's own as ``fdg poc start`` leaves it, whose server and sites its tests may kill."""
    with running_federation(tmp_path_factory.mktemp("poc") / "own", data_root) as found:
        yield found


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """``jobs/pacs_fedomg`` as a lead exports it, with a protocol small enough for two cores; the test may change it."""
    made = export("pacs_fedomg", tmp_path)
    change_protocol(made, **PROTOCOL)
    return made


def export(job: str, folder: Path) -> Path:
    """Export a job of this project without custom folders, as a lead does; return its folder."""
    assert fdg("export", "job", ROOT / "jobs" / job, folder).exit_code == 0
    return folder / job


def change_protocol(job: Path, **settings: Any) -> None:
    edit_json(job / SERVER_CONFIG, lambda config: config["workflows"][0]["args"]["protocol"].update(settings))


def own_settings(site: str, **settings: Any) -> Callable[[Any], None]:
    def change(config: Any) -> None:
        config[site].update(settings)

    return change


def edit_json(path: Path, change: Callable[[Any], Any]) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    change(content)
    path.write_text(json.dumps(content), encoding="utf-8")
