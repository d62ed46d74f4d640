# SPDX-License-Identifier: Apache-2.0
"""Weightings by name: from a round's contributions to reference weights p on the simplex."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from fdg_plugins.aggregators.contributions import Contribution
from fdg_plugins.core.weighting import sample_weights, uniform_weights
from fdg_plugins.errors import ContributionError, SettingsError

Weighting = Callable[[Sequence[Contribution]], torch.Tensor]


class Uniform:
    """``1/U`` for every site of the round (FedIIR; FedOMG's Algorithm 1)."""

    def __call__(self, contributions: Sequence[Contribution]) -> torch.Tensor:
        """Return the weights, float64 ``[U]``."""
        return uniform_weights(len(contributions))


class Samples:
    """Number of training samples over the round's total (FedAvg; FedOMG's section 4.2)."""

    def __call__(self, contributions: Sequence[Contribution]) -> torch.Tensor:
        """Return the weights, float64 ``[U]``."""
        return sample_weights([self.check(contribution) for contribution in contributions])

    def check(self, contribution: Contribution) -> int:
        """Return the number of samples of a contribution; refuse one that does not say it."""
        if contribution.num_samples is None:
            raise ContributionError(
                f"site {contribution.site}: did not say its number of samples, which gives its weight."
            )
        return contribution.num_samples


WEIGHTINGS: dict[str, Callable[..., Weighting]] = {"uniform": Uniform, "samples": Samples}


def make_weighting(spec: str | Mapping[str, Any]) -> Weighting:
    """Return the weighting that ``spec`` names: a name, or ``{"name": ..., <its settings>}``."""
    if not isinstance(spec, str | Mapping):
        raise SettingsError(f"weighting is {spec!r}, expected a name or a mapping with a name.")
    settings = {"name": spec} if isinstance(spec, str) else dict(spec)
    name = settings.pop("name", None)
    if not isinstance(name, str) or name not in WEIGHTINGS:
        raise SettingsError(f"weighting is {name!r}, expected one of {', '.join(sorted(WEIGHTINGS))}.")
    try:
        return WEIGHTINGS[name](**settings)
    except TypeError as error:
        raise SettingsError(f"weighting {name!r} does not take the settings {sorted(settings)}.") from error
