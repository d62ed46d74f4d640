# SPDX-License-Identifier: Apache-2.0
"""Eq. 15 of FedOMG by an interior-point solver, for the updates whose optimum the active set cannot certify.

See :mod:`fdg_plugins.core.matching` for the problem and for the certificate that :meth:`ConeProgram.bound` proves.
"""

import warnings
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import cvxpy as cp

ZERO_WEIGHT = 1e-9
SOLVER_TOLERANCES = (1e-12, 1e-10, 1e-8, 1e-6)


class ConeProgram:
    """Eq. 15 as a cone program, in units of ``|g_FL|`` and the longest update: ``b' gamma + kappa |A gamma|``."""

    def __init__(self, matrix: np.ndarray, linear: np.ndarray, kappa: float) -> None:
        eigenvalues, vectors = np.linalg.eigh(matrix)
        # Never Cholesky: equal updates make G singular, and rounding can make it slightly indefinite. What is
        # rounding error is left out: a cone with many rows of that size is one the solver gives up on.
        kept = eigenvalues > len(matrix) * np.finfo(float).eps * eigenvalues.max()
        self.factor = np.sqrt(eigenvalues[kept])[:, None] * vectors.T[kept]
        self.linear = linear
        self.kappa = kappa

    def value(self, gamma: np.ndarray) -> float:
        """Return F at ``gamma [U]``."""
        return float(self.linear @ gamma + self.kappa * np.linalg.norm(self.factor @ gamma))

    def solve(self) -> tuple[np.ndarray, np.ndarray]:
        """Return gamma on the simplex and the cone's dual vector."""
        import cvxpy as cp  # a second or more, for a solver that most servers never call

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
        """Return the better of the solution and the same without the dust that an interior point leaves on sites."""
        clipped = np.clip(solution, 0.0, None)
        swept = np.where(clipped > ZERO_WEIGHT * clipped.max(), clipped, 0.0)
        return min((swept / swept.sum(), clipped / clipped.sum()), key=self.value)

    def bound(self, gamma: np.ndarray, dual: np.ndarray) -> float:
        """Return the best lower bound of min F that a candidate for ``y`` proves."""
        candidates = [np.zeros_like(dual), _unit(self.factor @ gamma)]
        for sign in (1.0, -1.0):  # solvers differ in the sign of a cone's dual
            candidates += [sign * _unit(dual), sign * _within_ball(dual / max(self.kappa, np.finfo(float).tiny))]
        return max(float((self.linear + self.kappa * (self.factor.T @ y)).min()) for y in candidates)


def _solved(problem: "cp.Problem", tolerance: float) -> bool:
    """Run Clarabel; asked for more digits than it can reach it stops, warns or fails, and the gap says how near."""
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
