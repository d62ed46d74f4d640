# SPDX-License-Identifier: Apache-2.0
r"""An active-set method for FedOMG's matching problem: a few small linear systems, and a bound that certifies them.

The problem is that of :mod:`fdg_plugins.core.matching`: ``min F(gamma) = b' gamma + kappa |A gamma|`` over the simplex,
where A enters only through ``G = A' A``. The *support* of the optimum, the sites of positive weight, is often small.

Equations. On a fixed support, with weights that sum to one, F is stationary where ``b + (kappa / s) G gamma = nu 1``
with ``s = |A gamma|``. With ``o = G^-1 1``, ``v = G^-1 b``, ``a = 1' o``, ``c = 1' v`` and ``q = b' v - c**2 / a``,
the constraint on the sum and the definition of s determine nu and s:

    ``kappa / s = sqrt(a (kappa**2 - q))``  and  ``gamma = (s / kappa) ((c + kappa / s) / a  o - v)``.

For ``q >= kappa**2`` there is no stationary point; F decreases without bound along ``(c / a) o - v``.

The outer loop is the method of Lawson and Hanson for non-negative least squares ("Solving Least Squares Problems",
1974, chapter 23), whose argument holds for any convex F: start at the best corner, add sites whose slope is below that
of the support, move to the stationary point, and drop the sites whose weight would become negative on the way. Two
changes reduce the number of linear systems: up to as many sites are added at once as the support has, and all sites
that would become negative are dropped at once if that lowers F (a projected Newton step: Bertsekas, "Projected Newton
methods for optimization problems with simple constraints", SIAM J. Control Optim., 1982). F decreases strictly from
one support to the next, so no support is visited twice.

Shapes: G ``[U, U]``, b and gamma ``[U]``, float64; S sites in a support.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

MAX_SUPPORTS = 100
MAX_SYSTEMS = 50  # for one support; only a sum of updates that nearly cancels needs more
FEWEST_ADDED = 4
EPSILON = float(np.finfo(np.float64).eps)
RIDGE = 4 * EPSILON  # makes the matrix of cosines regular if updates are equal
CANCELLED = 1e-6  # relative to its terms, the length below which G does not determine a sum's direction
EQUAL = 1e-14  # relative squared distance of two updates that is only rounding
ROUNDING = 1e-13  # relative change of F that is only rounding


@dataclass(frozen=True)
class Minimum:
    """A candidate for the optimum.

    ``weights``: gamma, float64 ``[U]``, on the simplex. ``value``: F(gamma). ``bound``: a proven lower bound of min F.
    """

    weights: np.ndarray
    value: float
    bound: float


def minimise(matrix: np.ndarray, linear: np.ndarray, kappa: float) -> Minimum | None:
    """Return the smallest F found for G ``matrix [U, U]`` (largest entry one), b ``linear [U]`` and kappa > 0.

    ``value - bound`` is of the order of rounding unless A gamma cancels at the optimum; the caller decides whether it
    is small enough. Sites with equal updates share their weight equally. Returns ``None`` if the matrix is indefinite
    beyond rounding, because F is then not convex.
    """
    problem, still = _Problem(matrix, linear, kappa), matrix.diagonal() <= 0
    moving = problem.part(np.flatnonzero(~still))
    if not moving.is_convex():
        return None
    weights = np.zeros(len(linear))
    weights[~still] = _descend(moving)
    value, bound = problem.value(weights), problem.bound(weights)
    if still.any() and value > 0:  # the descent leaves out updates of length zero, at which F is zero
        weights, value = still / still.sum(), 0.0
    weights, value = _shared(problem, weights, value)
    return Minimum(weights, value, bound)


class _Target(NamedTuple):
    """The stationary point of a support, of sum one, or a direction ``[S]`` of unbounded descent."""

    vector: np.ndarray
    is_point: bool


@dataclass(frozen=True)
class _Problem:
    matrix: np.ndarray
    linear: np.ndarray
    kappa: float

    def part(self, sites: np.ndarray) -> "_Problem":
        """Return the problem restricted to ``sites``, indices ``[S]``."""
        return _Problem(self.matrix[np.ix_(sites, sites)], self.linear[sites], self.kappa)

    def is_convex(self) -> bool:
        try:
            np.linalg.cholesky(self._cosines(ridge=10 * len(self.linear) * EPSILON))
        except np.linalg.LinAlgError:
            return False
        return True

    def length(self, gamma: np.ndarray) -> float:
        return _root(gamma @ self.matrix @ gamma)

    def value(self, gamma: np.ndarray) -> float:
        return float(self.linear @ gamma) + self.kappa * self.length(gamma)

    def slopes(self, gamma: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the gradient of F and its rounding error, each ``[U]``; of the linear term only if A gamma is zero."""
        used = np.flatnonzero(gamma)
        products, length = gamma[used] @ self.matrix[used], self.length(gamma)
        if length == 0:
            return self.linear, np.zeros_like(self.linear)
        # The error of a sum of n terms grows as the square root of n (Higham and Mary, SIAM J. Sci. Comput., 2019).
        error = len(used) ** 0.5 * EPSILON * (gamma[used] @ np.abs(self.matrix[used]))
        return self.linear + self.kappa / length * products, self.kappa / length * error

    def bound(self, gamma: np.ndarray) -> float:
        """Return the smallest slope, which is the dual objective at ``y = A gamma / |A gamma|``."""
        slopes, errors = self.slopes(gamma)
        return float((slopes - errors).min())

    def stationary(self) -> _Target:
        """Return the stationary point, or a direction of unbounded descent; ``LinAlgError`` if rounding hides both."""
        lengths = np.sqrt(self.matrix.diagonal())
        right = np.stack([1 / lengths, self.linear / lengths], axis=1)
        o, v = np.linalg.solve(self._cosines(ridge=RIDGE), right).T / lengths
        a, c = float(o.sum()), float(v.sum())
        if a <= 0:
            raise np.linalg.LinAlgError("The matrix of the support is not positive definite.")
        root_q = _root(self.linear @ v - c * c / a)
        if root_q < self.kappa:
            kappa_over_s = a**0.5 * (self.kappa - root_q) ** 0.5 * (self.kappa + root_q) ** 0.5
            return _Target(((c + kappa_over_s) / a * o - v) / kappa_over_s, is_point=True)
        direction = c / a * o - v
        if (direction >= 0).all():
            raise np.linalg.LinAlgError("The direction of descent is lost in rounding.")
        return _Target(direction, is_point=False)

    def _cosines(self, ridge: float) -> np.ndarray:
        """Return the cosines of the updates ``[U, U]``, plus ``ridge`` times the identity."""
        lengths = np.sqrt(self.matrix.diagonal())
        return self.matrix / np.outer(lengths, lengths) + ridge * np.eye(len(lengths))


