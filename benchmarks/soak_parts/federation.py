# SPDX-License-Identifier: Apache-2.0
"""Runs a soak: a provisioned federation, a job of many small rounds, faults, and a sample after every round."""

import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from fdg_plugins.cli.jobs import export
from fdg_plugins.cli.one_federation import free_ports
from fdg_plugins.data.stand_in import write_stand_in
from fdg_plugins.errors import FDGError, SettingsError
from fdg_plugins.flare.sessions import Server
from fdg_plugins.lab.engine.workflow import arguments_of, find_workflow
from fdg_plugins.lab.poc.kits import Project, configure, provision, read_project
from fdg_plugins.lab.poc.processes import launched, participant_environment
from fdg_plugins.record.run_files import RESULTS_FILE
from fdg_plugins.record.run_record import RunRecord
from fdg_plugins.storage import write_json
from soak_parts.faults import Faults
from soak_parts.progress import Progress
from soak_parts.rows import DiskRow, ProcessRow, RoundRow, Soak
from soak_parts.sampling import TEMPORARY, do_work, sample_disk, sample_processes

METHOD = "pacs_fedomg_ga"  # its sites and its server remember something from round to round
IMAGES_PER_CLASS = 2
PROTOCOL = {"model": "convnet", "pretrained": "none", "image_size": 16, "local_epochs": 1, "learning_rate": 0.01}
POLL_S = 0.1
STUCK_S = 600.0
ANSWER_S = 60.0


class Options(NamedTuple):
    """How long a soak is, and what happens meanwhile; see :class:`Faults`."""

    rounds: int = 500
    kill_every: int = 50
    restart_at: int = 275


def run(options: Options, folder: Path, jobs: Path, say: Callable[[str], None]) -> Soak:
    """Run a soak in the new folder ``folder`` and return what it measured; ``jobs``: the folder of the project's jobs.

    Raises ``SettingsError`` if ``folder`` exists, and ``FDGError`` if the run does not complete.
    """
    if folder.exists():
        raise SettingsError(f"--to is {folder}, which exists, expected a folder that is not there yet.")
    folder.mkdir(parents=True)
    (folder / TEMPORARY).mkdir()
    project = read_project(*free_ports())
    job = write_job(jobs / METHOD, folder / "job", options.rounds)
    data = write_stand_in(folder / "data", images_per_class=IMAGES_PER_CLASS)
    with _environment(folder):
        provision(project, folder)
        configure(project, folder, root=data)
        with launched(project, folder):
            samples = _Samples(folder, project, options)
            with _submitted(job, folder, project) as submission:
                samples.follow(submission, say)
            return samples.finish()


def write_job(source: Path, to: Path, rounds: int) -> Path:
    """Write the job of the soak below ``to``: that in ``source`` without code, with ``rounds`` small rounds."""
    job = export(source, to)
    path, config, workflow = find_workflow(job)
    arguments = arguments_of(workflow)
    for name in ("protocol", "stand_in_protocol"):
        arguments[name] = {**arguments[name], **PROTOCOL, "rounds": rounds}
    write_json(path, config)
    return job


@contextmanager
def _environment(folder: Path) -> Iterator[None]:
    """Give all processes one thread and a folder for temporary files, and none of this user's settings."""
    before = dict(os.environ)
    for name in before:
        if name.startswith(("FDG_", "NVFLARE_")):
            del os.environ[name]
    os.environ.update(TMPDIR=str(folder / TEMPORARY), OMP_NUM_THREADS="1", FL_LOG_LEVEL="concise")
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def _submitted(job: Path, folder: Path, project: Project) -> Iterator["subprocess.Popen[bytes]"]:
    """Submit the job as a user does, with ``fdg submit --resume-on-failure``; its output is in ``submit.log``."""
    command = [str(Path(sys.executable).with_name("fdg")), "submit", str(job), str(_kit(folder, project))]
    command += ["--resume-on-failure"]
    environment = participant_environment(folder)  # so that it is sampled like the others
    with (folder / "submit.log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _kit(folder: Path, project: Project) -> Path:
    return folder / project.people[-1]


class _Samples:
    """Samples a federation after every round, and does to it what is due."""

    def __init__(self, folder: Path, project: Project, options: Options) -> None:
        self._folder, self._project, self._options = folder, project, options
        self._server = str(project.server["name"])
        self._participants = (self._server, *project.sites)
        began = time.monotonic()
        self._clock = lambda: time.monotonic() - began
        self._faults = Faults(folder, self._server, project.sites, *options, clock=self._clock)
        self._ends: dict[int, tuple[float, float, float]] = {}  # when it was seen, and what the same work took then
        self._processes: list[ProcessRow] = []
        self._disk: list[DiskRow] = []

    def follow(self, submission: "subprocess.Popen[bytes]", say: Callable[[str], None]) -> None:
        """Return when the submitted job, and those that go on with its run, have completed."""
        progress = Progress(self._folder / self._server)
        last, last_at = 0, self._clock()
        while submission.poll() is None:
            if (number := progress.new_round()) is not None:
                last, last_at = number, self._clock()
                self._sample(number, last_at)
                self._faults.after(number)
                say(f"{last_at:8.1f} s: round {number}, {len(self._faults.done)} kills and starts so far")
            elif self._clock() - last_at > STUCK_S:
                raise FDGError(f"folder {self._folder}: no round has ended for {STUCK_S:.0f} s after round {last}.")
            self._faults.look(last)
            time.sleep(POLL_S)
        if submission.returncode:
            raise FDGError(f"folder {self._folder}: the run did not complete, and submit.log says why.")

    def _sample(self, number: int, at: float) -> None:
        self._ends[number] = (at, *do_work())
        self._processes += sample_processes(self._folder, (*self._participants, self._project.people[-1]), number)
        self._disk += (sample_disk(self._folder, name, number) for name in (*self._participants, TEMPORARY))

    def finish(self) -> Soak:
        """Return the soak of the run that has completed."""
        record = self._record()
        unseen = (math.nan, math.nan, math.nan)
        rounds = []
        for one in record.rounds:
            at, *work = self._ends.get(one.round, unseen)
            rounds.append(RoundRow(one.round, at, one.seconds, " ".join(one.sites), " ".join(one.failures), *work))
        about = {**self._options._asdict(), "resumed_after": record.resumed_after, "left": self._left()}
        return Soak(rounds, self._processes, self._disk, self._faults.done, about)

    def _record(self) -> RunRecord:
        last = (self._folder / "submit.log").read_text(encoding="utf-8").split("job ")[-1].partition(":")[0]
        with Server(_kit(self._folder, self._project), ANSWER_S) as server:
            to = str(self._folder / "results")
            place = Path(server.ask(lambda session: session.download_job_result(last, destination=to), ANSWER_S))
        (results,) = place.rglob(RESULTS_FILE)
        return RunRecord.model_validate_json(results.read_bytes())

    def _left(self) -> dict[str, Any]:
        """Return what every participant still has of the run: files of state, and temporary files."""
        folders = {name: self._folder / name / "fdg_state" for name in self._participants}
        folders[TEMPORARY] = self._folder / TEMPORARY
        return {
            name: sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
            for name, folder in folders.items()
        }
