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
from fdg_plugins.core.adjustment import NORMALIZERS, adjust_weights, decayed_step, weights_of_round, with_new_sites
from fdg_plugins.core.weighting import sample_weights, uniform_weights
from fdg_plugins.errors import ContributionError
from fdg_plugins.messages import REPORT_GAP
from fdg_plugins.plugins.classes import ClassesOf
from fdg_plugins.plugins.methods import METHODS
from fdg_plugins.values import check_choice, check_number


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


class FedDGGAWeighting(Weighting):
    """Weights that follow the sites' generalization gaps (FedDG-GA, CVPR 2023). Works with any direction.

    A site that is absent from the round, or whose gap is missing or was refused, keeps its weight.

    Args:
        step_size: d >= 0, the largest gain of a weight in round 0; it decreases linearly to zero. 0.05 in the paper,
            0.2 in its code; zero keeps the weights uniform.
        normalizer: ``"max"``, the largest deviation from the mean gap (paper), or ``"max_abs"``, the largest absolute
            gap (released code).
    """

    shares = REPORT_GAP
    needs_reports = True

    def __init__(self, step_size: float = 0.05, normalizer: str = "max") -> None:
        check_number("step_size", step_size)
        check_choice("normalizer", normalizer, NORMALIZERS)
        self.step_size = step_size
        self.normalizer = normalizer
        self._weights: dict[str, float] = {}

    def __call__(self, contributions: Sequence[Contribution], round_of: RoundOf = ONLY_ROUND) -> torch.Tensor:
        """Adjust the weights of all known sites (Eq. 3); return the round's, float64 ``[U]``, rescaled to sum one."""
        sites = [contribution.site for contribution in contributions]
        known = with_new_sites(self._weights, [*round_of.sites, *sites])
        gaps = {contribution.site: contribution.reports.get(REPORT_GAP) for contribution in contributions}
        step = decayed_step(self.step_size, round_of.number, round_of.total)
        self._weights = adjust_weights(known, gaps, step, self.normalizer)
        of_round = weights_of_round(self._weights, sites)
        return torch.tensor([of_round[site] for site in sites], dtype=torch.float64)

    def report(self, contributions: Sequence[Contribution]) -> dict[str, list[Any]]:
        """Return the gaps ``[U]`` as reported, None for a site without one."""
        return {"gaps": [contribution.reports.get(REPORT_GAP) for contribution in contributions]}

    def state(self) -> dict[str, Any]:
        """Return the weights ``[N]`` of all known sites, by name."""
        return {"weights": dict(self._weights)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the weights of all known sites."""
        self._weights = {str(site): float(weight) for site, weight in state["weights"].items()}


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
