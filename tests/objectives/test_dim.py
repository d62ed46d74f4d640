# SPDX-License-Identifier: Apache-2.0
"""FedDIM: the loss is Eq. 7 as printed, and what the server rebuilds is the mean insight of the sites' own samples."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from fdg_plugins.core.insight import insight_matrix
from fdg_plugins.methods.feddim import FedDIMObjective, InsightExchange, Target
from fdg_plugins.models import ExtractorClassifier
from tests.objectives.local_steps import CLASSES, Batch, ReportRound
from tests.random_tensors import normal

Y, D = 3, 4
WEIGHT = "classifier.weight"
TARGETS = ["insight", "feature", "logit"]


def defined_penalty(
    model: ExtractorClassifier, batch: Batch, target: str, values: torch.Tensor, present: torch.Tensor
) -> torch.Tensor:
    """Eq. 7's penalty as printed, from tensors ``[B, D, Y]``; of features and logits likewise."""
    images, labels = batch
    z, weight = model.penultimate(images), model.last_layer.weight
    own = {"insight": insight_matrix(z, weight), "feature": z, "logit": z @ weight.t()}[target]
    squares = (own - values[labels]).flatten(1).square().sum(dim=1)
    return (squares * present[labels]).sum() / len(labels)


def sent_for(model: ExtractorClassifier, target: str, present: list[bool]) -> dict[str, torch.Tensor]:
    size = model.last_layer.in_features
    shape = {"insight": (size, CLASSES), "feature": (size,), "logit": (CLASSES,)}[target]
    known = torch.tensor(present)
    values = torch.where(known.view(-1, *[1] * len(shape)), normal(3, CLASSES, *shape), 0.0)
    return {"insight": values, "present": known}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("present", [[True, False, True], [False, False, False]])
def test_loss_and_gradients_are_those_of_equation_7_as_printed(
    model: ExtractorClassifier, batches: list[Batch], target: Target, present: list[bool]
) -> None:
    model.eval()
    sent = sent_for(model, target, present)
    objective = FedDIMObjective(strength=0.3, target=target)
    images, labels = batches[0]
    ours = objective.local(sent, model).loss(model, images, labels)
    penalty = defined_penalty(model, batches[0], target, sent["insight"], sent["present"])
    defined = cross_entropy(model(images), labels) + 0.3 * penalty
    torch.testing.assert_close(ours, defined, rtol=1e-5, atol=1e-6)
    parameters = list(model.parameters())
    for one, other in zip(torch.autograd.grad(ours, parameters), torch.autograd.grad(defined, parameters), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4 * max(1.0, float(other.abs().max())))


class Site:
    """Features, labels and last weights of one site, from which both its report and its insights follow."""

    def __init__(self, seed: int, counts: list[int]) -> None:
        self.labels = torch.repeat_interleave(torch.arange(Y), torch.tensor(counts))
        self.features = normal(seed, len(self.labels), D)
        self.moved = normal(seed + 100, Y, D)

    def report(self) -> dict[str, torch.Tensor]:
        counts = torch.bincount(self.labels, minlength=Y)
        held = [self.features[self.labels == label].mean(dim=0) for label in range(Y) if counts[label]]
        return {"class_means": torch.stack(held), "class_counts": counts}

    def mean(self, label: int, weight: torch.Tensor, target: str) -> torch.Tensor | None:
        """Eq. 4 sample by sample: the mean over the site's samples of a class, None without any."""
        mine = self.features[self.labels == label]
        own = {"insight": insight_matrix(mine, weight), "feature": mine, "logit": mine @ weight.t()}[target]
        return own.mean(dim=0) if len(mine) else None


GLOBAL = {WEIGHT: normal(50, Y, D), "classifier.bias": normal(51, Y)}


def exchange_of(momentum: float = 0.5, target: Target = "insight") -> InsightExchange:
    return InsightExchange(momentum, target, Y, D, WEIGHT)


def run_round(exchange: InsightExchange, sites: dict[str, Site]) -> dict[str, torch.Tensor]:
    of_round = ReportRound(exchange, GLOBAL)
    for name, site in sites.items():
        of_round.accept(name, site.report(), {WEIGHT: site.moved})
    of_round.finish(sites)
    return exchange.broadcast()


@pytest.mark.parametrize("target", TARGETS)
def test_first_global_insight_is_the_sites_average(target: Target) -> None:
    # Class 0 at every site, class 1 at all but one, class 2 at one alone.
    sites = {"a": Site(1, [2, 3, 0]), "b": Site(2, [1, 1, 0]), "c": Site(3, [4, 0, 5])}
    down = run_round(exchange_of(target=target), sites)
    assert down["present"].tolist() == [True, True, True]
    for label in range(Y):
        means = [site.mean(label, GLOBAL[WEIGHT] + site.moved, target) for site in sites.values()]
        expected = torch.stack([mean for mean in means if mean is not None]).mean(dim=0)
        torch.testing.assert_close(down["insight"][label], expected, rtol=1e-5, atol=1e-5)
