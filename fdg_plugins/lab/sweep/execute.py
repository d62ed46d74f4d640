# SPDX-License-Identifier: Apache-2.0
"""Execute the runs of a plan, several at once: each is kept or reported as failed; a stop takes effect in a second.

The folder of a sweep holds ``sweep.json`` (the request), ``plugins/`` (copies of the plug-in files that the runs use)
and ``runs/<name>/``, the folder of each run (:mod:`~fdg_plugins.lab.sweep.folder`). A run whose record is there has
finished, since it is moved there last; one that failed has ``reason.txt``.
"""

import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from types import FrameType
from typing import NamedTuple

from fdg_plugins.errors import DataError
from fdg_plugins.lab.sweep.folder import JOB, RUN_FILE, end_earlier, settle
from fdg_plugins.lab.sweep.kinds import RunKind, kind_of, launch
from fdg_plugins.lab.sweep.machine import Machine
from fdg_plugins.lab.sweep.plan import PlannedRun
from fdg_plugins.lab.sweep.processes import RunProcess, end_processes, finished_record
from fdg_plugins.lab.sweep.request import DataFound, SweepFile, read_sweep_file
from fdg_plugins.plugins.files import check_names_differ
from fdg_plugins.record.left_files import TRACKED
from fdg_plugins.record.run_files import LAST_FILE, LOCAL_FOLDER, RESULTS_FILE, SELECTED_FILE
from fdg_plugins.storage import read_json, write_bytes, write_json, writing

POLL_S = 0.2
SWEEP_FILE = "sweep.json"
REASON_FILE = "reason.txt"
MODELS = (LAST_FILE, SELECTED_FILE, LOCAL_FOLDER)


@dataclass
class StopOrder:
    """The signal by which the user, or the system, has asked the command to stop; None if none has arrived."""

    signal: int | None = None


@contextmanager
def listening() -> Iterator[StopOrder]:
    """Turn Ctrl-C and the signals that terminate a process into a :class:`StopOrder`.

    No exception is raised then, so that nothing is left half done. A signal that the caller ignores stays ignored.
    """
    order = StopOrder()

    def take(number: int, _: FrameType | None) -> None:
        order.signal = number

    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    heard = {number: signal.getsignal(number) for number in signals if signal.getsignal(number) != signal.SIG_IGN}
    try:
        for number in heard:
            signal.signal(number, take)
        yield order
    finally:
        for number, before in heard.items():
            signal.signal(number, before)


def follow(process: RunProcess, order: StopOrder, look: Callable[[], None] = lambda: None) -> float:
    """Wait until a run ends, or ``order`` ends it; return its seconds. No process of it is left then, whatever happens.

    ``look`` is called several times a second.
    """
    try:
        while order.signal is None and not process.has_ended():
            look()
            time.sleep(POLL_S)
        return process.seconds
    finally:
        process.end()  # also those that FLARE's simulator leaves behind


def is_same_job(kind: RunKind, one: Path, other: Path) -> bool:
    """Return whether the jobs in two folders of runs are the same."""
    return bool(read_json(one / JOB / kind.job_file) == read_json(other / JOB / kind.job_file))


