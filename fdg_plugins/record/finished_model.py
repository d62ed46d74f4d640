# SPDX-License-Identifier: Apache-2.0
"""A finished model: a safetensors file beside the record of its run, to be evaluated at sites that never trained."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pydantic
import torch

from fdg_plugins.data import dataset_spec
from fdg_plugins.errors import DataError, SettingsError, first_problem
from fdg_plugins.plugins.own_dataset import DatasetRef, plain_dataset, plain_name
from fdg_plugins.record.run_files import LAST_FILE, RESULTS_FILE, SELECTED_FILE
from fdg_plugins.record.run_record import RunRecord
from fdg_plugins.settings.protocol import EVERY, Protocol
from fdg_plugins.storage import load_tensors, read_json, sha256_of
from fdg_plugins.tasks import TASKS

SCORES = ("auroc", "auprc", "f1", "balanced_accuracy", "calibration_error")  # where the task has them
SUFFIX = ".safetensors"
# What one evaluation has in common for all models, so that they see the same images: not what they were trained with.
_ALIKE = (
    *("seed", "max_samples_per_domain", "partition", "sites_per_domain", "precision", "channels_last"),
    *("selected_by", "sites_per_round"),
)


@dataclass(frozen=True)
class FinishedModel:
    """A model's ``name``, which is that of its folder, its file, and the record of its run."""

    name: str
    file: Path
    record: RunRecord

    @property
    def sha256(self) -> str:
        """The SHA-256 of the file."""
        return sha256_of(self.file)

    @property
    def source_domains(self) -> tuple[str, ...]:
        """The domains on which it was trained."""
        return tuple(sorted({self.record.census[site].domain for site in self.record.sources}))

    def state(self) -> dict[str, torch.Tensor]:
        """Return its parameters and buffers; raise ``DataError`` if the file is not a safetensors file."""
        return load_tensors(self.file)

    def trained_on(self, dataset: DatasetRef, domain: str, *, stand_in: bool) -> bool:
        """Return whether the domain of a data set, by name, was one of its sources."""
        own = self.record.protocol.dataset
        return (str(own), self.record.stand_in) == (str(dataset), stand_in) and domain in self.source_domains

    def protocol(self, dataset: DatasetRef, models: int) -> Protocol:
        """Return the protocol by which sites evaluate it as one of so many ``models`` on ``dataset``."""
        defaults = {name: Protocol.model_fields[name].default for name in _ALIKE}
        own = self.record.protocol
        preset = own.preset or getattr(dataset_spec(own.dataset), "preset", "")
        scores = [name for name in SCORES if TASKS.get(own.task).kind_asked(name) is not None]
        given = {
            "dataset": plain_dataset(dataset),
            "target": EVERY,
            "rounds": models,
            "preset": preset,
            "scores": scores,
        }
        return Protocol.model_validate({**own.model_dump(mode="json"), **defaults, **given})


def read_model(path: Path) -> FinishedModel:
    """Return the model in a run's folder, which is the source-selected one if the run kept it, or in a file there.

    Raises ``DataError`` if the file or the record beside it is missing or unreadable, or the run has not finished.
    """
    if path.is_dir():
        file = next((path / name for name in (SELECTED_FILE, LAST_FILE) if (path / name).is_file()), path / LAST_FILE)
    else:
        file = path
    if file.suffix != SUFFIX or not file.is_file():
        raise DataError(field="model", value=path, expected=f"a run's folder with {SELECTED_FILE}, or a {SUFFIX} file")
    try:
        record = RunRecord.model_validate(read_json(file.with_name(RESULTS_FILE)))
    except pydantic.ValidationError as error:
        raise DataError(f"file {file.with_name(RESULTS_FILE)}: {first_problem(error)}") from error
    if record.status != "finished" or {*record.sources} - record.census.keys():
        raise DataError(field=f"status of {file.parent}", value=record.status, expected="the record of a finished run")
    if record.protocol.plugins:
        expected = "a model that needs no code of the job's own"
        raise DataError(field=f"plugins of {file.parent}", value=record.protocol.plugins, expected=expected)
    parts = [file.resolve().parent.name, *([] if path.is_dir() else [file.stem])]
    return FinishedModel(plain_name("-".join(parts)), file, record)


def check_alike(models: Sequence[FinishedModel]) -> None:
    """Raise ``SettingsError`` unless the models have different names and the same task and classes."""
    first, *others = models
    names = {first.name}
    for other in others:
        for field, own, expected in (
            ("task", other.record.protocol.task, first.record.protocol.task),
            ("classes", other.record.classes, first.record.classes),
        ):
            if own != expected:
                raise SettingsError(f"{field} of model {other.name!r}", field=field, value=own, expected=str(expected))
        if other.name in names:
            raise SettingsError(field="name of a model", value=other.name, expected="another for each model")
        names.add(other.name)


def check_images(model: FinishedModel, dataset: DatasetRef) -> None:
    """Raise ``SettingsError`` if the model does not take the images of ``dataset``, or has other classes."""
    spec, own = dataset_spec(dataset), dataset_spec(model.record.protocol.dataset)
    for field, value, expected in (
        ("classes", spec.classes, model.record.classes),
        ("task", spec.task, model.record.protocol.task),
        ("channels", spec.channels, own.channels),
        ("dims", spec.dims, own.dims),
    ):
        if value != expected:
            raise SettingsError(
                field=f"{field} of {spec.name}", value=value, expected=f"{expected}, as of {model.name}"
            )
