# SPDX-License-Identifier: Apache-2.0
"""The contract of every aggregator. Each function takes a class and raises ``AssertionError`` on a violation."""

import inspect
import itertools
import json
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from fdg_plugins.aggregators import RunFacts, UpdateAggregator
from fdg_plugins.errors import ContributionError, FDGError
from fdg_plugins.messages import META_REPORT, META_SITE
from fdg_plugins.methods.fedavg import FedAvgAggregator
from fdg_plugins.plugins.classes import parameters_of
from fdg_plugins.record.round_record import AggregationRecord
from fdg_plugins.testing.inputs import (
    COUNTER,
    EQUAL_CLASSES,
    FLOAT_BUFFER,
    ROUNDS,
    SITES,
    TRAINABLE,
    UNEQUAL_CLASSES,
    families,
    flat,
    in_files,
    layout_of,
    message,
    random_update,
    random_updates,
    refusal_of,
    run_round,
    same_bits,
    scaled,
    settings_have_names_of_their_own,
)

AggregatorClass = type[UpdateAggregator]
LR = 0.3
SCALES = (1e-10, 2.0, 1e10)


def made(class_: AggregatorClass, facts: RunFacts = UNEQUAL_CLASSES, **settings: Any) -> UpdateAggregator:
    """Return an aggregator at the start of a run, configured with those of ``settings`` that it has."""
    known = parameters_of(class_)
    aggregator = class_(**{name: value for name, value in settings.items() if name in known})
    aggregator.facts = facts
    return aggregator


def weightings_of(class_: AggregatorClass) -> tuple[str, ...]:
    """Return the plain weightings to try; an arbitrary one for a class with a built-in weighting."""
    return ("samples", "uniform") if "weighting" in parameters_of(class_) else ("uniform",)


def every_setting_has_a_default(class_: AggregatorClass) -> None:
    """Settings are those of the constructor, and suffice to rebuild the aggregator."""
    for name, parameter in inspect.signature(class_).parameters.items():
        assert parameter.default is not inspect.Parameter.empty, name
    settings = made(class_, server_lr=LR).settings()
    assert list(settings) == parameters_of(class_)
    assert class_(**settings).settings() == settings


def weights_lie_on_the_simplex(class_: AggregatorClass) -> None:
    """The weights of a round belong to its sites, are non-negative, and sum to one."""
    for weighting in weightings_of(class_):
        report = run_round(made(class_, weighting=weighting), random_updates()).meta[META_REPORT]
        assert report["sites"] == sorted(SITES)
        assert min(report["weights"]) >= 0
        assert abs(sum(report["weights"]) - 1) < 1e-9


def any_order_of_arrival_gives_the_same_bits(class_: AggregatorClass) -> None:
    """The order of arrival changes no bit."""
    updates = random_updates()
    steps = [run_round(made(class_), updates, order=order).params for order in itertools.permutations(SITES)]
    assert all(same_bits(step, steps[0]) for step in steps)


def names_of_sites_make_no_difference(class_: AggregatorClass) -> None:
    """Contributions count, names do not: renaming the sites leaves the step unchanged."""
    updates, steps = random_updates(), []
    counts = UNEQUAL_CLASSES.class_counts
    for names in (dict(zip(SITES, SITES, strict=True)), dict(zip(SITES, ("c", "b", "a"), strict=True))):
        aggregator = made(class_, UNEQUAL_CLASSES._replace(class_counts={names[site]: counts[site] for site in SITES}))
        aggregator.begin_round(layout_of(updates), names.values(), 0, ROUNDS)
        for site, update in updates.items():
            told = message(site, update)
            told.meta[META_SITE] = names[site]
            aggregator.accept_model(told)
        steps.append(flat(aggregator.aggregate_model().params))
    torch.testing.assert_close(*steps, rtol=1e-4, atol=1e-5)


