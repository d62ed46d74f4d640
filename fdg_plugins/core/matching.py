# SPDX-License-Identifier: Apache-2.0
r"""FedOMG's on-server matching: the invariant direction of a round's updates, to optimality and with a certificate.

Reference: Nguyen et al., "Federated Domain Generalization with Data-free On-server Matching Gradient"
(FedOMG), ICLR 2025.

Equations (number in the paper -> here), with updates ``g_u = theta_u - theta``, reference weights p,
``g_FL = sum_u p_u g_u`` and ``Gamma g = sum_u gamma_u g_u``:

- Eq. 15, ``min over gamma on the simplex of <Gamma g, g_FL> + kappa |g_FL| |Gamma g|`` -> :func:`match`
- Eq. 16, ``d = g_FL + kappa |g_FL| / |Gamma* g| Gamma* g`` -> :func:`invariant_coefficients`
- Eq. 17, ``theta + server_lr * d`` -> ``fdg_plugins.methods.fedomg``

Everything but the final combination depends on the updates only through their Gram matrix ``G [U, U]``:
``F(gamma) = gamma' G p + kappa sqrt(p' G p) sqrt(gamma' G gamma)``, a second-order cone program in U variables. The
certificate comes from the dual: for every ``y`` of length at most one, ``min_i (G p + c A' y)_i <= min F`` with
``G = A' A`` and ``c = kappa |g_FL|``, so any such ``y`` bounds the distance of a given ``gamma`` from the optimum.
:mod:`fdg_plugins.core.active_set` finds the optimum from linear systems in G. Where its certificate is not good enough
(updates that nearly cancel in Gamma* g), an interior-point solver is used -> :class:`ConeProgram`.

Damping. The authors' code adds a constant under each root. With s the mean length of the updates and a damping delta,
``sqrt(w' G w + delta s**2)`` takes the place of ``|w g|`` for w = p and w = gamma, in Eq. 15 and 16. On the simplex,
``w' G w + delta s**2 = w' (G + delta s**2 1 1') w``, so the damped problem is the printed one with another matrix under
the roots, and solver and certificate remain. A positive delta makes d a continuous function of the updates.

Idle sites. An update much shorter than the others makes ``F`` smallest at this site alone: gamma is (almost) one there,
and the whole matched direction is that of an update of (almost) no length. :func:`match` can be told which sites to
match; the others keep their part of g_FL.

Shapes: updates ``[U, P]``, ``G [U, U]``, p and gamma ``[U]`` on the simplex, d ``[P]``; U sites of the round.

Degenerate cases: ``kappa = 0`` is FedAvg (Corollary 1). One site, or equal updates, give ``d = (1 + kappa) g``. If
``Gamma* g`` or ``g_FL`` is zero, ``d = g_FL``. Zero and
nearly equal updates are legal. Permuting the sites permutes gamma and leaves d unchanged; scaling all updates by
``s > 0`` scales d by s.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fdg_plugins.core.active_set import Minimum, minimise
from fdg_plugins.core.gram import gram_matrix
from fdg_plugins.core.linear import combine
from fdg_plugins.core.weighting import check_weights

if TYPE_CHECKING:
    import cvxpy as cp

# If |Gamma* g|, relative to the longest update, is below this, it is rounding error of the float64 Gram matrix, and
# Gamma* g counts as zero.
ZERO_LENGTH = 1e-7
ACCEPTED_GAP = 1e-8  # the largest gap at which the active set's solution is accepted
RELEASED_DAMPING = 1e-4  # of the authors' code
ZERO_WEIGHT = 1e-9
SOLVER_TOLERANCES = (1e-12, 1e-10, 1e-8, 1e-6)


@dataclass(frozen=True)
class Matching:
    """The solution of Eq. 15.

    ``weights``: gamma, float64 ``[U]``, on the simplex. ``objective``: F(gamma), in the units of a squared
    update. ``gap``: a proven bound on ``(F(gamma) - min F) / |F(gamma)|``.
    """

    weights: torch.Tensor
    objective: float
    gap: float


def match(
    gram: torch.Tensor | np.ndarray,
    reference: torch.Tensor | Sequence[float],
    kappa: float,
    damping: float = 0.0,
    sites: torch.Tensor | np.ndarray | None = None,
) -> Matching:
    """Solve Eq. 15 for ``gram [U, U]``, ``reference`` p ``[U]`` on the simplex and the radius ``kappa >= 0``.

    ``damping``: delta >= 0 under the roots; 0 is the problem as printed. ``sites``: a mask ``[U]`` of the sites to
    match, at least one; the others get no weight in gamma.

    Degenerate cases: one site gives (1). If the reference update has length zero, F vanishes, every gamma is optimal,
    and p is returned. With ``kappa = 0`` F is linear, and its minimisers share the weight equally. A singular or
    slightly indefinite ``gram`` (equal, nearly equal or zero updates) is legal. Raises ``ValueError`` for a gram that
    is not finite, or a p that is not on the simplex.

    >>> solution = match(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), [0.5, 0.5], kappa=0.5)
    >>> solution.weights.tolist(), solution.gap < 1e-8
    ([0.5, 0.5], True)
    """
    matrix, p = _checked(gram, reference)
    rooted = _damped(matrix, damping)
    longest = float(np.sqrt(rooted.diagonal().max(initial=0.0)))
    reference_length = _length(rooted, p)
    if len(p) == 1 or reference_length <= ZERO_LENGTH * longest:
        return Matching(torch.from_numpy(p.copy()), _objective(matrix, rooted, p, kappa, p), 0.0)
    # In these units |g_FL| and the longest update are one, whatever the scale of the updates.
    unit = longest * reference_length
    matched = np.arange(len(p)) if sites is None else np.flatnonzero(np.asarray(sites, dtype=bool))
    linear = (matrix @ p / unit)[matched]
    part = rooted[np.ix_(matched, matched)] / longest**2
    minimum = _linear_minimum(linear) if kappa == 0 else _minimum(part, linear, kappa)
    weights = np.zeros_like(p)
    weights[matched] = minimum.weights
    return Matching(torch.from_numpy(weights), minimum.value * unit, _relative_gap(minimum, linear, kappa))


def moving_sites(gram: torch.Tensor, least: float) -> torch.Tensor:
    """Return a mask ``[U]`` of the updates at least ``least`` times as long as the longest; all if that is zero.

    >>> moving_sites(torch.tensor([[4.0, 0.0], [0.0, 1e-8]]), least=1e-3).tolist()
    [True, False]
    """
    lengths = gram.diagonal().clamp_min(0).sqrt()
    return lengths >= least * lengths.max()


def matching_objective(
    gram: torch.Tensor,
    reference: torch.Tensor,
    kappa: float,
    weights: torch.Tensor | Sequence[float],
    damping: float = 0.0,
) -> float:
    """Return F of Eq. 15 at ``weights [U]``, from ``gram [U, U]`` and ``reference [U]``."""
    matrix, p = _checked(gram, reference)
    return _objective(matrix, _damped(matrix, damping), p, kappa, check_weights(weights, len(p)).numpy())


def invariant_coefficients(
    gram: torch.Tensor | np.ndarray,
    reference: torch.Tensor | Sequence[float],
    kappa: float,
    weights: torch.Tensor | Sequence[float],
    rescale: bool = False,
    damping: float = 0.0,
) -> torch.Tensor:
    """Return the coefficients ``[U]`` of the updates in ``d`` of Eq. 16: ``p + kappa |g_FL| / |Gamma g| gamma``.

    If ``Gamma g`` or ``g_FL`` is zero (opposite updates cancel), they are p, so that d is ``g_FL``. ``rescale`` divides
    by ``1 + kappa**2`` as the authors' code does.
    """
    matrix, p = _checked(gram, reference)
    gamma = check_weights(weights, len(p)).numpy()
    rooted = _damped(matrix, damping)
    matched, reference_length = _length(rooted, gamma), _length(rooted, p)
    coefficients = p
    if matched > ZERO_LENGTH * np.sqrt(rooted.diagonal().max()):
        coefficients = p + kappa * reference_length / matched * gamma
    return torch.from_numpy(coefficients / (1 + kappa**2) if rescale else coefficients.copy())


def invariant_direction(
    updates: torch.Tensor, reference: torch.Tensor | Sequence[float], kappa: float, rescale: bool = False
) -> torch.Tensor:
    """Return ``d [P]`` of Eq. 16 from updates ``[U, P]``, in their dtype.

    ``reference``: p ``[U]`` on the simplex. ``kappa = 0`` gives ``g_FL`` (FedAvg); one site or equal updates give
    ``(1 + kappa) g``.

    >>> invariant_direction(torch.tensor([[1.0, 0.0], [1.0, 0.0]]), [0.5, 0.5], kappa=0.5).tolist()
    [1.5, 0.0]
    """
    gram = gram_matrix(updates)
    gamma = match(gram, reference, kappa).weights
    return combine(invariant_coefficients(gram, reference, kappa, gamma, rescale), list(updates))


def _minimum(matrix: np.ndarray, linear: np.ndarray, kappa: float) -> Minimum:
    found = minimise(matrix, linear, kappa)
    if found is not None and _relative_gap(found, linear, kappa) <= ACCEPTED_GAP:
        return found
    problem = ConeProgram(matrix, linear, kappa)
    gamma, dual = problem.solve()
    solved = Minimum(gamma, problem.value(gamma), problem.bound(gamma, dual))
    return solved if found is None else min(solved, found, key=lambda each: _relative_gap(each, linear, kappa))


def _linear_minimum(linear: np.ndarray) -> Minimum:
    ties = linear <= linear.min() + 1e-12
    return Minimum(ties / ties.sum(), float(linear[ties].mean()), float(linear.min()))


def _relative_gap(minimum: Minimum, linear: np.ndarray, kappa: float) -> float:
    # Where F vanishes, the gap is relative to the size of the terms that cancel.
    terms, size = float(np.abs(linear).max() + kappa), abs(minimum.value)
    return max(0.0, minimum.value - minimum.bound) / (size if size > ZERO_LENGTH * terms else terms)


def _checked(gram: torch.Tensor | np.ndarray, reference: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean of a finite matrix and its transpose, and p, which is on the simplex, or raise ``ValueError``."""
    matrix = torch.as_tensor(gram, dtype=torch.float64, device="cpu").detach().numpy()
    if not np.isfinite(matrix).all():
        raise ValueError("The Gram matrix has an entry that is not finite.")
    return (matrix + matrix.T) / 2, check_weights(reference, len(matrix)).numpy()


