# SPDX-License-Identifier: Apache-2.0
"""The folder of a sweep. Everything in ``runs/`` is complete: each run was moved there as a whole after it finished.

sweep.json               the request
runs/<name>/             job/, run.json, results.json, log.txt, and the models if they are kept
failed/<name>/           log.txt, reason.txt; checkpoints.txt, if the next try goes on from what this one has left
plugins/<name>.py        plug-in files that the runs use
running/<name>/          the working folder of a run; if it was interrupted or failed after some rounds, job/, log.txt
                         and state/ remain, and what MLflow or Weights & Biases have of it
"""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.flare.trackers import MLFLOW_FILE, WANDB_FOLDER
from fdg_plugins.lab.sweep.plan import PlannedRun
from fdg_plugins.lab.sweep.request import SweepFile, read_sweep_file
from fdg_plugins.plugins.files import check_names_differ
from fdg_plugins.record.checkpoint import CHECKPOINT_FILE, complete_rounds
from fdg_plugins.record.left_files import databases_in, gather
from fdg_plugins.record.run_files import LAST_FILE, LOCAL_FOLDER, RESULTS_FILE, SELECTED_FILE
from fdg_plugins.storage import locked, read_json, write_bytes, write_json, writing

SWEEP_FILE = "sweep.json"
RUN_FILE = "run.json"
LOG_FILE = "log.txt"
REASON_FILE = "reason.txt"
CHECKPOINTS_FILE = "checkpoints.txt"
MODEL_FILES = (LAST_FILE, SELECTED_FILE)
KEPT_MODELS = (*MODEL_FILES, LOCAL_FOLDER)
JOB = "job"
WORKSPACE = "workspace"
STATE = "state"
_OWN = {SWEEP_FILE, "runs", "failed", "running", "plugins", ".lock"}
_LOCK_FILE = ".lock"
_TRACKERS = (MLFLOW_FILE, WANDB_FOLDER)


class Store:
    """Folders and files of one sweep; reading needs no lock, everything else happens under :meth:`locked`.

    Writing methods raise ``DataError`` if they cannot write.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.runs = self.folder / "runs"
        self.failed = self.folder / "failed"
        self.running = self.folder / "running"
        self.plugins = self.folder / "plugins"

    def read(self) -> SweepFile | None:
        """Return the file of an existing sweep, None for a new folder; raise ``DataError`` for any other folder."""
        if not self.folder.exists():
            return None
        if not self.folder.is_dir():
            raise DataError(f"{self.folder} is not a folder, expected a new one or that of a sweep.")
        found = read_sweep_file(self.folder / SWEEP_FILE)
        if found is None:
            self._refuse_other_files()
        return found

    def check_unchanged(self, earlier: SweepFile | None) -> None:
        """Raise ``DataError`` if the file of the sweep is no longer ``earlier``, with which this one was planned."""
        if self.read() != earlier:
            raise DataError(f"another fdg sweep has written to {self.folder} meanwhile: give the command again.")

    def _refuse_other_files(self) -> None:
        if {path.name for path in self.folder.iterdir()} - _OWN:
            raise DataError(f"folder {self.folder} holds other things, expected a new one or that of a sweep.")

    def plugin_files(self, given: Sequence[Path]) -> list[Path]:
        """Return the plug-in files of the sweep: those that it keeps, and those ``given`` now.

        Raises ``DataError`` if a given file differs from the kept file of the same name, ``SettingsError`` if two given
        ones have one name.
        """
        check_names_differ(given)
        kept = {path.name: path for path in sorted(self.plugins.glob("*.py"))}
        for path in given:
            if path.name not in kept:
                kept[path.name] = path
            elif _content(path) != _content(kept[path.name]):
                raise DataError(
                    f"plug-in {path} is not the file {kept[path.name]} with which the sweep was begun, expected the "
                    "same content, or another folder with --to."
                )
        return list(kept.values())

    def keep_plugins(self, files: Sequence[Path]) -> None:
        """Keep a copy of each plug-in file, so the sweep can continue without the originals."""
        for path in files:
            write_bytes(self.plugins / path.name, _content(path))

    def write(self, content: SweepFile) -> None:
        """Replace ``sweep.json``."""
        write_json(self.folder / SWEEP_FILE, content.model_dump(mode="json"))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder for this process; raise ``DataError`` if another sweep holds the lock.

        The lock ends with the process, however it ends, and leaves nothing to remove by hand.
        """
        with ExitStack() as stack:
            with writing(self.folder):
                self.folder.mkdir(parents=True, exist_ok=True)
                try:
                    stack.enter_context(locked(self.folder / _LOCK_FILE, wait=False))
                except BlockingIOError as error:
                    raise DataError(f"folder {self.folder} is in use by another fdg sweep.") from error
            yield

    def is_finished(self, name: str) -> bool:
        """Return whether the run has finished."""
        return (self.runs / name).is_dir()

    def failure(self, name: str) -> str | None:
        """Return why the last try of the run failed; None if it did not."""
        return self._of_failed(name, REASON_FILE)

    def _of_failed(self, name: str, file: str) -> str | None:
        with suppress(OSError):
            return (self.failed / name / file).read_text(encoding="utf-8").strip()
        return None

    def seconds(self, name: str) -> float:
        """Return the duration of a finished run in seconds, from the start of its processes to their end."""
        value = read_json(self.runs / name / RUN_FILE)
        seconds = value.get("seconds") if isinstance(value, dict) else None
        if not isinstance(seconds, int | float):
            raise DataError(f"file {self.runs / name / RUN_FILE} has no seconds, expected what fdg sweep wrote.")
        return float(seconds)

    def begin(self, name: str) -> Path:
        """Return the working folder of a run: empty, or with what an interrupted run needs to go on."""
        working = self.running / name
        with writing(self.folder):
            _clear_working(working)
            working.mkdir(parents=True, exist_ok=True)
        return working

    def keep(self, run: PlannedRun, record_folder: Path, seconds: float, keep_models: bool) -> None:
        """Move a finished run from its working folder to ``runs/``, atomically.

        ``record_folder`` is the folder, within ``workspace`` of the working folder, that holds record and models. If
        this fails, the run stays where it is, and can be kept later.
        """
        working = self.running / run.name
        left = working / record_folder
        with writing(self.folder):
            write_json(working / RUN_FILE, {**run.content(), "seconds": round(seconds, 1)})
            # Who asks for the sites' models wants them, also without the global ones.
            local = (LOCAL_FOLDER,) if run.settings.get("keep_local_models") else ()
            gather(left, working, (*(KEPT_MODELS if keep_models else local), *_TRACKERS, RESULTS_FILE))
            self.runs.mkdir(exist_ok=True)
            working.rename(self.runs / run.name)
            _clear_kept(self.runs / run.name)
            shutil.rmtree(self.failed / run.name, ignore_errors=True)
            self._tidy()

    def seconds_of_finished(self, name: str, record_folder: Path) -> float | None:
        """Return the duration of a run that has finished and is still in its working folder; None for any other."""
        working = self.running / name
        found = map(finished_record, (working / record_folder / RESULTS_FILE, working / RESULTS_FILE))
        return next((float(record.get("seconds") or 0) for record in found if record is not None), None)

    def fail(self, name: str, reason: str) -> None:
        """Keep the log of a failed run and the reason, replacing those of an earlier try.

        What the run can go on from stays in its working folder for the next try, unless this one began there and came
        no further: the next begins anew then.
        """
        working, target = self.running / name, self.failed / name
        began_from, goes_on_from = self._of_failed(name, CHECKPOINTS_FILE), _checkpoints(working)
        with writing(self.folder):
            self.failed.mkdir(exist_ok=True)
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir()
            if (log := working / LOG_FILE).exists():
                shutil.copy2(log, target)
            write_bytes(target / REASON_FILE, f"{reason}\n".encode())
            if goes_on_from and goes_on_from != began_from:
                write_bytes(target / CHECKPOINTS_FILE, goes_on_from.encode())
                _clear_working(working)
            else:
                shutil.rmtree(working)
            self._tidy()

    def clear(self) -> None:
        """Clear the working folders, all of whose processes have ended, of what no interrupted run goes on with.

        One that holds a finished run, which could not be kept, stays as it is.
        """
        for working in self.running.glob("*"):
            if not any(map(finished_record, _records_in(working))):
                _clear_working(working)
        for kept in self.runs.glob("*"):
            _clear_kept(kept)
        self._tidy()

    def _tidy(self) -> None:
        """Remove empty folders."""
        for folder in (self.running, self.failed):
            with suppress(OSError):
                folder.rmdir()