def equal_updates_are_stepped_along(class_: AggregatorClass) -> None:
    """Equal updates, and a single update, are scaled by the same positive factor."""
    update = random_update(5)
    for facts in (EQUAL_CLASSES, UNEQUAL_CLASSES):
        alone = flat(run_round(made(class_, facts), {"photo": update}, steps=3).params)
        together = flat(run_round(made(class_, facts), dict.fromkeys(SITES, update), steps=3).params)
        factor = float(alone @ flat(update)) / float(flat(update) @ flat(update))
        assert factor > 0
        torch.testing.assert_close(alone, factor * flat(update), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(together, alone, rtol=1e-3, atol=1e-4)


def neutral_settings_are_fedavg_to_the_bit(class_: AggregatorClass) -> None:
    """With ``neutral`` settings, and sites with equal steps and classes, the step is FedAvg's."""
    if class_.neutral is None:
        return
    for weighting in weightings_of(class_):
        own = made(class_, EQUAL_CLASSES, **{"weighting": weighting, "server_lr": LR, **class_.neutral})
        plain = made(FedAvgAggregator, weighting=own.weighting, server_lr=LR)
        for updates in (random_updates(), families()["nearly equal"], families()["opposite"]):
            steps = [run_round(one, updates, steps=4).params for one in (own, plain)]
            assert same_bits(*steps), weighting


def scaled_updates_scale_the_step(class_: AggregatorClass) -> None:
    """Scaling all updates by a factor scales the step by the same factor (``scales_with_updates``)."""
    if not class_.scales_with_updates:
        return
    updates = random_updates(dtype=torch.float64)
    step = flat(run_round(made(class_), updates).params)
    for factor in SCALES:
        moved = flat(run_round(made(class_), scaled(updates, (factor,) * len(updates))).params)
        torch.testing.assert_close(moved / factor, step, rtol=1e-4, atol=1e-5)


def what_it_reports_is_what_it_did(class_: AggregatorClass) -> None:
    """The step, its norms and its cosines are those in the report, which a record can hold.

    The step is ``server_lr`` times the sum of coefficients times updates, if these are ``whole_updates``. Float buffers
    are averaged with the weights, whatever ``server_lr`` is; counters move by the largest update.
    """
    updates = random_updates()
    result = run_round(made(class_, server_lr=LR), updates)
    report, step = result.meta[META_REPORT], flat(result.params)
    weights, coefficients = (torch.tensor(report[name], dtype=torch.float64) for name in ("weights", "coefficients"))
    rows = torch.stack([flat(updates[site]) for site in sorted(SITES)])
    if class_.whole_updates:
        torch.testing.assert_close(step, LR * coefficients @ rows, rtol=1e-5, atol=1e-6)
    buffers = torch.stack([updates[site][FLOAT_BUFFER].double() for site in sorted(SITES)])
    torch.testing.assert_close(torch.as_tensor(result.params[FLOAT_BUFFER]), (weights @ buffers).float())
    assert int(result.params[COUNTER]) == max(int(update[COUNTER]) for update in updates.values())
    mean = weights @ rows
    expected = {
        "update_norms": rows.norm(dim=1).tolist(),
        "mean_norm": float(mean.norm()),
        "direction_norm": float(step.norm()) / LR,
        "cosines_with_mean": torch.cosine_similarity(rows, mean[None]).tolist(),
        "cosines_with_direction": torch.cosine_similarity(rows, step[None]).tolist(),
    }
    for name, value in expected.items():
        torch.testing.assert_close(report[name], value, rtol=1e-9, atol=1e-12, msg=name)
    assert not refusal_of(partial(AggregationRecord.from_report, report), FDGError)


def inputs_stay_as_they_were(class_: AggregatorClass) -> None:
    """No update is changed, and the step shares no memory with any."""
    for updates in (random_updates(), {"photo": random_update(1)}):
        before = {site: {name: value.clone() for name, value in update.items()} for site, update in updates.items()}
        for value in run_round(made(class_), updates).params.values():
            value += 1
        assert all(same_bits(updates[site], before[site]) for site in updates)


def dtypes_shapes_and_kinds_are_kept(class_: AggregatorClass) -> None:
    """A step has the dtypes and shapes of the updates; arrays result in arrays, bit-identical to tensors."""
    for dtype in (torch.bfloat16, torch.float32, torch.float64):
        updates = random_updates(dtype=dtype)
        step = run_round(made(class_), updates).params
        assert {n: (v.dtype, v.shape) for n, v in step.items()} == {
            n: (v.dtype, v.shape) for n, v in updates["photo"].items()
        }
    arrays: Any = {
        site: {name: value.numpy() for name, value in update.items()} for site, update in random_updates().items()
    }
    found = run_round(made(class_), arrays).params
    assert not any(isinstance(value, torch.Tensor) for value in found.values())
    assert same_bits(found, run_round(made(class_), random_updates()).params)


def updates_in_files_give_the_same_bits(class_: AggregatorClass) -> None:
    """Updates of which FLARE keeps all or some in files are stepped along as those in memory.

    An aggregator with ``reads_parts``, which its subclasses inherit, gets parameters that are still in files.
    """
    for dtype, kept in ((torch.float32, tuple(SITES)), (torch.bfloat16, ("photo",)), (torch.float64, ("art",))):
        updates = random_updates(dtype=dtype)
        expected = run_round(made(class_), updates)
        with tempfile.TemporaryDirectory() as folder:
            stored: Any = {**updates, **{site: in_files(updates[site], Path(folder) / site) for site in kept}}
            found = run_round(made(class_), stored, layout=layout_of(updates))
            assert same_bits(found.params, expected.params)
            assert found.meta[META_REPORT] == expected.meta[META_REPORT]


def a_state_that_was_saved_goes_on_as_if_unbroken(class_: AggregatorClass) -> None:
    """A new aggregator, restored from JSON between two rounds, reproduces the bits of an uninterrupted run."""
    unbroken = made(class_)
    expected = [run_round(unbroken, random_updates(number), number=number).params for number in range(3)]
    for broken_before in (1, 2):
        aggregator = made(class_)
        for number in range(3):
            if number == broken_before:
                state = json.loads(json.dumps(aggregator.state(), allow_nan=False))
                aggregator = made(class_)
                aggregator.restore(state)
            assert same_bits(run_round(aggregator, random_updates(number), number=number).params, expected[number])


def a_refused_update_is_named_and_leaves_no_trace(class_: AggregatorClass) -> None:
    """NaN, infinity, wrong shapes and missing parameters raise errors with site and parameter; the round continues."""
    updates, steps, name = random_updates(), [], TRAINABLE[0]
    good = updates["sketch"]
    broken: tuple[dict[str, Any] | None, ...] = (
        None,
        *({**good, name: torch.full_like(good[name], value)} for value in (float("nan"), float("inf"))),
        {**good, name: good[name].t()},
        {key: value for key, value in good.items() if key != name},
    )
    for params in broken:
        aggregator = made(class_)
        aggregator.begin_round(layout_of(updates), updates, 0, ROUNDS)
        for site in ("art", "photo"):
            aggregator.accept_model(message(site, updates[site]))
        if params is not None:
            refused = refusal_of(partial(aggregator.accept_model, message("sketch", params)), ContributionError)
            assert refused.startswith("site sketch: "), refused
            assert repr(name) in refused, refused
        steps.append(aggregator.aggregate_model().params)
    assert all(same_bits(step, steps[0]) for step in steps)


def every_family_of_updates_gives_a_usable_step(class_: AggregatorClass) -> None:
    """For any updates, the step is finite, cosines are in [-1, 1], and zero updates give a zero step."""
    for what, updates in families().items():
        result = run_round(made(class_), updates)
        step, report = flat(result.params), result.meta[META_REPORT]
        assert bool(step.isfinite().all()), what
        for key in ("cosines_with_mean", "cosines_with_direction"):
            assert all(-1 <= cosine <= 1 for cosine in report[key]), what
        assert what != "zero" or not bool(step.any())


AGGREGATOR_CONTRACT: tuple[Callable[[AggregatorClass], None], ...] = (
    settings_have_names_of_their_own,
    every_setting_has_a_default,
    weights_lie_on_the_simplex,
    any_order_of_arrival_gives_the_same_bits,
    names_of_sites_make_no_difference,
    equal_updates_are_stepped_along,
    neutral_settings_are_fedavg_to_the_bit,
    scaled_updates_scale_the_step,
    what_it_reports_is_what_it_did,
    inputs_stay_as_they_were,
    dtypes_shapes_and_kinds_are_kept,
    updates_in_files_give_the_same_bits,
    a_state_that_was_saved_goes_on_as_if_unbroken,
    a_refused_update_is_named_and_leaves_no_trace,
    every_family_of_updates_gives_a_usable_step,
)
"""The complete contract of an aggregator."""
