# SPDX-License-Identifier: Apache-2.0
"""FedProto's two halves: a penalty and a report at the sites, prototypes at the server.

Equations: the loss is the paper's Eq. 7; :meth:`PrototypeExchange.learn` is its Eq. 6, with each site's mean weighed by
its number of images, so that a prototype is the mean over all images of the class.
Shapes: ``B`` batch, ``Y`` classes, ``K`` of them at a site, ``D`` features.
Participation: a prototype to which no site of a round contributes stays as it was.
Buffers: as in FedAvg.
Differences: the paper's sites share prototypes alone; here the model is averaged too.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch.nn.functional import mse_loss

from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives import Exchange, FeatureBatch, LocalObjective, Objective, SiteReport
from fdg_plugins.objectives.exchange import PayloadValidator, Tensors
from fdg_plugins.objectives.objective import SiteRound, evaluating, to_report
from fdg_plugins.plugins.fields import NotNegative
from fdg_plugins.tasks import Task

MEANS, COUNTS = "means", "counts"
PROTOTYPES, PRESENT = "prototypes", "present"


@dataclass(frozen=True)
class FedProtoObjective(Objective):
    """The task's loss, and the squared distance of features from the prototype of their class.

    Args:
        strength: lambda >= 0, the factor of the penalty; zero is FedAvg, bit for bit.
    """

    name: ClassVar[str] = "proto"
    report: ClassVar[str | None] = "prototypes"

    strength: NotNegative = 1.0

    def local(self, received: Tensors, model: ExtractorClassifier, site: SiteRound = SiteRound()) -> LocalObjective:
        """Return the loss of the round, for the prototypes received; without any it is the cross entropy."""
        weight = model.last_layer.weight
        if not received or self.strength == 0:
            none = weight.new_zeros(len(weight)).bool()
            return LocalPrototypes(0.0, weight.new_zeros(weight.shape), none, site.task)
        found = read_prototypes(self.payload_validator(), received, *weight.shape)
        prototypes, present = (found[name].to(weight.device) for name in (PROTOTYPES, PRESENT))
        return LocalPrototypes(self.strength, prototypes, present, site.task)

    def report_trained(
        self, model: ExtractorClassifier, seen: Iterable[FeatureBatch], num_classes: int
    ) -> dict[str, torch.Tensor]:
        """Return mean features ``[K, D]`` of the classes that the site has, in their order, and counts ``[Y]``."""
        weight = model.last_layer.weight
        sums = torch.zeros(num_classes, weight.shape[1], dtype=torch.float64, device=weight.device)
        counts = torch.zeros(num_classes, dtype=torch.int64, device=weight.device)
        with evaluating(model), torch.no_grad():
            for batch in seen:
                features, classes = batch.samples(model.penultimate_of(batch.features))
                sums.index_add_(0, classes, features.double())
                counts += torch.bincount(classes, minlength=num_classes)
        held = counts > 0
        return to_report({MEANS: (sums[held] / counts[held, None]).float(), COUNTS: counts})

    def exchange(self, model: ExtractorClassifier, num_classes: int, num_sites: int = 1) -> Exchange:
        """Return the server's half."""
        return PrototypeExchange(num_classes, model.last_layer.in_features)


@dataclass(frozen=True)
class LocalPrototypes(LocalObjective):
    """The loss with the prototypes ``[Y, D]`` fixed for the round; ``present: [Y]`` says which of them there are."""

    strength: float
    prototypes: torch.Tensor
    present: torch.Tensor
    task: Task

    def loss(self, model: ExtractorClassifier, images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the task's loss and ``lambda * penalty`` of images ``[B, C, H, W]`` with their targets."""
        read = model.penultimate(images)
        loss = self.task.loss(model.last_layer(read).float(), targets)
        features, classes = self.task.samples_of(read, targets)
        known = self.present[classes]
        if self.strength == 0 or not bool(known.any()):
            return loss
        return loss + self.strength * mse_loss(features[known].float(), self.prototypes[classes[known]])


class SiteMeans(NamedTuple):
    """A checked report: means ``[Y, D]``, zero where the count is, and counts ``[Y]``."""

    means: torch.Tensor
    counts: torch.Tensor


class PrototypeExchange(Exchange):
    """Keeps the prototypes ``[Y, D]``, and learns them from the sites' reports beside their updates."""

    def __init__(self, num_classes: int, feature_size: int) -> None:
        super().__init__("train", num_classes=num_classes, feature_size=feature_size)
        self.num_classes, self.feature_size = num_classes, feature_size

    def read_report(self, validator: PayloadValidator, report: SiteReport) -> SiteMeans:
        """Return a site's means; refuse counts that its census does not allow."""
        sent = validator.fields(report.content, (MEANS, COUNTS))
        counts = validator.counts(COUNTS, sent[COUNTS], self.num_classes)
        if report.facts is not None and bool((counts > torch.tensor(report.facts.class_counts)).any()):
            validator.refuse(f"{COUNTS!r} has more images of a class than the site counted in the census")
        held = counts > 0
        means = torch.zeros(self.num_classes, self.feature_size)
        means[held] = validator.numbers(MEANS, sent[MEANS], (int(held.sum()), self.feature_size))
        return SiteMeans(means, counts)

    def sizes(self, report: SiteMeans) -> dict[str, float]:
        """Return the largest length of a class's mean features."""
        return {MEANS: float(torch.linalg.norm(report.means.double(), dim=1).max())}

    def learn(self, reports: Mapping[str, SiteMeans]) -> dict[str, torch.Tensor]:
        """Return the prototypes after a round (Eq. 6), summed in float64."""
        counts = torch.stack([site.counts for site in reports.values()]).double()
        means = torch.stack([site.means for site in reports.values()]).double()
        totals = counts.sum(dim=0)
        seen = totals > 0
        prototypes = self.learned.get(PROTOTYPES, torch.zeros(self.num_classes, self.feature_size)).clone()
        prototypes[seen] = ((counts[:, :, None] * means).sum(dim=0)[seen] / totals[seen, None]).float()
        return {PROTOTYPES: prototypes, PRESENT: seen | self.learned.get(PRESENT, torch.zeros_like(seen))}


def read_prototypes(
    validator: PayloadValidator, tensors: Any, num_classes: int, feature_size: int
) -> dict[str, torch.Tensor]:
    """Return prototypes ``[Y, D]`` and which of them there are ``[Y]``; refuse what does not fit."""
    found = validator.fields(tensors, (PROTOTYPES, PRESENT))
    return {
        PROTOTYPES: validator.numbers(PROTOTYPES, found[PROTOTYPES], (num_classes, feature_size)),
        PRESENT: validator.flags(PRESENT, found[PRESENT], num_classes),
    }
