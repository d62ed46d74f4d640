# SPDX-License-Identifier: Apache-2.0
"""FedDIM's penalty, forward and backward, against the same from the matrices ``[B, D, Y]`` themselves."""

from collections.abc import Callable
from typing import NamedTuple

import torch

from cases.measure import Goal, Row, interleave, lap, tensor_peak
from cases.training import random_batch, training_step
from fdg_plugins.core.insight import GlobalInsight, insight_matrix, insight_penalty
from fdg_plugins.methods.feddim import local_insight
from fdg_plugins.models import build_model
from fdg_plugins.objectives.erm import LocalRisk

Penalty = Callable[..., torch.Tensor]


class Batch(NamedTuple):
    """Features ``[B, D]``, labels ``[B]``, weight ``[Y, D]``, global insight ``[Y, D, Y]`` and present ``[Y]``."""

    features: torch.Tensor
    labels: torch.Tensor
    weight: torch.Tensor
    insight: torch.Tensor
    present: torch.Tensor


def rows(quick: bool = False) -> list[Row]:
    """Return time, memory and share of a ResNet-50 step for 32 samples, 2048 features, 65 classes.

    ``quick``: 4 samples, 512 features, 7 classes and a ResNet-18 step.
    """
    samples, features, classes = (4, 512, 7) if quick else (32, 2048, 65)
    network, pixels, repetitions = ("resnet18", 32, 1) if quick else ("resnet50", 128, 7)
    batch = random_features(samples, features, classes)
    penalty = penalty_of_a_round(batch)
    model = build_model(network, classes, seed=0)
    step = training_step(model, LocalRisk(), *random_batch(samples, pixels, classes))
    seconds = interleave(
        [
            lambda: lap("penalty", lambda: gradients(penalty, batch)),
            lambda: lap("naive", lambda: gradients(naive_penalty, batch)),
            lambda: lap("step", step),
        ],
        repetitions,
    )
    sizes = f"B={samples}, D={features}, Y={classes}"
    return [
        Row(
            f"FedDIM penalty, {sizes}: closed form / [B, D, Y]",
            seconds["penalty"],
            seconds["naive"],
            goal=Goal("ratio", 1 / 20, "ratio ≤ 1/20"),
        ),
        Row(
            f"its tensors at their most, {sizes}: closed form / [B, D, Y]",
            tensor_peak(lambda: gradients(penalty, batch)),
            tensor_peak(lambda: gradients(naive_penalty, batch)),
            unit="B",
            goal=Goal("ratio", 1 / 50, "ratio ≤ 1/50"),
        ),
        Row(
            f"FedDIM penalty / a cross entropy step of {network}, batch {samples}, {pixels} px",
            seconds["penalty"],
            seconds["step"],
            goal=Goal("ratio", 0.03, "ratio ≤ 0.03"),
        ),
    ]


def random_features(samples: int, features: int, classes: int) -> Batch:
    """Return a random batch whose features and weight ask for gradients; every class is present."""
    generator = torch.Generator().manual_seed(0)
    return Batch(
        torch.rand(samples, features, generator=generator).requires_grad_(),
        torch.randint(classes, (samples,), generator=generator),
        (torch.randn(classes, features, generator=generator) / features**0.5).requires_grad_(),
        torch.randn(classes, features, classes, generator=generator) / features**0.5,
        torch.ones(classes, dtype=torch.bool),
    )


def penalty_of_a_round(batch: Batch) -> Penalty:
    """Return our penalty with what a round of local training computes once: layout and norms of the insight."""
    local = local_insight(1.0, "insight", GlobalInsight(batch.insight, batch.present))

    def penalty(features: torch.Tensor, labels: torch.Tensor, weight: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
        return insight_penalty(features, labels, weight, local.insight.values, local.insight.present, local.norms)

    return penalty


def naive_penalty(
    features: torch.Tensor, labels: torch.Tensor, weight: torch.Tensor, insight: torch.Tensor, present: torch.Tensor
) -> torch.Tensor:
    """Return Eq. 7's ``1/B sum_i |I_i - J^(y_i)|^2`` as it is printed."""
    squared = (insight_matrix(features, weight) - insight[labels]).square().sum(dim=(1, 2))
    return torch.where(present[labels], squared, 0.0).mean()


def gradients(penalty: Penalty, batch: Batch) -> tuple[torch.Tensor, ...]:
    """Return the gradients of ``penalty`` with respect to features and weight."""
    return torch.autograd.grad(penalty(*batch), (batch.features, batch.weight))