def check_folder(folder: Path) -> None:
    """Reject a path that FLARE's simulator would split: it inserts the path into a command line without quotes."""
    if odd := sorted({sign for sign in str(folder.absolute()) if sign.isspace() or sign in "\"'\\#"}):
        raise SettingsError(
            f"folder {str(folder.absolute())!r} has {odd[0]!r} in its path, which FLARE's simulator cannot take."
        )


def can_resume(working: Path) -> bool:
    """Return whether a run has left in its working folder what it needs to go on after its last complete round."""
    return any((working / STATE).glob(f"*/*/*/{CHECKPOINT_FILE}"))


def _checkpoints(working: Path) -> str:
    """Return how far the checkpoints in a working folder are, by complete rounds; empty if there are none.

    A run that goes on from one writes it anew before its next round, so the time of the file tells nothing.
    """
    found = sorted((working / STATE).glob(f"*/*/*/{CHECKPOINT_FILE}"))
    return "\n".join(f"{file.relative_to(working)} after round {complete_rounds(file)}" for file in found)


def _clear_working(working: Path) -> None:
    """Remove a working folder, or all of it that a run which can be resumed does not need."""
    kept = _needed_to_go_on(working) if can_resume(working) else set()
    for path in working.glob("*"):
        if path.name not in kept:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    with suppress(OSError):  # if there is none, or it is not empty
        working.rmdir()


def _needed_to_go_on(working: Path) -> set[str]:
    """Return what stays of an interrupted run that goes on, after moving there what its trackers have kept."""
    for record in _records_in(working):
        if record.parent != working:
            gather(record.parent, working, _TRACKERS)
    return {JOB, LOG_FILE, STATE, WANDB_FOLDER, *databases_in(working)}


def finished_record(file: Path) -> dict[str, Any] | None:
    """Return the content of a run's record, unchecked, if it says that the run has finished; None otherwise.

    A run writes that last: its models are complete then.
    """
    try:
        content = read_json(file)
    except DataError:
        return None
    return content if isinstance(content, dict) and content.get("status") == "finished" else None


def _records_in(working: Path) -> Iterator[Path]:
    """Yield the places in a working folder at which a run of any kind may have left its record."""
    yield working / RESULTS_FILE
    yield working / WORKSPACE / RESULTS_FILE
    yield from (working / WORKSPACE).glob(f"*/*/{RESULTS_FILE}")


def _clear_kept(folder: Path) -> None:
    """Remove from the folder of a run that was kept what only its execution needed."""
    for name in (WORKSPACE, STATE):
        shutil.rmtree(folder / name, ignore_errors=True)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"plug-in file {path} cannot be read: {error.strerror}.") from error