def _damped(matrix: np.ndarray, damping: float) -> np.ndarray:
    """Return the matrix of the squares under the roots, ``G + delta s**2 1 1'``; G itself for a damping of zero."""
    if damping == 0:
        return matrix
    return matrix + damping * np.sqrt(matrix.diagonal().clip(min=0.0)).mean() ** 2


def _length(matrix: np.ndarray, weights: np.ndarray) -> float:
    """Return ``|sum_u weights[u] g_u|``; a square that is negative through rounding counts as zero."""
    return float(np.sqrt(max(0.0, weights @ matrix @ weights)))


def _objective(matrix: np.ndarray, rooted: np.ndarray, p: np.ndarray, kappa: float, gamma: np.ndarray) -> float:
    return float(gamma @ matrix @ p) + kappa * _length(rooted, p) * _length(rooted, gamma)


class ConeProgram:
    """Eq. 15 as a second-order cone program, in units of ``|g_FL|`` and the longest update.

    Args:
        matrix: G, ``[U, U]``.
        linear: b, ``[U]``.
        kappa: radius, at least zero, in ``F(gamma) = b' gamma + kappa |A gamma|``.
    """

    def __init__(self, matrix: np.ndarray, linear: np.ndarray, kappa: float) -> None:
        eigenvalues, vectors = np.linalg.eigh(matrix)
        # Not by Cholesky: equal updates make G singular, and rounding can make it slightly indefinite. Eigenvalues of
        # the size of rounding are dropped, because the solver fails on a cone with many such rows.
        kept = eigenvalues > len(matrix) * np.finfo(float).eps * eigenvalues.max()
        self.factor = np.sqrt(eigenvalues[kept])[:, None] * vectors.T[kept]
        self.linear = linear
        self.kappa = kappa

    def value(self, gamma: np.ndarray) -> float:
        """Return F at ``gamma [U]``."""
        return float(self.linear @ gamma + self.kappa * np.linalg.norm(self.factor @ gamma))

    def solve(self) -> tuple[np.ndarray, np.ndarray]:
        """Return gamma ``[U]`` on the simplex and the cone's dual vector ``[K]``; ``ArithmeticError`` if it fails."""
        import cvxpy as cp  # the import takes a second or more, and most servers never need this solver

        gamma, length = cp.Variable(len(self.linear)), cp.Variable()
        cone = cp.SOC(length, self.factor @ gamma)
        objective = cp.Minimize(self.linear @ gamma + self.kappa * length)
        problem = cp.Problem(objective, [gamma >= 0, cp.sum(gamma) == 1, cone])
        for tolerance in SOLVER_TOLERANCES:
            if _solved(problem, tolerance):
                return self._on_simplex(np.asarray(gamma.value)), np.asarray(
                    cone.dual_value[1], dtype=np.float64
                ).reshape(-1)
        raise ArithmeticError(f"The matching problem of {len(self.linear)} sites ended as {problem.status!r}.")

    def _on_simplex(self, solution: np.ndarray) -> np.ndarray:
        clipped = np.clip(solution, 0.0, None)
        swept = np.where(clipped > ZERO_WEIGHT * clipped.max(), clipped, 0.0)
        return min((swept / swept.sum(), clipped / clipped.sum()), key=self.value)

    def bound(self, gamma: np.ndarray, dual: np.ndarray) -> float:
        """Return the best lower bound of min F among several candidates for the dual point ``y``."""
        candidates = [np.zeros_like(dual), _unit(self.factor @ gamma)]
        for sign in (1.0, -1.0):  # solvers disagree on the sign of a cone's dual variable
            candidates += [sign * _unit(dual), sign * _within_ball(dual / max(self.kappa, np.finfo(float).tiny))]
        return max(float((self.linear + self.kappa * (self.factor.T @ y)).min()) for y in candidates)


def _solved(problem: "cp.Problem", tolerance: float) -> bool:
    """Run Clarabel and return whether it ended with a solution.

    If the tolerance is out of reach, Clarabel stops early, warns or fails; the duality gap then tells how good the
    solution is.
    """
    import cvxpy as cp

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            problem.solve(solver=cp.CLARABEL, tol_gap_abs=tolerance, tol_gap_rel=tolerance, tol_feas=tolerance)
        except cp.SolverError:
            return False
    return problem.status in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE)


def _unit(vector: np.ndarray) -> np.ndarray:
    length = np.linalg.norm(vector)
    return vector / length if length > 0 else vector


def _within_ball(vector: np.ndarray) -> np.ndarray:
    return vector / max(1.0, float(np.linalg.norm(vector)))
