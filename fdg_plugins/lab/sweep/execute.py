# SPDX-License-Identifier: Apache-2.0
"""Execute the runs of a plan, several at once: each is kept or reported as failed; a stop takes effect in a second.

The folder of a sweep holds ``sweep.json`` (the request), ``plugins/`` (copies of the plug-in files that the runs use)
and ``runs/<name>/``, the folder of each run (:mod:`~fdg_plugins.lab.sweep.run`). A run whose record is there has
finished, since it is moved there last; one that failed has ``reason.txt``.
"""

import shutil
import signal
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from threading import Lock

from rich.console import Console
from rich.text import Text

from fdg_plugins.errors import DataError
from fdg_plugins.lab.sweep.jobs import make_job
from fdg_plugins.lab.sweep.machine import ENGINES, EngineName, Machine, launch
from fdg_plugins.lab.sweep.plan import PlannedRun, SweepFile
from fdg_plugins.lab.sweep.run import (
    JOB,
    RUN_FILE,
    Ending,
    StopOrder,
    carry_out,
    end_earlier,
    end_processes,
    finished_record,
    settle,
)
from fdg_plugins.record.run_files import LAST_FILE, LOCAL_FOLDER, RESULTS_FILE, SELECTED_FILE, TRACKED
from fdg_plugins.record.text import duration
from fdg_plugins.storage import read_json, write_bytes, write_json, writing

REASON_FILE = "reason.txt"  # why the last try of a run failed
MODELS = (LAST_FILE, SELECTED_FILE, LOCAL_FOLDER)
Tell = Callable[[str, Ending | None], None]


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


@dataclass(frozen=True)
class Runner:
    """Executes runs in the folder of ``store``, whose lock the caller holds; ``stand_in``: on the stand-in.

    ``environment`` is that of all runs. ``tell`` is called with each run's name as it starts, and with how it ended.
    """

    store: Store
    machine: Machine
    stand_in: bool
    environment: Mapping[str, str]
    tell: Tell
    keep_models: bool = False
    _writing: Lock = field(default_factory=Lock)  # recipes and plug-ins are for one thread at a time

    def carry_out(self, runs: Iterable[PlannedRun], order: StopOrder) -> dict[str, Ending]:
        """Execute ``runs``, as many at a time as the machine has slots; return how those that were started ended.

        A failed run does not stop the others. When this returns or raises, no process of any run is left.
        """
        free: SimpleQueue[str | None] = SimpleQueue()
        for gpu in self.machine.gpus:
            free.put(gpu)
        end_processes(self.store.runs)  # of an earlier sweep in this folder that was killed
        ended: dict[str, Ending] = {}

        def carry(run: PlannedRun) -> None:
            if order.signal is not None:
                return
            gpu = free.get()
            try:
                self.tell(run.name, None)
                ended[run.name] = self._execute(run, gpu, order)
                self.tell(run.name, ended[run.name])
            finally:
                free.put(gpu)

        with ThreadPoolExecutor(len(self.machine.gpus)) as pool:
            futures = [pool.submit(carry, run) for run in runs]
            if wait(futures, return_when=FIRST_EXCEPTION).not_done:
                order.signal = order.signal or signal.SIGTERM  # one has raised an error, so the others end, too
            for future in futures:
                future.result()
        return ended

    def _execute(self, run: PlannedRun, gpu: str | None, order: StopOrder) -> Ending:
        """Execute one run, or only keep it if its processes have finished it after the sweep had been killed."""
        engine, folder = ENGINES[EngineName.PROCESS], self.store.runs / run.name
        sites, ending = self._write_job(run, folder), Ending()
        if not end_earlier(folder, engine.results):
            ending = carry_out(launch(engine, folder, sites, self.machine, self.environment, gpu), folder, order)
        record = finished_record(folder / engine.results / RESULTS_FILE)
        kept: tuple[str, ...] = ()
        if record is not None:
            write_json(folder / RUN_FILE, {**run.model_dump(mode="json"), "seconds": record.get("seconds")})
            (folder / REASON_FILE).unlink(missing_ok=True)
            kept = (*(MODELS if self.keep_models else ()), RESULTS_FILE)
        elif ending.status == "failed":
            write_bytes(folder / REASON_FILE, f"{ending.reason}\n".encode())
        settle(folder, engine.results, (*TRACKED, *kept), finished=record is not None)
        return ending

    def _write_job(self, run: PlannedRun, folder: Path) -> int:
        """Write the job of a run to its folder, emptied if another job has left anything there; return its sites."""
        with self._writing, tempfile.TemporaryDirectory(prefix="fdg-") as place:
            job = make_job(run, stand_in=self.stand_in)
            job.write(Path(place))
            there, wanted = (one / JOB / job.file for one in (folder, Path(place)))
            if not there.exists() or read_json(there) != read_json(wanted):
                with writing(folder):
                    shutil.rmtree(folder, ignore_errors=True)
                    shutil.copytree(Path(place, JOB), folder / JOB)
        return job.sites


def printing(plan: Sequence[PlannedRun], store: Store, console: Console) -> Tell:
    """Return what prints a line for each run that starts or ends, with the number of runs that have finished."""
    done = sum(store.state(run.name) == "finished" for run in plan)

    def tell(name: str, ending: Ending | None) -> None:
        nonlocal done
        text = "started"
        if ending is not None:
            done += ending.reason is None
            failed = ending.status == "failed"
            text = f"FAILED: {ending.reason}" if failed else f"{ending.status} after {duration(ending.seconds)}"
        console.print(Text(f"[{done}/{len(plan)}] {name} {text}"), soft_wrap=True)

    return tell
