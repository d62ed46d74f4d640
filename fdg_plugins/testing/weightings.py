# SPDX-License-Identifier: Apache-2.0
"""The contract of every weighting. Each function takes a class and raises ``AssertionError`` on a violation."""

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

import torch

from fdg_plugins.aggregators import Contribution, RoundOf, Weighting
from fdg_plugins.errors import ContributionError, FDGError
from fdg_plugins.messages import REPORT_TRAINING_LOSS
from fdg_plugins.record.round_record import AggregationRecord
from fdg_plugins.testing.inputs import ROUNDS, SITES, contributions, refusal_of, settings_have_names_of_their_own

WeightingClass = type[Weighting]


def weights_lie_on_the_simplex(class_: WeightingClass) -> None:
    """Weights are float64 ``[U]``, non-negative, and sum to one, in every round and for any subset of the sites."""
    weigh = class_()
    for number, sites in enumerate((list(SITES), ["photo"], ["art", "sketch"], list(SITES))):
        weights = weigh(of_round(class_, sites, number), round_of(number))
        assert (weights.dtype, weights.shape) == (torch.float64, (len(sites),))
        assert bool((weights >= 0).all())
        assert abs(float(weights.sum()) - 1) < 1e-9
        assert len(sites) > 1 or weights.tolist() == [1.0]


def order_and_names_make_no_difference(class_: WeightingClass) -> None:
    """Permuting the contributions permutes the weights, and equal contributions have equal weights."""
    told = of_round(class_)
    weights, turned = class_()(told, round_of(0)), class_()(told[::-1], round_of(0))
    torch.testing.assert_close(turned, weights.flip(0), rtol=1e-9, atol=1e-12)
    alike = class_()([replace(told[0], site=site) for site in sorted(SITES)], round_of(0))
    torch.testing.assert_close(alike, torch.full_like(alike, 1 / len(SITES)), rtol=1e-9, atol=1e-9)


def contributions_stay_as_they_were(class_: WeightingClass) -> None:
    """A weighting does not modify its inputs."""
    told = of_round(class_)
    before = [(one.num_samples, dict(one.reports), one.training) for one in told]
    class_()(told, round_of(0))
    assert [(one.num_samples, dict(one.reports), one.training) for one in told] == before


def a_state_that_was_saved_goes_on_as_if_unbroken(class_: WeightingClass) -> None:
    """A new weighting, restored from JSON after a round, returns the weights of an uninterrupted run.

    A weighting without a state therefore depends on the contributions of the round alone.
    """
    unbroken = class_()
    for number in range(3):
        taken_up = class_()
        taken_up.restore(json.loads(json.dumps(unbroken.state(), allow_nan=False)))
        told = of_round(class_, number=number)
        assert torch.equal(taken_up(told, round_of(number)), unbroken(told, round_of(number)))


def what_cannot_be_weighed_is_refused_by_its_site(class_: WeightingClass) -> None:
    """A contribution without metadata raises an error with the site's name on arrival, or can be weighted."""
    bare = replace(of_round(class_, ["photo"])[0], num_samples=None, training=None, reports={})
    weigh = class_()
    refused = refusal_of(partial(weigh.check, bare), ContributionError)
    if refused:
        assert refused.startswith("site photo: ")
    else:
        assert weigh([bare], RoundOf(0, ROUNDS, ("photo",))).tolist() == [1.0]


def what_it_reads_changes_its_weights(class_: WeightingClass) -> None:
    """Other reports of the sites give other weights; a rule that reads none does not ask for them.

    The gap is at hand; a rule that reads anything else names examples of it in ``example_reports``.
    """
    if class_.shares not in (None, REPORT_TRAINING_LOSS):
        weights = [class_()(of_round(class_, number=number), round_of(0)) for number in range(2)]
        assert not torch.equal(*weights)


def what_it_reports_can_be_recorded(class_: WeightingClass) -> None:
    """Its report holds numbers, truth values, nulls and short texts, each for the round or in a list ``[U]``."""
    weigh, told = class_(), of_round(class_)
    by_site = dict.fromkeys(
        ("weights", "coefficients", "update_norms", "cosines_with_mean", "cosines_with_direction"),
        weigh(told, round_of(0)).tolist(),
    )
    known = {"sites": [one.site for one in told], **by_site, "mean_norm": 1.0, "direction_norm": 1.0}
    report = {**known, **weigh.report(told)}
    assert not refusal_of(partial(AggregationRecord.from_report, report), FDGError)


def of_round(class_: WeightingClass, sites: Iterable[str] = SITES, number: int = 0) -> list[Contribution]:
    """Return the contributions of sites, with the reports that the rule reads; those of other rounds differ."""
    told = contributions(sites, number)
    if not class_.example_reports or class_.shares is None:
        return told
    examples = class_.example_reports
    values = {site: examples[(place + number) % len(examples)] for place, site in enumerate(sorted(SITES))}
    return [replace(one, reports={**one.reports, class_.shares: values[one.site]}) for one in told]


def round_of(number: int) -> RoundOf:
    """Return the description of a round of all sites."""
    return RoundOf(number, ROUNDS, tuple(sorted(SITES)))


WEIGHTING_CONTRACT: tuple[Callable[[WeightingClass], None], ...] = (
    settings_have_names_of_their_own,
    weights_lie_on_the_simplex,
    order_and_names_make_no_difference,
    contributions_stay_as_they_were,
    a_state_that_was_saved_goes_on_as_if_unbroken,
    what_cannot_be_weighed_is_refused_by_its_site,
    what_it_reads_changes_its_weights,
    what_it_reports_can_be_recorded,
)
"""The complete contract of a weighting."""
