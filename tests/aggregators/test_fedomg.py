# SPDX-License-Identifier: Apache-2.0
"""FedOMG at the server: the direction of the matching problem, what it matches, and what it reports."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from nvflare.app_common.abstract.fl_model import FLModel

from fdg_plugins.aggregators import RunFacts, UpdateAggregator
from fdg_plugins.errors import ContributionError, FDGError, SettingsError
from fdg_plugins.methods.fedomg import FedOMGAggregator
from fdg_plugins.record.round_record import AggregationRecord
from fdg_plugins.testing.inputs import random_update
from tests.aggregators.trained_sites import aggregate, contribution, report_of, vector

Params = dict[str, Any]
SAMPLES = {"art": 3, "photo": 4, "sketch": 5, "cartoon": 6}


def step(aggregator: UpdateAggregator, updates: Sequence[Params]) -> FLModel:
    sent = (contribution(site, update, SAMPLES[site]) for site, update in zip(SAMPLES, updates, strict=False))
    return aggregate(aggregator, sent)


def vectors(*values: Sequence[float]) -> list[Params]:
    return [vector(*value) for value in values]


def best_of_a_grid(first: np.ndarray, second: np.ndarray, p: np.ndarray, kappa: float) -> np.ndarray:
    """Eq. 15 and 16 for two sites in plain numpy: gamma from a million points of the segment."""
    mean = p[0] * first + p[1] * second
    share = np.linspace(0, 1, 1_000_001)
    products = [[a @ b for b in (first, second, mean)] for a in (first, second)]
    lengths = np.sqrt(
        share**2 * products[0][0] + 2 * share * (1 - share) * products[0][1] + (1 - share) ** 2 * products[1][1]
    )
    values = share * products[0][2] + (1 - share) * products[1][2] + kappa * np.linalg.norm(mean) * lengths
    best = share[values.argmin()]
    matched = best * first + (1 - best) * second
    return mean + kappa * np.linalg.norm(mean) / np.linalg.norm(matched) * matched


@pytest.mark.parametrize("kappa", [0.1, 0.5, 2.0])
def test_the_step_of_two_sites_is_that_of_a_search_in_numpy(kappa: float) -> None:
    for weighting, seed in (("uniform", 0), ("samples", 1)):
        first, second = np.random.default_rng(seed).normal(size=(2, 20)) + 0.5
        result = step(FedOMGAggregator(kappa=kappa, server_lr=0.3, weighting=weighting), vectors(first, second))
        p = np.array([3, 4]) / 7 if weighting == "samples" else np.array([0.5, 0.5])
        np.testing.assert_allclose(result.params["w"], 0.3 * best_of_a_grid(first, second, p, kappa), atol=1e-4)


def test_without_weight_at_any_site_there_is_no_problem() -> None:
    aggregator = FedOMGAggregator()
    with pytest.raises(FDGError):
        aggregator.direction(torch.zeros(2), [])


def test_buffers_take_no_part_in_the_matching() -> None:
    updates = [random_update(seed) for seed in range(3)]
    shifted = [
        {name: value + 100 * seed if "running" in name or "num" in name else value for name, value in update.items()}
        for seed, update in enumerate(updates)
    ]
    plain, other = step(FedOMGAggregator(), updates), step(FedOMGAggregator(), shifted)
    assert report_of(plain) == report_of(other)
    assert np.array_equal(plain.params["conv.weight"], other.params["conv.weight"])
    assert not np.array_equal(plain.params["bn.running_mean"], other.params["bn.running_mean"])


def test_a_site_that_hardly_moves_is_named_and_not_matched() -> None:
    report = report_of(step(FedOMGAggregator(server_lr=1.0), vectors([3, 1], [1, 3], [1e-4, -1e-4])))
    assert (report["idle"], report["gamma"][report["sites"].index("sketch")]) == (("sketch",), 0)
    assert AggregationRecord.from_report(report).idle == ("sketch",)


def of_steps(kappa: float, weighting: str, **steps: int) -> FLModel:
    """Return the step over FedNova of three sites with so many local steps."""
    updates = vectors([3, 1, 0], [1, 4, 1], [0, -1, 2])
    sent = [
        contribution(site, update, SAMPLES[site], steps=count, effective_steps=float(count))
        for (site, count), update in zip(steps.items(), updates, strict=True)
    ]
    made = FedOMGAggregator(kappa=kappa, server_lr=1.0, weighting=weighting, over="fednova")
    return aggregate(made, sent)


@pytest.mark.parametrize("weighting", ["uniform", "samples"])
def test_over_fednova_the_mean_that_is_matched_is_fednovas(weighting: str) -> None:
    plain = of_steps(0.0, weighting, art=2, photo=6, sketch=3)
    counts = np.array([3, 4, 5]) if weighting == "samples" else np.ones(3)
    p, steps = counts / counts.sum(), np.array([2, 6, 3])
    coefficients = p * (p @ steps) / steps
    assert report_of(plain)["coefficients"] == pytest.approx(coefficients.tolist())
    found = report_of(of_steps(0.5, weighting, art=2, photo=6, sketch=3))
    updates = np.array([[3, 1, 0], [1, 4, 1], [0, -1, 2]])
    mean, matched = coefficients @ updates, np.array(found["gamma"]) @ updates
    expected = coefficients + 0.5 * np.linalg.norm(mean) / np.linalg.norm(matched) * np.array(found["gamma"])
    assert found["coefficients"] == pytest.approx(expected.tolist())
    value = matched @ mean + 0.5 * np.linalg.norm(mean) * np.linalg.norm(matched)
    assert found["objective"] == pytest.approx(value)
    assert found["duality_gap"] < 1e-8
    corners = updates @ mean + 0.5 * np.linalg.norm(mean) * np.linalg.norm(updates, axis=1)
    assert value <= corners.min() + 1e-12


def test_with_equal_steps_over_fednova_is_fedomg_to_the_bit_and_other_rules_are_refused() -> None:
    updates = vectors([3, 1, 0], [1, 4, 1], [0, -1, 2])
    plain = step(FedOMGAggregator(server_lr=1.0), updates)
    assert np.array_equal(of_steps(0.5, "uniform", art=4, photo=4, sketch=4).params["w"], plain.params["w"])
    with pytest.raises(ContributionError):
        aggregate(FedOMGAggregator(over="fednova"), [contribution("art", updates[0], said=False)])
    for other in ("fedcsa", "fedomg", "fedga", "mine"):
        with pytest.raises(SettingsError) as caught:
            FedOMGAggregator(over=other)
        assert caught.value.field == "over"


DOMAINS = dict(zip(SAMPLES, ("a", "a", "b", "b"), strict=True))


def grouped(domains: dict[str, str], **chosen: Any) -> FedOMGAggregator:
    aggregator = FedOMGAggregator(grouping="domain", server_lr=1.0, **chosen)
    aggregator.facts = RunFacts(domains=domains)
    return aggregator


def test_grouped_by_domain_the_means_are_matched_and_the_report_says_what_that_loses() -> None:
    # Domain a has (1.9, 0) and (0.1, 0), of mean (1, 0); domain b twice (0, 1). Their match is halfway, and p is
    # uniform: d = mean (0.5, 0.5), plus kappa times it. All four sites would give gamma to the shortest.
    result = step(grouped(DOMAINS, kappa=1.0), vectors([1.9, 0], [0.1, 0], [0, 1], [0, 1]))
    np.testing.assert_allclose(result.params["w"], [1.0, 1.0], rtol=1e-9)
    report = report_of(result)
    assert report["gamma"] == pytest.approx([0.25] * 4)
    assert report["grouping_loss"] > 0.1
    assert AggregationRecord.from_report(report).grouping_loss == report["grouping_loss"]


def test_grouping_by_domain_needs_to_know_the_domains() -> None:
    with pytest.raises(SettingsError):
        step(FedOMGAggregator(grouping="domain"), vectors([1.0]))
