# SPDX-License-Identifier: Apache-2.0
"""Finished models, to be evaluated at sites that never trained, and the record of an evaluation.

A finished model is a safetensors file beside the record of its run; the record is ``evaluation.json``.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import pydantic

from fdg_plugins.core.bootstrap import GAINS, PAIRED
from fdg_plugins.data import dataset_spec
from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.messages import ModelScores
from fdg_plugins.plugins.own_dataset import DatasetRef, plain_dataset, plain_name
from fdg_plugins.record.round_record import Recorded
from fdg_plugins.record.run_files import LAST_FILE, LOCAL_FOLDER, RESULTS_FILE, SELECTED_FILE
from fdg_plugins.record.run_record import RunRecord
from fdg_plugins.settings.protocol import EVERY, Protocol
from fdg_plugins.storage import read_json
from fdg_plugins.tasks import TASKS, Counts, ScoreKind, Task

# Where the task has them.
SCORES = ("auroc", "auprc", "f1", "balanced_accuracy", "calibration_error", "hausdorff_95")
# Of a run's protocol, what makes the network and its input; all else is alike for the models of one evaluation.
_OF_THE_MODEL = (
    *("task", "model", "head", "normalization", "batch_norm", "objective", "image_size", "travels", "trainable"),
    *("adapter_rank", "preset"),
)


class FinishedModel(NamedTuple):
    """A model's ``name``, which is that of its folder, its file, and the record of its run."""

    name: str
    file: Path
    record: RunRecord

    @property
    def source_domains(self) -> tuple[str, ...]:
        """The domains on which it was trained."""
        return tuple(sorted({self.record.census[site].domain for site in self.record.sources}))

    def trained_on(self, dataset: DatasetRef, domain: str, *, stand_in: bool) -> bool:
        """Return whether the domain of a data set, by name, was one of its sources."""
        own = self.record.protocol.dataset
        return (str(own), self.record.stand_in) == (str(dataset), stand_in) and domain in self.source_domains

    def protocol(self, dataset: DatasetRef, models: int) -> Protocol:
        """Return the protocol by which sites evaluate it as one of so many ``models`` on ``dataset``."""
        own = self.record.protocol
        values = {name: getattr(own, name) for name in _OF_THE_MODEL}
        values["preset"] = own.preset or getattr(dataset_spec(own.dataset), "preset", "")
        asked = dict.fromkeys((*SCORES, *own.scores))  # a run's own may add a sensitivity, of the same counts
        values["scores"] = [name for name in asked if TASKS.get(own.task).kind_asked(name) is not None]
        return Protocol(dataset=plain_dataset(dataset), target=EVERY, rounds=models, **values)


def read_model(path: Path) -> FinishedModel:
    """Return the model in a run's folder, which is the source-selected one if the run kept it, or in a file there.

    A file may also be one of the sites' own models of the run, in its ``local_models/``.

    Raises ``DataError`` if the file or the record beside it is missing or unreadable, or the run has not finished.
    """
    kept = [path / name for name in (SELECTED_FILE, LAST_FILE) if (path / name).is_file()]
    file = kept[0] if kept else path
    if file.suffix != ".safetensors" or not file.is_file():
        expected = f"a run's folder with {SELECTED_FILE}, or a safetensors file beside its {RESULTS_FILE}"
        raise DataError(field="model", value=path, expected=expected)
    folder = file.resolve().parent
    folder = folder.parent if folder.name == LOCAL_FOLDER else folder
    results = folder / RESULTS_FILE
    record = RunRecord.read(read_json(results), f"file {results}", DataError)
    if record.status != "finished" or record.protocol.plugins or {*record.sources} - record.census.keys():
        expected = "the record of a finished run without plug-in files of the job"
        raise DataError(field=f"run {folder}", value=record.status, expected=expected)
    return FinishedModel(plain_name(folder.name if kept else f"{folder.name}-{file.stem}"), file, record)


