# SPDX-License-Identifier: Apache-2.0
"""A penalty that gets its full strength only after some steps, and an optimizer that starts afresh with it."""

from dataclasses import dataclass
from typing import ClassVar

from fdg_plugins.centralised.algorithm import Algorithm, check_count
from fdg_plugins.objectives.objective import check_number


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
        check_count("warm_up", self.warm_up)

    @property
    def restarts_at(self) -> int | None:
        """The first step with the full strength; None where there is no penalty."""
        return self.warm_up if self.strength else None

    def strength_at(self, step: int) -> float:
        """Return the penalty's factor in a step."""
        if not self.strength:
            return 0.0
        return self.strength if step >= self.warm_up else self.early_strength
