# SPDX-License-Identifier: Apache-2.0
r"""The exact privacy cost of a sequence of Gaussian releases: no upper bound is used and no grid is searched.

A release is an update clipped to length C plus noise of standard deviation sigma C (:mod:`fdg_plugins.core.privacy`).
The clipped updates of two data sets differ by at most 2C. There is no subsampling, so

- one release is a Gaussian mechanism with ``mu = 2 / sigma``. Several releases, even if each is chosen adaptively,
  compose exactly to one mechanism with ``mu = 2 sqrt(sum 1 / sigma_t^2)`` (Dong, Roth, Su, "Gaussian Differential
  Privacy", JRSS B 2022, Cor. 3.3) -> :func:`composed_mu`
- that mechanism is (epsilon, delta)-private exactly for ``delta >= Phi(mu/2 - epsilon/mu) - exp(epsilon)
  Phi(-mu/2 - epsilon/mu)`` (Balle, Wang, "Improving the Gaussian Mechanism for Differential Privacy", ICML 2018,
  Thm. 8; Dong, Roth, Su, Cor. 2.13) -> :func:`epsilon_of_mu` solves this for epsilon

Numerics. With ``h = mu / 2`` and ``x = epsilon / mu`` nothing overflows and no large numbers are subtracted: since
``exp(epsilon) phi(x + h) = phi(x - h)``, the right-hand side is ``phi(x - h) (M(x - h) - M(x + h))`` with Mills' ratio
``M(t) = Phi(-t) / phi(t)``, a scaled complementary error function. Where the two ratios are nearly equal, their
difference is computed as the integral of ``-M'(t) = 1 - t M(t)``; where delta is near one, its complement is computed.

Every result is rounded up by more than its numerical error, so the true value never exceeds it.
"""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from fdg_plugins.core.privacy import SENSITIVITY
from fdg_plugins.errors import SettingsError

MOST_RELEASES = 10**12  # the largest number of releases considered

_MARGIN = 4e-12  # relative, on delta: several times the largest error found in a comparison with 60 digits
_ULPS = 4  # units in the last place by which a product of a few factors is rounded up
_NEAR = 0.5  # for h below this, the two Mills' ratios are too close to be subtracted
_FAR = 40.0  # every delta that is a normal float is reached at or before x = h + 40
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)
_ROOT = math.sqrt(0.5)
_MILLS = math.sqrt(math.pi / 2)
_LOG_PHI_0 = -0.5 * math.log(2 * math.pi)


def gaussian_epsilon(noise_multipliers: Iterable[float], delta: float) -> float:
    """Return the smallest epsilon that all releases together satisfy at ``delta``; zero without releases.

    Args:
        noise_multipliers: sigma > 0 of each release: the standard deviation of its noise in units of the clip norm.
        delta: in (0, 1).

    The result is infinite if it exceeds the largest float. Raises ``SettingsError`` naming the value out of range.

    >>> round(gaussian_epsilon([10.0] * 4, delta=1e-5), 2)
    1.55
    """
    return epsilon_of_mu(composed_mu(noise_multipliers), delta)


def gaussian_noise_multiplier(epsilon: float, delta: float, releases: int) -> float:
    """Return the smallest sigma for which ``releases`` releases together satisfy (epsilon, delta), to 12 digits.

    It is rounded up: :func:`gaussian_epsilon` of that many releases with it is at most ``epsilon``. Raises
    ``SettingsError`` naming the value out of range, also if no float is large or small enough.
    """
    _between("epsilon", epsilon), checked_delta(delta)
    if not isinstance(releases, int) or not 1 <= releases <= MOST_RELEASES:
        expected = f"a whole number from 1 to {MOST_RELEASES}"
        raise SettingsError(field="the number of releases", value=releases, expected=expected, public=True)
    sigma = SENSITIVITY * math.sqrt(releases) / _mu_of_epsilon(epsilon, delta)
    while epsilon_of_mu(mu_of_equal(releases, sigma), delta) > epsilon:
        sigma *= 1 + 1e-14
    return sigma


