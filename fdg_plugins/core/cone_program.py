# SPDX-License-Identifier: Apache-2.0
"""Eq. 15 of FedOMG by an interior-point solver, for problems whose optimum the active set cannot certify.

See :mod:`fdg_plugins.core.matching` for the problem, its paper, and the certificate computed by
:meth:`ConeProgram.bound`.

Shapes: Gram matrix ``[U, U]``, linear term and gamma ``[U]``, factor A ``[K, U]`` of rank K with ``A' A = G``, dual
vector ``[K]``; float64.
"""

import warnings
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import cvxpy as cp

ZERO_WEIGHT = 1e-9
SOLVER_TOLERANCES = (1e-12, 1e-10, 1e-8, 1e-6)


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
