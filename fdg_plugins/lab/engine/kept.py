# SPDX-License-Identifier: Apache-2.0
"""What the folder of a run says about it (``run.json``), and the job there as that of a run to be resumed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pydantic

from fdg_plugins.errors import DataError, first_problem
from fdg_plugins.lab.engine import EngineName
from fdg_plugins.lab.engine.sources import Asked, FolderJob, JobSource
from fdg_plugins.lab.sweep.folder import JOB, RUN_FILE
from fdg_plugins.lab.sweep.kinds import Job
from fdg_plugins.lab.sweep.machine import THREADS
from fdg_plugins.lab.sweep.plan import DataFound, PlannedRun
from fdg_plugins.lab.sweep.prepare import pretrained_digest
from fdg_plugins.lab.sweep.processes import Launch
from fdg_plugins.plugins.own_dataset import DatasetRef
from fdg_plugins.settings.protocol import OTHER_VARIABLES, PREFIX
from fdg_plugins.storage import named_path, read_json

# Variables of the machine that the user has given with the run, by --dataset and FDG_TRACKING.
GIVEN = ("FDG_DATASET_FILE", "FDG_TRACKING")

# Variables on which the bits of a run depend, or the images that it uses.
OF_MACHINE = ("FDG_DEVICE", "FDG_COMPILE", "FDG_DAMAGED_IMAGES", "FDG_MAX_IMAGE_PIXELS")
WEIGHTS, DIGEST = "FDG_PRETRAINED_FILE", "FDG_PRETRAINED_SHA256"


class KeptRun(pydantic.BaseModel):
    """The content of ``run.json``.

    The first fields are those of the :class:`~fdg_plugins.lab.sweep.plan.PlannedRun`. ``variables`` are the ``FDG_*``
    variables that set the protocol and the method, or name the file of a data set of the user's own; ``plugins``
    are the plug-in files of the command line; ``seconds`` is the time spent so far. ``at_once`` sites computed at a
    time, each with ``threads`` threads (``FDG_THREADS``), on which the bits of its arithmetic depend. ``machine``:
    the user's other variables of that kind (:data:`OF_MACHINE`), and the file with pretrained weights with its
    SHA-256. ``stand_in``: whether the images are the STAND-IN; None: unknown.
    """

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    name: str
    dataset: DatasetRef
    protocol: str
    method: str
    target: str
    seed: int
    settings: dict[str, Any]
    title: str
    engine: EngineName
    variables: dict[str, str] = {}
    plugins: tuple[str, ...] = ()
    seconds: float = 0.0
    at_once: int | None = None
    threads: str | None = None
    machine: dict[str, str] = {}
    stand_in: bool | None = None

    def after(self, seconds: float) -> dict[str, Any]:
        """Return the content of the file once the run has gone on for ``seconds``, as a JSON value."""
        return {**self.model_dump(mode="json"), "seconds": round(self.seconds + seconds, 1)}

    def launched(self, launch: Launch, data: DataFound) -> "KeptRun":
        """Return what the file says of the run on ``data`` as an engine is asked to execute it."""
        threads = launch.environment[THREADS]
        return self.model_copy(update={"at_once": launch.at_once, "threads": threads, "stand_in": data.stand_in})


def describe(source: JobSource, engine: EngineName, plugins: tuple[str, ...] = ()) -> KeptRun:
    """Return what ``run.json`` says of the run of a job."""
    variables = {
        name: value
        for name, value in source.environment.items()
        if name.startswith(PREFIX) and (name not in OTHER_VARIABLES or name in GIVEN)
    }
    machine = {name: source.environment[name] for name in OF_MACHINE if source.environment.get(name, "").strip()}
    if (weights := named_path(WEIGHTS, source.environment)) is not None:
        machine |= {WEIGHTS: str(weights), DIGEST: pretrained_digest(source.environment)}
    of_run: dict[str, Any] = {**source.run._asdict(), "title": source.title, "engine": engine}
    return KeptRun(**of_run, variables=variables, plugins=plugins, machine=machine)


def read_kept(folder: Path) -> KeptRun:
    """Return what ``run.json`` in the folder of a run says; raise ``DataError`` if it is not the folder of a run."""
    try:
        return KeptRun.model_validate(read_json(folder / RUN_FILE))
    except pydantic.ValidationError as error:
        raise DataError(f"file {folder / RUN_FILE} is not what fdg run writes: {first_problem(error)}") from error


def check_same_data(folder: Path, kept: KeptRun, data: DataFound) -> None:
    """Raise ``DataError`` if the run in ``folder`` was on real images and ``data`` are the STAND-IN, or the reverse."""
    if kept.stand_in not in (None, data.stand_in):
        then, now = ("the STAND-IN", "real images") if kept.stand_in else ("real images", "the STAND-IN")
        expected = "expected the same --data-root (FDG_DATA_ROOT)."
        raise DataError(f"the run in {folder} is on {then}, and this command finds {now}: {expected}")


class KeptJob(FolderJob):
    """The job in the folder of a run, which is not written again; ``kept`` says what it was asked for as.

    Sites compute on the device and with as many threads as before, unless ``environment`` has others.
    """

    def __init__(self, folder: Path, kept: KeptRun, environment: Mapping[str, str]) -> None:
        before = {**kept.machine, **({} if kept.threads is None else {THREADS: kept.threads})}
        super().__init__(Asked(str(folder / JOB)), {**before, **environment}, kept.variables)
        self.run = PlannedRun(**{name: getattr(kept, name) for name in PlannedRun._fields})
        self.title = kept.title

    def job(self, *, stand_in: bool) -> Job:
        """Return the job, which exists already."""
        return super().job(stand_in=stand_in)._replace(write=lambda folder: None)
