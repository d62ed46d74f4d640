# SPDX-License-Identifier: Apache-2.0
"""The inputs of a figure of one run in addition to its record: the run's models, and images of its domains."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch

from fdg_plugins.data import (
    DatasetSpec,
    DomainData,
    ImageBatches,
    Sample,
    dataset_spec,
    evaluation_batches,
    find_data_root,
    open_domain,
    without_damaged,
)
from fdg_plugins.data.decoding import MOST_PIXELS
from fdg_plugins.data.splits import equal_name
from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.lab.analysis.runs import Run
from fdg_plugins.messages import CensusReply
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives import build_network
from fdg_plugins.record.run_files import LAST_FILE, SELECTED_FILE
from fdg_plugins.storage import load_tensors
from fdg_plugins.values import shorten

State = Mapping[str, torch.Tensor]
Batches = list[tuple[torch.Tensor, torch.Tensor]]

BATCH = 64


def device() -> torch.device:
    """Return the fastest device of this machine."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def empty_model(run: Run) -> ExtractorClassifier:
    """Return the run's network, into which its models are loaded."""
    return build_network(run.record.protocol, len(run.record.classes))


def read_model(run: Run, file: Path) -> dict[str, torch.Tensor]:
    """Return the state dict in ``file``; raise ``DataError`` if it cannot be read or belongs to another network."""
    state = load_tensors(file)
    expected = {name: tuple(value.shape) for name, value in empty_model(run).state_dict().items()}
    found = {name: tuple(value.shape) for name, value in state.items()}
    if found != expected:
        name = min(set(expected.items()) ^ set(found.items()))[0]
        raise DataError(
            f"file {file} does not hold {run.record.protocol.model}: parameter {name!r} has shape {found.get(name)}, "
            f"expected {expected.get(name)}."
        )
    return state


class Chosen(NamedTuple):
    """The global model that a selection rule chose, and the round after which it was chosen."""

    rule: str
    after_round: int
    state: dict[str, torch.Tensor]


def global_model(run: Run, rule: str) -> Chosen:
    """Return the global model that a selection rule chose.

    Raises ``SettingsError`` for a rule whose model the run does not keep, and ``DataError`` if the file is missing.
    """
    files = {choice.rule: (choice.after_round, choice.file) for choice in run.record.choices if choice.file}
    if rule not in files:
        others = f"; expected one of {', '.join(files)}" if files else ", nor of another"
        raise SettingsError(f"run {run.folder} kept no model of the rule {rule} (--selection){others}.")
    after_round, file = files[rule]
    return Chosen(rule, after_round, read_model(run, _kept(run, file)))


def _kept(run: Run, name: str) -> Path:
    """Return the file of a model beside the record, which may come from elsewhere and names it."""
    if name not in (LAST_FILE, SELECTED_FILE):
        expected = f"{LAST_FILE} or {SELECTED_FILE}"
        raise DataError(f"the record of run {run.folder} names the model {shorten(name)}, expected {expected}.")
    file = run.folder / name
    if not file.is_file():
        raise DataError(f"run {run.folder} kept no {name}; expected it beside the record (a sweep: --keep-models).")
    return file


class Images:
    """The images of a run's domains as the run used them: the same data, the same split.

    Args:
        run: the run.
        data_root: the folder that holds the data sets; unused for runs on the stand-in or on an installed data set.
        cache: the folder in which the stand-in is drawn; default: the user's cache.
        dataset_file: the file about a user's own images; default: ``dataset.toml`` in the data root, if there is one.
        max_pixels: of the largest image that is opened.

    Raises ``DataError`` if the data root is missing, or if exactly one of data root and run used the stand-in.
    """

    def __init__(
        self,
        run: Run,
        data_root: Path | None,
        cache: Path | None = None,
        dataset_file: Path | None = None,
        max_pixels: int = MOST_PIXELS,
    ) -> None:
        self._run = run
        self._dataset_file = dataset_file
        self._max_pixels = max_pixels
        spec = dataset_spec(run.dataset)
        _check_named(run, spec, data_root)
        root = find_data_root(run.dataset, data_root, cache)
        if root.stand_in != run.record.stand_in:
            what = "the STAND-IN" if root.stand_in else f"images of {spec.title}"
            raise DataError(
                f"run {run.folder} was made on {run.record.data}, but data root {data_root} holds {what}; expected the "
                f"run's own data{', for which no data root is named' if run.record.stand_in else ''}."
            )
        self._root = root.path

    def open(self, domain: str) -> DomainData:
        """Return a domain, without the images that its sites left out as damaged, which are looked for again.

        Raises ``DataError`` if its images are not those of the run.
        """
        replies = [reply for reply in self._run.record.census.values() if reply.domain == domain]
        data = self._open(domain)
        if any(reply.num_damaged for reply in replies):
            data, _ = without_damaged(data, partial(self._open, domain))
        for reply in replies:
            self._check_split(reply, data)
        return data

    def _open(self, domain: str, left_out: frozenset[str] = frozenset()) -> DomainData:
        protocol = self._run.record.protocol
        return open_domain(
            self._root,
            protocol.dataset,
            domain,
            seed=protocol.seed,
            max_samples=protocol.max_samples_per_domain,
            max_pixels=self._max_pixels,
            left_out=left_out,
            preset=protocol.preset,
            dataset_file=self._dataset_file,
        )

    def _check_split(self, reply: CensusReply, data: DomainData) -> None:
        if not _same_split(reply, data, self._run.record.protocol.seed):
            raise DataError(
                f"domain {reply.domain} below {self._root or 'the installed data set'} has the split {data.split} "
                f"({data.split_hash}), but run {self._run.folder} had {reply.split} ({reply.split_hash})."
            )

    def unseen(self, data: DomainData) -> tuple[Sample, ...]:
        """Return the images not used for training: a source's validation split, or the held-out domain's test split."""
        return data.test if data.domain == self._run.target else data.validation

    def one_by_one(self, data: DomainData, samples: Sequence[Sample]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield the batches of one image, as the sites evaluated it, without keeping them."""
        yield from self._batches(data, samples, 1)

    def _batches(self, data: DomainData, samples: Sequence[Sample], batch_size: int) -> ImageBatches:
        size = self._run.record.protocol.image_size
        return evaluation_batches(data, samples, image_size=size, batch_size=batch_size)


def _check_named(run: Run, spec: DatasetSpec, data_root: Path | None) -> None:
    """Raise ``DataError`` if the run's images are in a data root and none is named."""
    if data_root is None and spec.needs_data_root and not run.record.stand_in:
        expected = f"--data-root or FDG_DATA_ROOT to name the folder that holds {spec.folder}/"
        raise DataError(
            f"run {run.folder} was made on {run.record.data}, and no data root is named; expected "
            f"{'--data to name the folder of these images' if spec.described else expected}."
        )


def _same_split(reply: CensusReply, data: DomainData, seed: int) -> bool:
    """Return whether a site had the split of ``data``, or one site's part of it, which has its own name and hash.

    In records of 0.1.0, the name of a part does not have the hash of the whole.
    """
    if reply.whole_split is not None:
        return reply.whole_split in (data.split, equal_name(data.split, data.split_hash, seed))
    return (reply.split, reply.split_hash) == (data.split, data.split_hash)
