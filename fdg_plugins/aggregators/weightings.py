# SPDX-License-Identifier: Apache-2.0
"""The weightings by name: uniform, by samples, and those of published methods.

Shapes: weights p ``[U]``, float64, on the simplex, for the round's updates ``[U, P]``; FedDG-GA keeps weights ``[N]``
of all N known sites. Any weighting can be combined with any direction.

Participation: uniform weights and weights by samples use the sites of the round only. FedDG-GA adjusts the sites that
report a gap; a site that is absent, or whose gap is missing or was refused, keeps its weight.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from fdg_plugins.aggregators.contributions import Contribution
from fdg_plugins.aggregators.weighting_rule import ONLY_ROUND, RoundOf, Weighting
from fdg_plugins.core.weighting import sample_weights, uniform_weights
from fdg_plugins.errors import ContributionError
from fdg_plugins.plugins.classes import ClassesOf
from fdg_plugins.plugins.methods import METHODS


class Uniform(Weighting):
    """``1/U`` for every site of the round (FedIIR; FedOMG's Algorithm 1)."""

    def __call__(self, contributions: Sequence[Contribution], round_of: RoundOf = ONLY_ROUND) -> torch.Tensor:
        """Return ``1/U`` for each site, float64 ``[U]``."""
        return uniform_weights(len(contributions))


class Samples(Weighting):
    """Number of training samples over the round's total (FedAvg; FedOMG's section 4.2)."""

    def __call__(self, contributions: Sequence[Contribution], round_of: RoundOf = ONLY_ROUND) -> torch.Tensor:
        """Return ``n_u / sum_v n_v``, float64 ``[U]``; raise ``ContributionError`` as :meth:`check`."""
        for contribution in contributions:
            self.check(contribution)
        return sample_weights([contribution.num_samples or 0 for contribution in contributions])

    def check(self, contribution: Contribution) -> None:
        """Raise ``ContributionError`` for a contribution without a number of samples."""
        if contribution.num_samples is None:
            raise ContributionError(
                f"site {contribution.site}: did not say its number of samples, which gives its weight."
            )


PLAIN_WEIGHTINGS: dict[str, type[Weighting]] = {"uniform": Uniform, "samples": Samples}
"""The weightings that make no method: a setting of an aggregator."""

WEIGHTINGS: ClassesOf[Weighting] = ClassesOf("weighting", Weighting, PLAIN_WEIGHTINGS)


def make_weighting(spec: str | Mapping[str, Any]) -> Weighting:
    """Return the weighting that ``spec`` describes: a name, or ``{"name": ..., <its settings>}``.

    Raises ``SettingsError`` for an unknown name or setting, or a value out of range.
    """
    return WEIGHTINGS.make(spec)


def weighting_name(spec: Any) -> str | None:
    """Return the name of a weighting, given by name or as an object with a name; None if it has none."""
    name = spec.get("name") if isinstance(spec, Mapping) else spec
    return name if isinstance(name, str) else None


def is_brought(spec: Any) -> bool:
    """Return whether ``spec`` names a weighting that a plug-in brings; loads no plug-in."""
    name = weighting_name(spec)
    return name is not None and METHODS.origin(name) is not None