def _descend(problem: _Problem) -> np.ndarray:
    lengths = np.sqrt(problem.matrix.diagonal())
    corners = problem.linear + problem.kappa * lengths
    gamma = (np.arange(len(corners)) == corners.argmin()).astype(np.float64)
    value = float(corners.min())
    for _ in range(MAX_SUPPORTS):
        support = np.flatnonzero(gamma)
        slopes, errors = problem.slopes(gamma)
        below = np.flatnonzero(slopes + errors < value)
        added = below[np.argsort(slopes[below], kind="stable")][: max(FEWEST_ADDED, len(support))]
        if len(added) == 0 or problem.length(gamma) <= CANCELLED * (gamma @ lengths):
            break
        candidate = _settled(problem, gamma, np.union1d(support, added))
        if not problem.value(candidate) < value:
            break
        gamma, value = candidate, problem.value(candidate)
    return gamma


def _settled(problem: _Problem, start: np.ndarray, support: np.ndarray) -> np.ndarray:
    """Return a point ``[U]`` of lower F that is stationary on a subset of ``support``; ``start`` if there is none."""
    gamma = start[support]
    for _ in range(MAX_SYSTEMS):
        part = problem.part(support)
        try:
            target = part.stationary()
        except np.linalg.LinAlgError:
            break
        if target.is_point and (target.vector >= 0).all():
            settled = np.zeros_like(start)
            settled[support] = target.vector / target.vector.sum()
            return settled
        kept, gamma = _moved(part, gamma, target)
        gamma, support = gamma[kept], support[kept]
    return start


def _moved(part: _Problem, gamma: np.ndarray, target: _Target) -> tuple[np.ndarray, np.ndarray]:
    """Move ``gamma [S]`` towards an infeasible target; return the mask of the sites left, and weights.

    All weights that would become negative are dropped at once if that lowers F, else the first one on the way.
    """
    vector = target.vector
    projected = np.maximum(vector, 0.0) / np.maximum(vector, 0.0).sum()
    if target.is_point and part.value(projected) < part.value(gamma):
        return vector > 0, projected
    return _to_boundary(gamma, vector - gamma if target.is_point else vector)


def _to_boundary(gamma: np.ndarray, direction: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Move ``gamma [S]`` along ``direction`` until a weight is zero; return the mask of the sites left, and weights."""
    falling = direction < 0
    reach = np.full_like(gamma, np.inf)
    reach[falling] = gamma[falling] / -direction[falling]
    kept = reach > reach.min()
    end = np.where(kept, gamma + reach.min() * direction, 0.0)
    return kept, end / end.sum()


def _shared(problem: _Problem, weights: np.ndarray, value: float) -> tuple[np.ndarray, float]:
    """Return weights ``[U]`` in which sites with equal updates share equally, and F; those given if that raises F."""
    used, squares = np.flatnonzero(weights), problem.matrix.diagonal()
    distances = squares[used, None] + squares[None, :] - 2 * problem.matrix[used]
    equal = distances <= EQUAL * squares[used, None]
    shared = (weights[used] / equal.sum(axis=1)) @ equal
    shared_value = problem.value(shared)
    return (shared, shared_value) if shared_value <= value + ROUNDING * abs(value) else (weights, value)


def _root(square: float) -> float:
    return float(np.sqrt(max(0.0, square)))