def _mu_of_epsilon(epsilon: float, delta: float) -> float:
    """Return the largest mu that is (epsilon, delta)-private, to 13 digits, rounded down."""
    low, high = 1e-150, 1e150  # low is private, high is not
    if not epsilon_of_mu(low, delta) <= epsilon < epsilon_of_mu(high, delta):
        raise SettingsError(f"epsilon is {epsilon:g} at delta {delta:g}: no noise multiplier meets it.", public=True)
    while high > low * (1 + 1e-13):
        middle = math.sqrt(low) * math.sqrt(high)
        low, high = (middle, high) if epsilon_of_mu(middle, delta) <= epsilon else (low, middle)
    return low


def releases_left(spent_mu: float, noise_multiplier: float, max_epsilon: float, delta: float) -> int:
    """Return how many more releases with this noise fit under ``max_epsilon``, after earlier ones of ``spent_mu``.

    At most ``MOST_RELEASES``. Raises ``SettingsError`` naming the value out of range.
    """
    _between("max_epsilon", max_epsilon)

    def fits(count: int) -> bool:
        together = _up(math.hypot(spent_mu, mu_of_equal(count, noise_multiplier)))
        return epsilon_of_mu(together, delta) <= max_epsilon

    if fits(MOST_RELEASES):
        return MOST_RELEASES
    low, high = 0, MOST_RELEASES  # low fits, high does not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def composed_mu(noise_multipliers: Iterable[float]) -> float:
    """Return ``2 sqrt(sum 1 / sigma_t^2)``, rounded up: the mu of the mechanism composed of all releases."""
    ratios = [SENSITIVITY / _between("noise multiplier", sigma) for sigma in noise_multipliers]
    return _up(math.hypot(*sorted(ratios))) if ratios else 0.0  # sorted: the bits do not depend on the order


def mu_of_equal(releases: int, noise_multiplier: float) -> float:
    """Return the mu of ``releases`` releases with equal noise, rounded up."""
    return _up(SENSITIVITY * math.sqrt(releases) / _between("noise multiplier", noise_multiplier))


def epsilon_of_mu(mu: float, delta: float) -> float:
    """Return the smallest epsilon of a Gaussian mechanism with ``mu`` >= 0 at ``delta`` in (0, 1), rounded up."""
    checked_delta(delta)
    half = mu / 2
    if half == 0 or _keeps(0.0, half, delta):
        return 0.0
    return math.inf if math.isinf(half) else _up(mu * _smallest_kept(half, delta))


def _smallest_kept(half: float, delta: float) -> float:
    """Return the smallest float ``x = epsilon / mu`` above zero that :func:`_keeps` at delta; ``half`` is mu / 2."""
    low, high = 0.0, half + _FAR  # low fails, high holds
    while low < (middle := low + (high - low) / 2) < high and high > 1e-300:
        low, high = (low, middle) if _keeps(middle, half, delta) else (middle, high)
    return high


def _keeps(x: float, half: float, delta: float) -> bool:
    """Return whether ``epsilon = x mu`` certainly holds at ``delta``; ``half`` is mu / 2."""
    a = half - x
    if half >= _NEAR and a > 0:  # delta may be near one: compare complements, which lose no digits there
        complement = math.exp(-a * a / 2 + _LOG_PHI_0) * (_mills(a) + _mills(x + half))
        return complement * (1 - _MARGIN) >= 1 - delta
    if half >= _NEAR:
        log_difference = math.log(_mills(-a) - _mills(x + half))
    else:
        points = x + half * _NODES
        mean = float(_WEIGHTS @ (1 - points * _MILLS * _erfcx(points * _ROOT)))
        log_difference = math.log(half) + math.log(mean)
    return -a * a / 2 + _LOG_PHI_0 + log_difference + _MARGIN <= math.log(delta)


def _mills(t: float) -> float:
    """Return ``Phi(-t) / phi(t)``."""
    return _MILLS * float(_erfcx(t * _ROOT))


def _erfcx(values: Any) -> Any:
    # Imported on use, so that sites without privacy never load scipy.
    from scipy.special import erfcx

    return erfcx(values)


def _up(value: float) -> float:
    for _ in range(_ULPS):
        value = math.nextafter(value, math.inf)
    return value


def checked_delta(delta: float) -> float:
    """Return delta; raise ``SettingsError`` unless it is in (0, 1)."""
    return _between("delta", delta, 1, "a number between 0 and 1, both excluded")


def _between(what: str, value: float, limit: float = math.inf, expected: str = "a finite number above zero") -> float:
    if not isinstance(value, int | float) or not 0 < value < limit:
        raise SettingsError(field=what, value=value, expected=expected, public=True)
    return value