class Store:
    """The folder of one sweep; methods that write raise ``DataError`` if they cannot."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.runs = self.folder / "runs"
        self.plugins = self.folder / "plugins"
        self.lock = self.folder / ".lock"

    def read(self) -> SweepFile | None:
        """Return the file of an existing sweep, None for a new folder; raise ``DataError`` for any other folder."""
        found = read_sweep_file(self.folder / SWEEP_FILE)
        if found is None and {path.name for path in self.folder.glob("*")} - {".lock", "plugins"}:
            raise DataError(f"folder {self.folder} holds other things, expected a new one or that of a sweep.")
        return found

    def plugin_files(self, given: Sequence[Path]) -> list[Path]:
        """Return the plug-in files of the sweep: those that it keeps, and those ``given`` now.

        Raises ``DataError`` if a given file differs from the kept file of the same name, ``SettingsError`` if two given
        ones have one name.
        """
        check_names_differ(given)
        kept = {path.name: path for path in sorted(self.plugins.glob("*.py"))}
        for path in given:
            if path.name in kept and path.read_bytes() != kept[path.name].read_bytes():
                raise DataError(
                    f"plug-in {path} is not the file {kept[path.name]} with which the sweep was begun, expected the "
                    "same content, or another folder with --to."
                )
            kept.setdefault(path.name, path)
        return list(kept.values())

    def write(self, content: SweepFile, plugins: Sequence[Path]) -> None:
        """Replace ``sweep.json``, and keep copies of plug-in files, so the sweep can go on without the originals."""
        for path in plugins:
            write_bytes(self.plugins / path.name, path.read_bytes())
        write_json(self.folder / SWEEP_FILE, content.model_dump(mode="json"))

    def is_finished(self, name: str) -> bool:
        """Return whether the run has finished."""
        return (self.runs / name / RESULTS_FILE).is_file()

    def failure(self, name: str) -> str | None:
        """Return why the last try of the run failed; None if it did not."""
        with suppress(OSError):
            return (self.runs / name / REASON_FILE).read_text(encoding="utf-8").strip()
        return None

    def state(self, name: str) -> str:
        """Return ``finished``, ``failed`` or ``to do``."""
        return "finished" if self.is_finished(name) else "to do" if self.failure(name) is None else "failed"


class Ended(NamedTuple):
    """How a run ended: ``finished``, ``failed`` or ``stopped``, after how many seconds, and why it failed."""

    run: PlannedRun
    status: str
    seconds: float = 0.0
    reason: str = ""


@dataclass(frozen=True)
class Runner:
    """Executes runs on ``data`` in the folder of ``store``, whose lock the caller holds.

    ``environment`` is that of all runs. ``tell`` is called with each run as it starts and when it has ended.
    """

    store: Store
    machine: Machine
    data: DataFound
    environment: Mapping[str, str]
    tell: Callable[[PlannedRun | Ended], None]
    in_one_process: bool = False
    keep_models: bool = False
    _free: "SimpleQueue[str | None]" = field(default_factory=SimpleQueue)
    _writing: Lock = field(default_factory=Lock)  # recipes and plug-ins are for one thread at a time

    def carry_out(self, runs: Iterable[PlannedRun], order: StopOrder) -> list[Ended]:
        """Execute ``runs``, as many at a time as the machine has slots; return how those that were started ended.

        A failed run is reported and does not stop the others. When this returns or raises, no process of any run is
        left. Raises ``DataError`` if a file cannot be written.
        """
        for gpu in self.machine.gpus:
            self._free.put(gpu)
        end_processes(self.store.runs)  # of an earlier sweep in this folder that was killed
        with ThreadPoolExecutor(len(self.machine.gpus)) as pool:
            futures = [pool.submit(self._run, run, order) for run in runs]
            try:
                return [ended for future in as_completed(futures) if (ended := future.result()) is not None]
            except BaseException:
                order.signal = order.signal or signal.SIGTERM  # the others end, too
                raise

    def _run(self, run: PlannedRun, order: StopOrder) -> Ended | None:
        if order.signal is not None:
            return None
        gpu = self._free.get()
        try:
            self.tell(run)
            ended = self._execute(run, gpu, order)
            self.tell(ended)
            return ended
        finally:
            self._free.put(gpu)

    def _execute(self, run: PlannedRun, gpu: str | None, order: StopOrder) -> Ended:
        """Execute one run, or only keep it if its processes have finished it after the sweep had been killed."""
        kind, folder = kind_of(run.method, in_one_process=self.in_one_process), self.store.runs / run.name
        sites = self._write_job(kind, run, folder)
        process, seconds = None, 0.0
        if not end_earlier(folder, kind.results):
            command = launch(kind, run, folder, sites, self.machine, self.environment, gpu).command
            process = RunProcess(folder, command)
            seconds = follow(process, order)
        record = finished_record(folder / kind.results / RESULTS_FILE)  # however its processes ended
        reason = "" if record is not None or process is None else process.failure()
        if record is not None:
            write_json(folder / RUN_FILE, {**run.content(), "seconds": record.get("seconds")})
            (folder / REASON_FILE).unlink(missing_ok=True)
        elif order.signal is None:
            write_bytes(folder / REASON_FILE, f"{reason}\n".encode())
        finished = record is not None
        kept = (*(MODELS if self.keep_models else ()), *TRACKED, RESULTS_FILE) if finished else TRACKED
        settle(folder, kind.results, kept, finished=finished)
        status = "finished" if finished else "failed" if order.signal is None else "stopped"
        return Ended(run, status, seconds, reason)

    def _write_job(self, kind: RunKind, run: PlannedRun, folder: Path) -> int:
        """Write the job of a run to its folder, emptied if another job has left anything there; return its sites."""
        with self._writing, tempfile.TemporaryDirectory(prefix="fdg-") as place:
            written = kind.write_job(run, self.data, Path(place))
            if not (folder / JOB / kind.job_file).exists() or not is_same_job(kind, folder, Path(place)):
                with writing(folder):
                    shutil.rmtree(folder, ignore_errors=True)
                    shutil.copytree(Path(place, JOB), folder / JOB)
        return written.sites


def pending(plan: Iterable[PlannedRun], store: Store, retry_failed: bool) -> list[PlannedRun]:
    """Return the runs of ``plan`` to execute: those neither finished nor, unless ``retry_failed``, failed."""
    states = ("to do", "failed") if retry_failed else ("to do",)
    return [run for run in plan if store.state(run.name) in states]