def check_models(models: Sequence[FinishedModel], dataset: DatasetRef) -> None:
    """Raise ``SettingsError`` for a model that does not take the images of ``dataset`` or has other classes.

    Two models need different names.
    """
    spec = dataset_spec(dataset)
    for number, model in enumerate(models):
        own = dataset_spec(model.record.protocol.dataset)
        for field, value, expected in (
            ("classes", model.record.classes, spec.classes),
            ("task", model.record.protocol.task, spec.task),
            ("channels", own.channels, spec.channels),
            ("dims", own.dims, spec.dims),
            ("name", model.name, None if model.name in [one.name for one in models[:number]] else model.name),
        ):
            if value != expected:
                expected = f"{expected}, as in {spec.name}" if expected else "another for each model"
                raise SettingsError(field=field, site=f"model {model.name}", value=value, expected=str(expected))


class EvaluatedModel(Recorded):
    """A model: the SHA-256 of its file, its method, the data and the domains on which it was trained."""

    name: str
    sha256: str
    method: str
    trained_on: str
    sources: tuple[str, ...]


class SiteScores(Recorded):
    """What one site counted of the models by name; ``failures``: why it did not evaluate one."""

    domain: str
    images: int
    models: dict[str, ModelScores] = pydantic.Field(default_factory=dict)
    failures: dict[str, str] = pydantic.Field(default_factory=dict)


class EvaluationResult(Recorded):
    """The content of ``evaluation.json``; ``left_out``: the sites that evaluated none of the models, with the reason.

    No selection rule reads it.
    """

    schema_version: Literal[1] = 1
    job: str
    started: str
    task: str
    scores: tuple[str, ...]
    data: str
    stand_in: bool
    classes: tuple[str, ...]
    models: tuple[EvaluatedModel, ...]
    sites: dict[str, SiteScores]
    left_out: dict[str, str]
    versions: dict[str, str]

    @property
    def learned(self) -> Task:
        """The task, with the scores that are computed from counts."""
        return TASKS.get(self.task).asked(self.scores)

    @property
    def score(self) -> ScoreKind:
        """The score by which models are compared."""
        return self.learned.score

    def checked(self, site: str, number: int, found: ModelScores) -> Counts:
        """Return a site's counts of a model; raise ``ValueError`` if they contradict each other, or those before."""
        own, task, classes = self.sites[site], self.learned, len(self.classes)
        if found.count != own.images:
            raise ValueError(f"it evaluated {found.count} images, but counted {own.images} in the census")
        if any(one >= classes for one in found.withheld):
            raise ValueError(f"withheld is {[*found.withheld]}, expected numbers of its {classes} classes")
        sums = {name: (one.sum, one.count) for name, one in found.sums.items()}
        counts = task.checked(sums, found.counts, found.count, classes, whole=not found.withheld)
        if any(int(other) >= number for other in found.pairs):
            raise ValueError(f"it compares model {self.models[number].name} with one that it has not seen")
        for at, model in enumerate(self.models[:number]):
            if model.name in own.models:
                _check_pair(found, str(at), own.models[model.name], task)
        return counts

    def counts(self, scores: Iterable[ModelScores]) -> Counts:
        """Return a model's counts, added up over sites."""
        each = [self.learned.read_counts(one.counts, len(self.classes)) for one in scores]
        return {name: np.sum([one[name] for one in each], axis=0) for name in self.learned.reads}


def _check_pair(found: ModelScores, number: str, earlier: ModelScores, task: Task) -> None:
    """Raise ``ValueError`` if the images counted of a pair of models contradict the scores of the two."""
    before, after = (one.sums[task.score.name].sum for one in (earlier, found))
    pair, by_class = found.pairs.get(number, ()), task.one_class_per_image
    if by_class and len(pair) == len(PAIRED):
        fits = (pair[0] + pair[1], pair[0] + pair[2], sum(pair)) == (before, after, found.count)
    elif not by_class and len(pair) == len(GAINS):
        rounding = found.count * (GAINS[1] - GAINS[0])
        fits = sum(pair) == found.count and abs(np.dot(pair, GAINS) - after + before) <= rounding
    else:
        fits = not by_class and not pair  # a task may have no score of an image
    if not fits:
        raise ValueError(f"its counts of images beside model {number} do not add up")
