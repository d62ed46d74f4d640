# SPDX-License-Identifier: Apache-2.0
"""The Gaussian mechanism: what is clipped, what noise is added and where it comes from, and exactly what it costs."""

import math
import random
from functools import partial

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fdg_plugins.core.accounting import (
    MOST_RELEASES,
    composed_mu,
    epsilon_of_mu,
    gaussian_epsilon,
    gaussian_noise_multiplier,
    releases_left,
)
from fdg_plugins.core.privacy import SENSITIVITY, privatize
from tests.random_tensors import normal_double

silence = partial(torch.zeros, dtype=torch.float64)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20), st.floats(1e-3, 1e3))
def test_without_noise_the_release_is_the_nearest_point_of_the_ball(values: list[float], clip_norm: float) -> None:
    update = {"a": torch.tensor(values[:1], dtype=torch.float64), "b": torch.tensor(values[1:], dtype=torch.float64)}
    release = privatize(update, clip_norm, 1.0, noise=silence)
    before, after = (torch.cat([part["a"], part["b"]]) for part in (update, release))
    assert float(after.norm()) <= clip_norm * (1 + 1e-12)
    expected = before if float(before.norm()) <= clip_norm else before * (clip_norm / before.norm())
    torch.testing.assert_close(after, expected, rtol=1e-12, atol=0)


def test_any_two_updates_are_released_within_the_sensitivity_of_each_other_which_opposite_ones_attain() -> None:
    far = {"a": torch.full((4,), 100.0, dtype=torch.float64)}
    opposite = {"a": -far["a"]}
    distance = (privatize(far, 3.0, 1.0, silence)["a"] - privatize(opposite, 3.0, 1.0, silence)["a"]).norm()
    assert float(distance) == pytest.approx(SENSITIVITY * 3.0)


def test_the_noise_has_the_deviation_of_sigma_times_the_clip_norm_whatever_the_update_is() -> None:
    for scale in (0.0, 1e-8, 1e8):
        update = {"w": torch.full((100, 200), scale), "b": torch.zeros(5)}
        release = privatize(update, 0.5, 3.0, partial(normal_double, 1))
        assert float((release["w"] - release["w"].mean()).std()) == pytest.approx(1.5, rel=0.03)


def test_no_two_releases_share_their_noise_whatever_seeds_are_set() -> None:
    update = {"w": torch.zeros(8)}
    torch.manual_seed(0)
    np.random.seed(0)
    first = privatize(update, 1.0, 1.0)["w"]
    torch.manual_seed(0)
    np.random.seed(0)
    assert not torch.equal(first, privatize(update, 1.0, 1.0)["w"])


def test_dtypes_and_shapes_stay_and_what_does_not_fit_becomes_the_largest_value() -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        update = {"scalar": torch.tensor(1.0, dtype=dtype), "none": torch.zeros(0, 3, dtype=dtype)}
        release = privatize(update, 1e300, 1.0, noise=partial(torch.ones, dtype=torch.float64))
        assert {name: (value.dtype, value.shape) for name, value in release.items()} == {
            name: (value.dtype, value.shape) for name, value in update.items()
        }
        largest = min(1e300, torch.finfo(dtype).max)
        assert float(release["scalar"]) == pytest.approx(largest)
        negative = privatize(update, 1e300, 1.0, noise=lambda count: -torch.ones(count, dtype=torch.float64))
        assert float(negative["scalar"]) == pytest.approx(-largest)
        assert float(update["scalar"]) == 1.0, "what came in is unchanged"


deltas = st.floats(1e-12, 0.1)


def exact_delta(epsilon: float, mu: float) -> mpmath.mpf:
    """Return the least delta of the definition, with 80 correct digits; ``mu`` may be as small as 1e-300."""
    with mpmath.workdps(80 + max(0, round(-math.log10(mu)))):
        x, half = mpmath.mpf(epsilon) / mpmath.mpf(mu), mpmath.mpf(mu) / 2
        return mpmath.ncdf(half - x) - mpmath.exp(mpmath.mpf(epsilon)) * mpmath.ncdf(-half - x)


def drawn_cases(count: int) -> list[tuple[float, float]]:
    """Return pairs of mu, from 1e-250 to 1e6, and delta, from 1e-300 to just below one."""
    generator = random.Random(20260301)
    cases = []
    for _ in range(count):
        mu = 10 ** generator.choice([generator.uniform(-250, 6), generator.uniform(-4, 3)])
        delta = generator.choice(
            [10 ** generator.uniform(-300, -1), 10 ** generator.uniform(-15, -1), generator.uniform(0.01, 0.999)]
        )
        cases.append((mu, delta))
    return cases


def test_delta_is_kept_at_the_result_and_at_nothing_noticeably_smaller_over_the_whole_range() -> None:
    positive = 0
    for mu, delta in drawn_cases(200):
        epsilon = epsilon_of_mu(mu, delta)
        assert exact_delta(epsilon, mu) <= delta, (mu, delta)
        if epsilon > 0:
            positive += 1
            assert exact_delta(epsilon * (1 - 1e-9), mu) > delta, (mu, delta)
    assert positive > 80


@pytest.mark.slow
def test_it_agrees_with_googles_accountant_that_knows_no_closed_form() -> None:
    privacy_loss_distribution = pytest.importorskip("dp_accounting.pld").privacy_loss_distribution
    noise = (3.0, 5.0, 8.0)
    composed = None
    for sigma in noise:
        one = privacy_loss_distribution.from_gaussian_mechanism(
            sigma, sensitivity=SENSITIVITY, value_discretization_interval=1e-4, use_connect_dots=True
        )
        composed = one if composed is None else composed.compose(one)
    assert composed is not None
    assert gaussian_epsilon(noise, 1e-5) == pytest.approx(composed.get_epsilon_for_delta(1e-5), rel=1e-4)


@settings(deadline=None, max_examples=15)
@given(st.floats(1e-3, 1e4), deltas, st.integers(1, 1000))
def test_the_noise_for_an_epsilon_costs_that_and_never_more(epsilon: float, delta: float, releases: int) -> None:
    sigma = gaussian_noise_multiplier(epsilon, delta, releases)
    spent = gaussian_epsilon([sigma] * releases, delta)
    assert spent <= epsilon * (1 + 1e-12)
    assert gaussian_epsilon([sigma * (1 - 1e-9)] * releases, delta) > epsilon


def test_as_many_releases_are_left_as_the_ledger_will_let_out() -> None:
    for spent in ((), (4.0, 4.0, 4.0)):
        for sigma in (2.0, 8.0, 50.0):
            left = releases_left(composed_mu(spent), sigma, 9.0, 1e-5)
            assert gaussian_epsilon([*spent, *[sigma] * left], 1e-5) <= 9.0
            assert gaussian_epsilon([*spent, *[sigma] * (left + 1)], 1e-5) > 9.0
            assert left > 0
    assert releases_left(0.0, 1e9, 9.0, 1e-5) == MOST_RELEASES
