# SPDX-License-Identifier: Apache-2.0
"""What the tests of local objectives share: random batches, training as a site does it, and a round of an exchange."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import torch

from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives import ERMObjective, Exchange, LocalObjective, SiteFacts, SiteRound, make_objective
from fdg_plugins.objectives.exchange import Tensors
from fdg_plugins.testing import objectives
from fdg_plugins.testing.objectives import bits
from fdg_plugins.training.loop import DevicePolicy, LocalTraining, train_locally

CLASSES = objectives.CLASSES
SITE = SiteRound("photo", 3, seed=7)
Batch = tuple[torch.Tensor, torch.Tensor]
Local = TypeVar("Local", bound=LocalObjective)


def make_batches(model: ExtractorClassifier, sizes: tuple[int, ...] = (4, 5, 4), seed: int = 0) -> list[Batch]:
    """Batches of random images; the first labels count up, so that every class is in the first batch."""
    return objectives.make_batches(objectives.channels_of(model), seed, sizes)


def train_steps(
    model: ExtractorClassifier,
    objective: LocalObjective,
    epochs: list[list[Batch]],
    *,
    lr: float = 0.05,
    momentum: float = 0.9,
    weight_decay: float = 5e-4,
) -> LocalTraining:
    """Train ``model`` in place with SGD, one pass over each of ``epochs``."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum, weight_decay=weight_decay)
    policy = DevicePolicy(torch.device("cpu"))
    return train_locally(model, objective, epochs, optimizer, policy)


def local_of(
    kind: type[Local], name: str, model: ExtractorClassifier, site: SiteRound = SITE, **settings: Any
) -> Local:
    """Return the local objective of a method that has sent nothing, which is of class ``kind``."""
    local = make_objective({"name": name, **settings}).local({}, model, site)
    assert isinstance(local, kind)
    return local


def plain(model: ExtractorClassifier) -> LocalObjective:
    return ERMObjective().local({}, model)


def trained(model: ExtractorClassifier, objective: LocalObjective, batches: list[Batch]) -> dict[str, torch.Tensor]:
    """Train ``model`` in place for two epochs; return a copy of its state dict."""
    train_steps(model, objective, [batches] * 2)
    return bits(model)


class ReportRound:
    """One round of ``exchange`` that starts from the global model ``state``."""

    def __init__(self, exchange: Exchange, state: Tensors, facts: Mapping[str, SiteFacts] | None = None) -> None:
        self.exchange = exchange
        self.reports: dict[str, Any] = {}
        exchange.begin_round(state, facts)

    def accept(self, site: str, report: Any, update: Tensors | None) -> None:
        self.reports[site] = self.exchange.read(site, report, update)

    def finish(self, sites: Iterable[str]) -> None:
        """Let the exchange learn from the reports of ``sites``."""
        self.exchange.finish({site: self.reports[site] for site in sites if site in self.reports})
