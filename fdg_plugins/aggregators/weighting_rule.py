# SPDX-License-Identifier: Apache-2.0
"""The contract of a weighting: from the contributions of a round to reference weights p on the simplex.

A weighting may learn from round to round. What it has learned is its *state*, a JSON value that it returns and takes
back; the server saves it after every round.

Shapes: p ``[U]``, float64, for updates ``[U, P]`` in the sorted order of their sites. All-zero weights are allowed and
leave the parameters as they are.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from fdg_plugins.aggregators.contributions import Contribution


@dataclass(frozen=True)
class RoundOf:
    """Where a round stands: its number, counted from 0, the total, and the sites that train in it."""

    number: int = 0
    total: int = 1
    sites: tuple[str, ...] = ()


ONLY_ROUND = RoundOf()  # for callers that count no rounds


class Weighting(ABC):
    """A rule for p. Called once per round, with the contributions in the sorted order of their sites.

    ``learns``: the weights follow from what the sites report, which makes a method of it. ``shares`` names what they
    share for it, as a site's administrator allows or forbids it. ``needs_reports``: it reads what the server's filters
    checked. ``needs_training_loss``: it reads the loss of the model received on the training split.
    """

    learns: ClassVar[bool] = False
    shares: ClassVar[str | None] = None
    needs_reports: ClassVar[bool] = False
    needs_training_loss: ClassVar[bool] = False

    @abstractmethod
    def __call__(self, contributions: Sequence[Contribution], round_of: RoundOf = ONLY_ROUND) -> torch.Tensor:
        """Return the weights, float64 ``[U]``, in the order of the contributions."""

    def check(self, contribution: Contribution) -> None:  # noqa: B027 - most rules need nothing of a contribution
        """Raise ``ContributionError`` for a contribution that could not be weighed, so that it is refused alone."""

    def report(self, contributions: Sequence[Contribution]) -> dict[str, list[Any]]:
        """Return what the weights followed from, beyond what every contribution has; lists in the order given."""
        return {}

    def state(self) -> dict[str, Any]:
        """Return what must survive the round, as a value for JSON."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:  # noqa: B027 - most rules learn nothing
        """Take back what :meth:`state` returned."""
