# SPDX-License-Identifier: Apache-2.0
"""What every weighting promises. Each function takes a class and raises ``AssertionError`` where it is broken."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch

from fdg_plugins.aggregators import RoundOf, Weighting
from fdg_plugins.errors import ContributionError
from fdg_plugins.testing.inputs import ROUNDS, SITES, contributions, refusal_of

WeightingClass = type[Weighting]


def weights_lie_on_the_simplex(class_: WeightingClass) -> None:
    """Weights are float64 ``[U]``, non-negative, and sum to one, in every round and for any of the sites."""
    weigh = class_()
    for number, sites in enumerate((list(SITES), ["photo"], ["art", "sketch"], list(SITES))):
        weights = weigh(contributions(sites, number), round_of(number))
        assert weights.dtype == torch.float64
        assert weights.shape == (len(sites),)
        assert bool((weights >= 0).all())
        assert abs(float(weights.sum()) - 1) < 1e-9


def one_site_has_all_the_weight(class_: WeightingClass) -> None:
    """A site alone has the weight one, to the bit."""
    assert class_()(contributions(["photo"]), RoundOf(0, ROUNDS, ("photo",))).tolist() == [1.0]


def sites_that_say_the_same_weigh_the_same(class_: WeightingClass) -> None:
    """Equal contributions have equal weights."""
    first = contributions()[0]
    alike = [replace(first, site=site) for site in sorted(SITES)]
    weights = class_()(alike, round_of(0))
    torch.testing.assert_close(weights, torch.full_like(weights, 1 / len(SITES)), rtol=1e-9, atol=1e-9)


def permuted_sites_permute_the_weights(class_: WeightingClass) -> None:
    """What a site says counts, and not in which place it stands."""
    of_round = contributions()
    weights, turned = class_()(of_round, round_of(0)), class_()(of_round[::-1], round_of(0))
    torch.testing.assert_close(turned, weights.flip(0), rtol=1e-9, atol=1e-12)


def contributions_stay_as_they_were(class_: WeightingClass) -> None:
    """A weighting reads, and changes nothing."""
    of_round = contributions()
    before = [(one.num_samples, dict(one.reports), one.training) for one in of_round]
    class_()(of_round, round_of(0))
    assert [(one.num_samples, dict(one.reports), one.training) for one in of_round] == before


def a_state_that_was_saved_goes_on_as_if_unbroken(class_: WeightingClass) -> None:
    """Saved as JSON after a round and taken back by a new one, the weights are those of an unbroken run."""
    unbroken = class_()
    for number in range(3):
        state = json.loads(json.dumps(unbroken.state(), allow_nan=False))
        taken_up = class_()
        taken_up.restore(state)
        expected = unbroken(contributions(number=number), round_of(number))
        assert torch.equal(taken_up(contributions(number=number), round_of(number)), expected)
    assert not class_.learns or unbroken.state()


def what_cannot_be_weighed_is_refused_by_its_site(class_: WeightingClass) -> None:
    """A contribution that says nothing of itself is refused by name when it comes, or can be weighed."""
    bare = replace(contributions(["photo"])[0], num_samples=None, training=None, reports={})
    weigh = class_()
    refused = refusal_of(partial(weigh.check, bare), ContributionError)
    if refused:
        assert refused.startswith("site photo: ")
    else:
        assert weigh([bare], RoundOf(0, ROUNDS, ("photo",))).tolist() == [1.0]


def what_it_learns_from_is_declared(class_: WeightingClass) -> None:
    """Whatever reads more of a site than its number of samples learns, and says what the site shares for it."""
    if class_.needs_reports or class_.needs_training_loss:
        assert class_.learns
        assert class_.shares


def round_of(number: int) -> RoundOf:
    """Return where a round of all sites stands."""
    return RoundOf(number, ROUNDS, tuple(sorted(SITES)))


WEIGHTING_CONTRACT: tuple[Callable[[WeightingClass], None], ...] = (
    weights_lie_on_the_simplex,
    one_site_has_all_the_weight,
    sites_that_say_the_same_weigh_the_same,
    permuted_sites_permute_the_weights,
    contributions_stay_as_they_were,
    a_state_that_was_saved_goes_on_as_if_unbroken,
    what_cannot_be_weighed_is_refused_by_its_site,
    what_it_learns_from_is_declared,
)
"""All promises of a weighting."""
