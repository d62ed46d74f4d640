# SPDX-License-Identifier: Apache-2.0
"""The Gaussian mechanism and its accounting, against independent definitions, integrals and published numbers."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.stats import kstest, norm

from fdg_plugins.core.privacy import (
    ORDERS,
    SENSITIVITY,
    clip_factor,
    composed_rdp,
    epsilon,
    gaussian_rdp,
    privatize,
    secure_normal,
)

sigmas = st.floats(0.3, 100.0)
deltas = st.floats(1e-12, 0.1)


def silence(count: int) -> torch.Tensor:
    return torch.zeros(count, dtype=torch.float64)


def seeded_noise(seed: int) -> Callable[[int], torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return lambda count: torch.randn(count, generator=generator, dtype=torch.float64)


def exact_delta(eps: float, mu: float) -> float:
    """Return the least delta of Gaussian mechanisms, ``mu = sensitivity/deviation`` (Balle and Wang 2018, Thm. 8)."""
    return float(norm.cdf(mu / 2 - eps / mu) - math.exp(eps) * norm.cdf(-mu / 2 - eps / mu))


def exact_epsilon(noise_multipliers: list[float], delta: float) -> float:
    """Return the least epsilon of all releases together: Gaussian mechanisms compose to a Gaussian one."""
    mu = math.sqrt(sum((SENSITIVITY / sigma) ** 2 for sigma in noise_multipliers))
    if exact_delta(0.0, mu) <= delta:
        return 0.0
    return float(brentq(lambda eps: exact_delta(eps, mu) - delta, 0.0, 600.0))


# --- the mechanism ---


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


def test_the_factor_is_one_inside_the_ball_and_on_its_surface() -> None:
    assert clip_factor(0.0, 2.0) == clip_factor(2.0, 2.0) == 1.0
    assert clip_factor(8.0, 2.0) == 0.25


def test_the_noise_has_the_deviation_of_sigma_times_the_clip_norm_whatever_the_update_is() -> None:
    for scale in (0.0, 1e-8, 1e8):
        update = {"w": torch.full((100, 200), scale), "b": torch.zeros(5)}
        release = privatize(update, 0.5, 3.0, seeded_noise(1))
        assert float((release["w"] - release["w"].mean()).std()) == pytest.approx(1.5, rel=0.03)


def test_no_two_releases_share_their_noise_whatever_seeds_are_set() -> None:
    update = {"w": torch.zeros(8)}
    torch.manual_seed(0)
    np.random.seed(0)
    first = privatize(update, 1.0, 1.0)["w"]
    torch.manual_seed(0)
    np.random.seed(0)
    assert not torch.equal(first, privatize(update, 1.0, 1.0)["w"])


def test_the_secure_source_is_standard_normal_and_uncorrelated() -> None:
    sample = secure_normal(100_001)
    assert sample.dtype == torch.float64
    assert sample.shape == (100_001,)
    assert kstest(sample.numpy(), "norm").pvalue > 1e-6
    halves = np.corrcoef(sample[:50_000], sample[50_001:])[0, 1]  # cosine and sine of the same pairs
    assert abs(halves) < 6 / math.sqrt(50_000)
    assert bool(secure_normal(0).numel() == 0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_dtypes_and_shapes_stay_and_what_does_not_fit_becomes_the_largest_value(dtype: torch.dtype) -> None:
    update = {"scalar": torch.tensor(1.0, dtype=dtype), "none": torch.zeros(0, 3, dtype=dtype)}
    release = privatize(update, 1e300, 1.0, noise=lambda count: torch.full((count,), 1.0, dtype=torch.float64))
    assert {name: (value.dtype, value.shape) for name, value in release.items()} == {
        name: (value.dtype, value.shape) for name, value in update.items()
    }
    assert bool(torch.isfinite(release["scalar"]))
    assert float(update["scalar"]) == 1.0, "what came in is unchanged"


# --- its privacy loss ---


@pytest.mark.parametrize(("order", "sigma"), [(1.5, 0.7), (2.0, 2.0), (8.0, 4.0), (64.0, 30.0)])
def test_the_divergence_is_that_of_two_normal_distributions_by_integration(order: float, sigma: float) -> None:
    shift = SENSITIVITY  # in units of the clip norm; the deviation is sigma

    def log_ratio(x: float) -> float:
        return order * norm.logpdf(x, shift, sigma) + (1 - order) * norm.logpdf(x, 0.0, sigma)

    peak = order * shift
    value, _ = quad(lambda x: math.exp(log_ratio(x) - log_ratio(peak)), peak - 12 * sigma, peak + 12 * sigma)
    assert gaussian_rdp(order, sigma) == pytest.approx((math.log(value) + log_ratio(peak)) / (order - 1), rel=1e-6)


@settings(deadline=None)
@given(st.lists(sigmas, max_size=6), st.lists(sigmas, max_size=6), st.floats(1.01, 500))
def test_divergences_add_up(first: list[float], second: list[float], order: float) -> None:
    whole = composed_rdp(order, first + second)
    assert whole == pytest.approx(composed_rdp(order, first) + composed_rdp(order, second), rel=1e-12)


@settings(deadline=None)
@given(st.lists(sigmas, min_size=1, max_size=20), deltas)
def test_epsilon_is_never_below_the_exact_one_and_for_a_small_delta_close_to_it(
    noise: list[float], delta: float
) -> None:
    bound, exact = epsilon(noise, delta), exact_epsilon(noise, delta)
    assert bound >= exact - 1e-9
    if delta <= 1e-4:
        assert bound <= 1.25 * exact + 0.15


@settings(deadline=None)
@given(st.lists(sigmas, min_size=1, max_size=8), sigmas, deltas, st.floats(1.01, 3.0))
def test_epsilon_falls_with_noise_and_delta_and_rises_with_releases(
    noise: list[float], one_more: float, delta: float, factor: float
) -> None:
    base = epsilon(noise, delta)
    assert epsilon([*noise, one_more], delta) >= base
    assert epsilon([factor * sigma for sigma in noise], delta) <= base
    assert epsilon(noise, min(0.5, factor * delta)) <= base


@settings(deadline=None)
@given(st.lists(sigmas, min_size=1, max_size=8), deltas)
def test_the_order_of_releases_does_not_matter(noise: list[float], delta: float) -> None:
    assert epsilon(noise, delta) == epsilon(noise[::-1], delta)


@settings(deadline=None)
@given(sigmas, deltas, st.integers(1, 50))
def test_n_releases_cost_what_one_with_less_noise_by_the_root_of_n_costs(sigma: float, delta: float, n: int) -> None:
    assert epsilon([sigma] * n, delta) == pytest.approx(epsilon([sigma / math.sqrt(n)], delta), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("sigma", [1.0, 3.0, 10.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-6])
def test_delta_is_kept_by_the_two_distributions_themselves_by_integration(sigma: float, delta: float) -> None:
    eps = epsilon([sigma], delta)
    start = (eps * sigma**2 + SENSITIVITY**2 / 2) / SENSITIVITY  # where the log of the ratio of densities passes eps

    def excess(x: float) -> float:
        return float(norm.pdf(x, SENSITIVITY, sigma) - math.exp(eps) * norm.pdf(x, 0.0, sigma))

    spent, _ = quad(excess, start, max(start, SENSITIVITY) + 40 * sigma, points=[start + sigma], limit=200)
    assert 0 < spent <= delta


def test_the_published_deviation_of_the_analytic_gaussian_mechanism_is_a_bound_that_ours_keeps() -> None:
    # Balle and Wang (ICML 2018), authors' code: sensitivity 1, epsilon 1, delta 1e-5 -> deviation 3.730632.
    sigma = SENSITIVITY * 3.730632
    assert exact_epsilon([sigma], 1e-5) == pytest.approx(1.0, abs=1e-5)
    assert 1.0 <= epsilon([sigma], 1e-5) < 1.1


def test_the_bound_is_the_least_over_the_orders_of_the_formula_in_the_paper() -> None:
    # Written out again for one order: sigma 4, three rounds, delta 1e-5, a = 5.
    rdp = 3 * 5 * 2 / 16
    bound = rdp + math.log(4 / 5) - (math.log(1e-5) + math.log(5)) / 4
    assert epsilon([4.0] * 3, 1e-5) <= bound
    assert min(abs(order - 5) for order in ORDERS) < 0.1


def test_nothing_released_costs_nothing_and_no_noise_to_speak_of_costs_without_limit() -> None:
    assert epsilon([], 1e-5) == 0.0
    assert epsilon([1e-200], 1e-5) == math.inf
    assert epsilon([1e6], 1e-5) < 1e-3
