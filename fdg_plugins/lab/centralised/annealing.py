# SPDX-License-Identifier: Apache-2.0
"""A penalty that gets its full strength only after a warm-up, with an optimizer that restarts at that point.

The schedule is DomainBed's, for IRM, V-REx and Fishr: Gulrajani, Lopez-Paz, "In Search of Lost Domain Generalization",
ICLR 2021.

Equation: minimise ``mean_e L_e + w(t) penalty`` with ``w(t) = early_strength`` for ``t < warm_up``, else ``strength``
-> :meth:`AnnealedPenalty.strength_at`. Steps t count from 0.

Shapes: risks L ``[m]`` of the logits ``[B, Y]`` of m source domains; w and the penalty are scalars.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from fdg_plugins.lab.centralised.algorithm import MOST_STEPS, Algorithm, Batch, Loss, State, domain_logits, domain_risks
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.tasks import DEFAULT_TASK, Task
from fdg_plugins.values import check_count, check_number


@dataclass(frozen=True)
class AnnealedPenalty(Algorithm):
    """The mean risk plus a penalty with factor ``early_strength`` during the warm-up and ``strength`` afterwards.

    The optimizer restarts at the switch, as in DomainBed, because Adam's moments come from much smaller gradients. With
    a strength of zero, penalty and restart are off from the first step: the algorithm is ERM, bit for bit.

    ``early_strength``: the factor during the warm-up, a constant of the algorithm. ``strength``: at least 0.
    ``warm_up``: steps, at least 0; with 0 the full strength applies from the first step.
    """

    early_strength: ClassVar[float]

    strength: float
    warm_up: int

    def __post_init__(self) -> None:
        check_number("strength", self.strength)
        check_count("warm_up", self.warm_up, at_least=0, at_most=MOST_STEPS)

    @property
    def restarts_at(self) -> int | None:
        """The first step with full strength, ``warm_up``; None if the strength is zero."""
        return self.warm_up if self.strength else None

    def strength_at(self, step: int) -> float:
        """Return w(t), the factor of the penalty in ``step`` t, counted from 0."""
        if not self.strength:
            return 0.0
        return self.strength if step >= self.warm_up else self.early_strength


class LogitsPenalty(AnnealedPenalty):
    """The mean risk plus a penalty that depends only on the domains' logits, targets and risks."""

    @abstractmethod
    def penalty(self, logits: Sequence[torch.Tensor], risks: torch.Tensor, batches: Sequence[Batch]) -> torch.Tensor:
        """Return the penalty without its factor, a differentiable scalar.

        Args:
            logits: of each of the m domains, ``[B, Y]``, float32.
            risks: the mean loss of each domain, ``[m]``, with its graph.
            batches: the batches from which the logits were computed.
        """

    def loss(
        self,
        model: ExtractorClassifier,
        batches: Sequence[Batch],
        step: int,
        state: State,
        task: Task = DEFAULT_TASK,
    ) -> Loss:
        """Return ``mean_e L_e + w(t) penalty``; the state passes through unchanged.

        The penalty is not computed in steps with w(t) = 0.
        """
        logits = domain_logits(model, batches)
        risks = domain_risks(logits, batches, task)
        value = risks.mean()
        if strength := self.strength_at(step):
            value = value + strength * self.penalty(logits, risks, batches)
        return Loss(value, risks.detach(), state)
