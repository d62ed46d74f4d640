# SPDX-License-Identifier: Apache-2.0
"""A penalty that gets its full strength only after some steps, and an optimizer that starts afresh with it."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from fdg_plugins.centralised.algorithm import MOST_STEPS, Algorithm, Batch, Loss, State, domain_logits, domain_risks
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.values import check_count, check_number


@dataclass(frozen=True)
class AnnealedPenalty(Algorithm):
    """The mean risk and a penalty, whose factor is ``early_strength`` for ``warm_up`` steps and ``strength`` after.

    The optimizer is created anew at the switch, as in DomainBed: Adam's moments are those of far smaller gradients.
    A strength of zero switches the penalty off from the first step on, and with it the switch: that is ERM, to the bit.
    """

    early_strength: ClassVar[float]

    strength: float
    warm_up: int

    def __post_init__(self) -> None:
        check_number("strength", self.strength)
        check_count("warm_up", self.warm_up, at_least=0, at_most=MOST_STEPS)

    @property
    def restarts_at(self) -> int | None:
        """The first step with the full strength; None where there is no penalty."""
        return self.warm_up if self.strength else None

    def strength_at(self, step: int) -> float:
        """Return the penalty's factor in a step."""
        if not self.strength:
            return 0.0
        return self.strength if step >= self.warm_up else self.early_strength


class LogitsPenalty(AnnealedPenalty):
    """The mean risk and a penalty that follows from the domains' logits and risks alone."""

    @abstractmethod
    def penalty(self, logits: Sequence[torch.Tensor], risks: torch.Tensor, batches: Sequence[Batch]) -> torch.Tensor:
        """Return the penalty without its factor, a scalar, of logits ``[B, Y]`` of each domain and risks ``[m]``."""

    def loss(self, model: ExtractorClassifier, batches: Sequence[Batch], step: int, state: State) -> Loss:
        """Return mean risk and penalty."""
        logits = domain_logits(model, batches)
        risks = domain_risks(logits, batches)
        value = risks.mean()
        if strength := self.strength_at(step):
            value = value + strength * self.penalty(logits, risks, batches)
        return Loss(value, risks.detach(), state)
