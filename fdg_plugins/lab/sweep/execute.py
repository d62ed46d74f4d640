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
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from types import FrameType
from typing import NamedTuple

from rich.console import Console
from rich.text import Text

from fdg_plugins.errors import DataError
from fdg_plugins.lab.sweep.folder import JOB, RUN_FILE, end_earlier, settle
from fdg_plugins.lab.sweep.kinds import RunKind, kind_of, launch
from fdg_plugins.lab.sweep.machine import Machine
from fdg_plugins.lab.sweep.plan import PlannedRun, SweepFile
from fdg_plugins.lab.sweep.processes import RunProcess, end_processes, finished_record
from fdg_plugins.record.run_files import LAST_FILE, LOCAL_FOLDER, RESULTS_FILE, SELECTED_FILE, TRACKED
from fdg_plugins.record.text import duration
from fdg_plugins.storage import read_json, write_bytes, write_json, writing

POLL_S = 0.2
REASON_FILE = "reason.txt"  # why the last try of a run failed
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
    """Wait until a run ends, or ``order`` ends it; return its seconds. No process of it is left then."""
    try:
        while order.signal is None and not process.has_ended():
            look()
            time.sleep(POLL_S)
        return process.seconds
    finally:
        process.end()  # also those that FLARE's simulator leaves behind


class Store:
    """The folder of one sweep; methods that write raise ``DataError`` if they cannot."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.runs, self.plugins, self.lock = (self.folder / name for name in ("runs", "plugins", ".lock"))
        self._file = self.folder / "sweep.json"

    def read(self) -> SweepFile | None:
        """Return the file of an existing sweep, None for a new folder; raise ``DataError`` for any other folder."""
        if not self._file.exists():
            if {path.name for path in self.folder.glob("*")} - {".lock", "plugins"}:
                raise DataError(f"folder {self.folder} holds other things, expected a new one or that of a sweep.")
            return None
        return SweepFile.read(read_json(self._file), f"file {self._file} is not what fdg sweep wrote", DataError)

    def plugin_files(self, given: Sequence[Path]) -> list[Path]:
        """Return the plug-in files of the sweep: those that it keeps, and those ``given`` now.

        Raises ``DataError`` if a given file differs from the kept file of the same name.
        """
        kept = {path.name: path for path in sorted(self.plugins.glob("*.py"))}
        for path in given:
            if kept.setdefault(path.name, path).read_bytes() != path.read_bytes():
                raise DataError(f"plug-in {path} differs from {kept[path.name]}, expected the same, or a new sweep.")
        return list(kept.values())

    def write(self, content: SweepFile, plugins: Sequence[Path]) -> None:
        """Replace ``sweep.json``, and keep copies of plug-in files, so the sweep can go on without the originals."""
        for path in plugins:
            write_bytes(self.plugins / path.name, path.read_bytes())
        write_json(self._file, content.model_dump(mode="json"))

    def state(self, name: str) -> str:
        """Return ``finished``, ``failed`` or ``to do``."""
        if (self.runs / name / RESULTS_FILE).is_file():
            return "finished"
        return "failed" if (self.runs / name / REASON_FILE).exists() else "to do"


class Ended(NamedTuple):
    """How a run ended: ``finished``, ``failed`` or ``stopped``, after how many seconds, and why it failed."""

    name: str
    status: str
    seconds: float = 0.0
    reason: str = ""


@dataclass(frozen=True)
class Runner:
    """Executes runs in the folder of ``store``, whose lock the caller holds; ``stand_in``: on the stand-in.

    ``environment`` is that of all runs. ``tell`` is called with each run as it starts and when it has ended.
    """

    store: Store
    machine: Machine
    stand_in: bool
    environment: Mapping[str, str]
    tell: Callable[[PlannedRun | Ended], None]
    keep_models: bool = False
    _writing: Lock = field(default_factory=Lock)  # recipes and plug-ins are for one thread at a time

    def carry_out(self, runs: Iterable[PlannedRun], order: StopOrder) -> list[Ended]:
        """Execute ``runs``, as many at a time as the machine has slots; return how those that were started ended.

        A failed run does not stop the others. When this returns or raises, no process of any run is left.
        """
        free: SimpleQueue[str | None] = SimpleQueue()
        for gpu in self.machine.gpus:
            free.put(gpu)
        end_processes(self.store.runs)  # of an earlier sweep in this folder that was killed

        def carry(run: PlannedRun) -> Ended | None:
            if order.signal is not None:
                return None
            gpu = free.get()
            try:
                self.tell(run)
                ended = self._execute(run, gpu, order)
                self.tell(ended)
                return ended
            finally:
                free.put(gpu)

        with ThreadPoolExecutor(len(self.machine.gpus)) as pool:
            futures = [pool.submit(carry, run) for run in runs]
            if wait(futures, return_when=FIRST_EXCEPTION).not_done:
                order.signal = order.signal or signal.SIGTERM  # one has raised an error, so the others end, too
            return [ended for future in futures if (ended := future.result()) is not None]

    def _execute(self, run: PlannedRun, gpu: str | None, order: StopOrder) -> Ended:
        """Execute one run, or only keep it if its processes have finished it after the sweep had been killed."""
        kind, folder = kind_of(run.method), self.store.runs / run.name
        sites, seconds, why = self._write_job(kind, run, folder), 0.0, ""
        if not end_earlier(folder, kind.results):
            process = RunProcess(folder, launch(kind, run, folder, sites, self.machine, self.environment, gpu))
            seconds = follow(process, order)
            why = process.failure()
        record = finished_record(folder / kind.results / RESULTS_FILE)  # however its processes ended
        if record is not None:
            write_json(folder / RUN_FILE, {**run.content(), "seconds": record.get("seconds")})
            (folder / REASON_FILE).unlink(missing_ok=True)
        elif order.signal is None:
            write_bytes(folder / REASON_FILE, f"{why}\n".encode())
        kept = () if record is None else (*(MODELS if self.keep_models else ()), RESULTS_FILE)
        settle(folder, kind.results, (*TRACKED, *kept), finished=record is not None)
        status = "finished" if record is not None else "failed" if order.signal is None else "stopped"
        return Ended(run.name, status, seconds, "" if status == "finished" else why)

    def _write_job(self, kind: RunKind, run: PlannedRun, folder: Path) -> int:
        """Write the job of a run to its folder, emptied if another job has left anything there; return its sites."""
        with self._writing, tempfile.TemporaryDirectory(prefix="fdg-") as place:
            job = kind.job(run, stand_in=self.stand_in)
            job.write(Path(place))
            there, wanted = (one / JOB / kind.job_file for one in (folder, Path(place)))
            if not there.exists() or read_json(there) != read_json(wanted):
                with writing(folder):
                    shutil.rmtree(folder, ignore_errors=True)
                    shutil.copytree(Path(place, JOB), folder / JOB)
        return job.sites


def printing(plan: Sequence[PlannedRun], store: Store, console: Console) -> Callable[[PlannedRun | Ended], None]:
    """Return what prints a line for each run that starts or ends, with the number of runs that have finished."""
    done = sum(store.state(run.name) == "finished" for run in plan)

    def tell(event: PlannedRun | Ended) -> None:
        nonlocal done
        text = "started"
        if isinstance(event, Ended):
            done += event.status == "finished"
            failed = event.status == "failed"
            text = f"FAILED: {event.reason}" if failed else f"{event.status} after {duration(event.seconds)}"
        console.print(Text(f"[{done}/{len(plan)}] {event.name} {text}"), soft_wrap=True)

    return tell
