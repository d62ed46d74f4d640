# SPDX-License-Identifier: Apache-2.0
"""The contract of a weighting: from the contributions of a round to reference weights p on the simplex.

A weighting may use the reports of the round alone, or learn from round to round. What it has learned is its *state*, a
JSON value that it returns and takes back; the server saves it after every round.

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
    """The position of a round in the run: its number from 0, the total, and the sites that train in it.

    ``gone``: the sites that take no further part in the run.
    """

    number: int = 0
    total: int = 1
    sites: tuple[str, ...] = ()
    gone: frozenset[str] = frozenset()


ONLY_ROUND = RoundOf()  # for callers that do not count rounds


class Weighting(ABC):
    """A rule for p, called once per round with the contributions in the sorted order of their sites.

    ``shares``: the name of what it needs to know of a site beyond its number of samples, by which the site's
    administrator allows or forbids it. ``needs_reports``: it reads reports that the server's filters have checked: the
    gap, or the report of the objective. ``needs_training_loss``: it reads the loss of the received model on the
    training split.
    """

    shares: ClassVar[str | None] = None
    needs_reports: ClassVar[bool] = False
    needs_training_loss: ClassVar[bool] = False

    # Declaration for the contract suite (``fdg_plugins.testing``); nothing else reads it.
    example_reports: ClassVar[tuple[Any, ...]] = ()
    """Three different checked values of the report ``shares``, for a rule that reads one which the suite does not know.
    """

    @abstractmethod
    def __call__(self, contributions: Sequence[Contribution], round_of: RoundOf = ONLY_ROUND) -> torch.Tensor:
        """Return the weights, float64 ``[U]``, in the order of the contributions: on the simplex, or all zero."""

    def check(self, contribution: Contribution) -> None:  # noqa: B027 - most rules need nothing of a contribution
        """Raise ``ContributionError`` for a contribution that cannot be weighted. Only that contribution is refused."""

    def report(self, contributions: Sequence[Contribution]) -> dict[str, list[Any]]:
        """Return the quantities from which the weights were computed, beyond those of every contribution.

        Each is a list ``[U]`` in the order of ``contributions``, of numbers, truth values, short texts or None. The
        record of the round keeps a name that it does not know under ``own``; what it cannot hold stops the step.
        """
        return {}

    def state(self) -> dict[str, Any]:
        """Return what must survive the round, as a JSON value."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:  # noqa: B027 - most rules learn nothing
        """Restore what :meth:`state` returned."""
