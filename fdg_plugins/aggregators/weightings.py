# SPDX-License-Identifier: Apache-2.0
"""Weightings: from the contributions of a round to reference weights p, float64 ``[U]``; and the rules by name.

A weighting may use the reports of the round alone, or learn from round to round. What it has learned is its *state*, a
JSON value that it returns and takes back; the server saves it after every round.

Shapes: p ``[U]``, on the simplex, for updates ``[U, P]`` in the sorted order of their sites. All-zero weights are
allowed and leave the parameters as they are. Any weighting can be combined with any direction.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

import torch

from fdg_plugins.aggregators.contributions import Contribution
from fdg_plugins.core.weighting import sample_weights, uniform_weights
from fdg_plugins.errors import parsed_object
from fdg_plugins.plugins.classes import ClassesOf, name_in, parameters_of
from fdg_plugins.plugins.fields import check_fields
from fdg_plugins.plugins.methods import METHODS

WEIGHTING = "weighting"


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

    ``shares``: the name of what it reads of a site beyond its number of samples, by which the site's administrator
    allows or forbids it: ``"gap"`` or the report of the method's objective, which are in a contribution's ``reports``
    once the server's filters have checked them, or ``"training_loss"``, that of the received model on the training
    split.
    """

    role: ClassVar[str] = "weighting"
    shares: ClassVar[str | None] = None

    # Declaration for the contract suite (``fdg_plugins.testing``); nothing else reads it.
    example_reports: ClassVar[tuple[Any, ...]] = ()
    """Three different checked values of the report ``shares``, for a rule that reads one which the suite does not know.
    """

    def __post_init__(self) -> None:  # of a dataclass, whose fields are the settings
        check_fields(self)

    @abstractmethod
    def __call__(self, contributions: Sequence[Contribution], round_of: RoundOf = ONLY_ROUND) -> torch.Tensor:
        """Return the weights, float64 ``[U]``, in the order of the contributions: on the simplex, or all zero."""

    def check(self, contribution: Contribution) -> None:  # noqa: B027 - most rules need nothing of a contribution
        """Raise ``ContributionError`` for a contribution that cannot be weighted. Only that contribution is refused."""

    def report(self, contributions: Sequence[Contribution]) -> dict[str, Any]:
        """Return the quantities from which the weights were computed, beyond those of every contribution.

        Each is one value, or a list ``[U]`` in the order of ``contributions``: of numbers, truth values, short texts or
        None. The record of the round keeps a name that it does not know under ``own``; what it cannot hold stops the
        step.
        """
        return {}

    def state(self) -> dict[str, Any]:
        """Return what must survive the round, as a JSON value."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:  # noqa: B027 - most rules learn nothing
        """Restore what :meth:`state` returned."""


class Uniform(Weighting):
    """``1/U`` for every site of the round (FedIIR; FedOMG's Algorithm 1)."""

    def __call__(self, contributions: Sequence[Contribution], round_of: RoundOf = ONLY_ROUND) -> torch.Tensor:
        """Return ``1/U`` for each site, float64 ``[U]``."""
        return uniform_weights(len(contributions))


class Samples(Weighting):
    """Number of training samples over the round's total (FedAvg; FedOMG's section 4.2)."""

    def __call__(self, contributions: Sequence[Contribution], round_of: RoundOf = ONLY_ROUND) -> torch.Tensor:
        """Return ``n_u / sum_v n_v``, float64 ``[U]``."""
        return sample_weights([contribution.num_samples or 0 for contribution in contributions])

    def check(self, contribution: Contribution) -> None:
        """Raise ``ContributionError`` for a contribution without a number of samples."""
        if contribution.num_samples is None:
            contribution.refuse("did not say its number of samples, which gives its weight")


PLAIN_WEIGHTINGS: dict[str, type[Weighting]] = {"uniform": Uniform, "samples": Samples}
"""The weightings that make no method: a setting of an aggregator."""

WEIGHTINGS: ClassesOf[Weighting] = ClassesOf("weighting", PLAIN_WEIGHTINGS)


def make_weighting(spec: str | Mapping[str, Any]) -> Weighting:
    """Return the weighting that ``spec`` describes: a name, or ``{"name": ..., <its settings>}``.

    Raises ``SettingsError`` for an unknown name or setting, or a value out of range.
    """
    return WEIGHTINGS.make(spec)


def is_brought(spec: Any) -> bool:
    """Return whether ``spec`` names a weighting that a plug-in brings; loads no plug-in."""
    name = name_in(spec)
    return name is not None and METHODS.origin(name) is not None


# --- the settings of an aggregator and of its weighting as one flat list of names ---


def weighting_names(weighting: Any) -> list[str]:
    """Return the names of the settings of a weighting, given by name or as an object with a name; none if unknown."""
    name = name_in(weighting)
    return parameters_of(WEIGHTINGS[name]) if name is not None and name in WEIGHTINGS else []


def flat_names(settings: Mapping[str, Any], given: Mapping[str, Any] = MappingProxyType({})) -> list[str]:
    """Return the names by which the ``settings`` in force of an aggregator can be changed.

    Those of the weighting are of the one in ``given``, what is to be changed, if it names one. A name that the
    aggregator and its weighting share is the aggregator's.
    """
    weighting = parsed_object(given.get(WEIGHTING, settings.get(WEIGHTING))) if WEIGHTING in settings else None
    return list(dict.fromkeys([*settings, *weighting_names(weighting)]))


def folded(settings: Mapping[str, Any], in_force: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``settings`` with those of the weighting entered into its object; a weighting as text may be JSON."""
    if WEIGHTING not in in_force:
        return dict(settings)
    weighting = parsed_object(settings.get(WEIGHTING, in_force[WEIGHTING]))
    own = {name: settings[name] for name in weighting_names(weighting) if name in settings and name not in in_force}
    left = {name: value for name, value in settings.items() if name not in own}
    if own:
        named = weighting if isinstance(weighting, Mapping) else {"name": weighting}
        left[WEIGHTING] = {**named, **WEIGHTINGS.read(name_in(weighting), own)}
    elif WEIGHTING in left:
        left[WEIGHTING] = weighting
    return left
