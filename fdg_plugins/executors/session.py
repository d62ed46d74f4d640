# SPDX-License-Identifier: Apache-2.0
"""One site's work under one protocol: the data it holds, and what each task does with the model it receives."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Literal

import torch
from torch.utils.data import DataLoader

from fdg_plugins.data import DomainData, check_images, evaluation_batches, open_domain, training_batches
from fdg_plugins.data.stand_in import ensure_stand_in, is_stand_in
from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.executors.site_config import SiteConfig
from fdg_plugins.executors.training import Arithmetic, LocalTraining, ShouldStop, evaluate, train_locally
from fdg_plugins.messages import CensusReply, Evaluation, TrainReport
from fdg_plugins.models import ExtractorClassifier, build_model
from fdg_plugins.protocol import Protocol

EVALUATION_BATCH = 64
PACKAGES = ("fdg-plugins", "nvflare", "torch", "torchvision")


def find_data_root(config: SiteConfig, cache: Path | None) -> Path:
    """Return the data root that the site names, or the stand-in's if it names none.

    A root that is named but not there is an error: a site that was told where its data lies never
    trains on drawings instead.
    """
    if config.data_root is None:
        return ensure_stand_in(cache)
    if not config.data_root.is_dir():
        raise DataError(f"data root {config.data_root} is not a folder; FDG_DATA_ROOT or fdg_site.json names it.")
    return config.data_root


class SiteSession:
    """What a site does under one protocol. Opens the data once; holds nothing that must survive a round."""

    def __init__(self, site: str, config: SiteConfig, protocol: Protocol, data_root: Path) -> None:
        self.site = site
        self.config = config
        self.protocol = protocol
        self.stand_in = is_stand_in(data_root)
        self.domain = config.domain or site
        self.data: DomainData = open_domain(
            data_root, protocol.dataset, self.domain, seed=protocol.seed, max_samples=protocol.max_samples_per_domain
        )
        self.arithmetic = Arithmetic(
            config.torch_device(), bfloat16=protocol.precision == "bfloat16", channels_last=protocol.channels_last
        )

    def census(self) -> CensusReply:
        """Return what the site holds, nothing of any single image, after a look at every image's header."""
        data = self.data
        check_images(data)
        counts = Counter(sample.label for sample in data.test)
        return CensusReply(
            domain=self.domain,
            dataset=data.dataset,
            stand_in=self.stand_in,
            classes=data.classes,
            class_counts=tuple(counts[label] for label in range(len(data.classes))),
            num_train=len(data.train),
            num_validation=len(data.validation),
            num_test=len(data.test),
            split=data.split,
            split_hash=data.split_hash,
            skipped=data.skipped,
            role=self.config.role,
            device=str(self.arithmetic.device),
            versions={name: version(name) for name in PACKAGES},
        )

    def load(self, state: Mapping[str, torch.Tensor]) -> ExtractorClassifier:
        """Return the protocol's model with the parameters received, on the site's device."""
        model = build_model(self.protocol.model, len(self.data.classes), seed=self.protocol.seed)
        expected = {name: tuple(value.shape) for name, value in model.state_dict().items()}
        received = {name: tuple(value.shape) for name, value in state.items()}
        if expected != received:
            name = min(set(expected.items()) ^ set(received.items()))[0]
            raise SettingsError(
                f"parameter {name!r} of the model received has shape {received.get(name)}, "
                f"but {self.protocol.model!r} here has {expected.get(name)}."
            )
        model.load_state_dict(dict(state))
        return self.arithmetic.place(model)

    def evaluate(
        self, model: ExtractorClassifier, split: Literal["validation", "test"], should_stop: ShouldStop
    ) -> Evaluation:
        """Return the score of ``model`` on one split of the site's domain."""
        batches = evaluation_batches(
            getattr(self.data, split),
            self.data.folder,
            image_size=self.protocol.image_size,
            batch_size=EVALUATION_BATCH,
            workers=self.config.workers,
        )
        return Evaluation(split=split, **asdict(evaluate(model, batches, self.arithmetic, should_stop)))

    def train(
        self,
        state: Mapping[str, torch.Tensor],
        round_number: int,
        should_stop: ShouldStop,
        on_epoch: Callable[[int, float], None],
    ) -> tuple[dict[str, torch.Tensor], TrainReport]:
        """Return the update (local - global, plain, dense, contiguous, on the CPU) of one round, and the report."""
        if self.domain == self.protocol.target:
            raise SettingsError(f"domain {self.domain!r} is held out in this run and never trains.")
        model = self.load(state)
        received = self.evaluate(model, "validation", should_stop)
        learning_rate = self.protocol.learning_rate_at(round_number)
        optimizer = torch.optim.SGD(
            model.parameters(),
            lr=learning_rate,
            momentum=self.protocol.momentum,
            weight_decay=self.protocol.weight_decay,
        )
        training = train_locally(model, self._epochs(round_number), optimizer, self.arithmetic, should_stop, on_epoch)
        local = self.evaluate(model, "validation", should_stop)
        return make_update(model.state_dict(), state), self._report(received, local, training, learning_rate)

    def _epochs(self, round_number: int) -> Iterator[DataLoader]:
        for epoch in range(self.protocol.local_epochs):
            yield training_batches(
                self.data,
                image_size=self.protocol.image_size,
                batch_size=self.protocol.batch_size,
                seed=self.protocol.seed,
                scope=(self.site, round_number, epoch),
                workers=self.config.workers,
                pin_memory=self.arithmetic.device.type == "cuda",
            )

    def _report(
        self, received: Evaluation, local: Evaluation, training: LocalTraining, learning_rate: float
    ) -> TrainReport:
        return TrainReport(
            domain=self.domain,
            received=received,
            local=local,
            epoch_losses=training.epoch_losses,
            steps=training.steps,
            learning_rate=learning_rate,
            seconds=training.seconds,
        )


def make_update(local: Mapping[str, torch.Tensor], received: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return local - global for every key, as FLARE's decoder needs it: plain, dense, contiguous, on the CPU."""
    return {
        name: (local[name].detach().cpu() - value.cpu()).contiguous(memory_format=torch.contiguous_format)
        for name, value in received.items()
    }
