# SPDX-License-Identifier: Apache-2.0
"""FedNova's effective number of local steps: how far SGD with momentum moves in a given number of steps.

Reference: Wang, Liu, Liang, Joshi, Poor, "Tackling the Objective Inconsistency Problem in Heterogeneous Federated
Optimization" (FedNova), NeurIPS 2020.

Equation: ``||a||_1 = (tau - m (1 - m^tau) / (1 - m)) / (1 - m)`` for tau steps with momentum m
-> :func:`effective_steps`.

Degenerate cases: it equals tau without momentum and for a single step; it is never below tau.
"""


def effective_steps(steps: int, momentum: float) -> float:
    """Return ``||a||_1`` of ``steps`` steps of heavy-ball SGD (no dampening) whose buffer starts at zero.

    It is the displacement under a constant unit gradient, divided by the learning rate. ``momentum``: in [0, 1).

    >>> effective_steps(2, momentum=0.5)  # 1 in the first step, 1 + 0.5 in the second
    2.5
    """
    if momentum == 0:
        return float(steps)
    length = (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)
    return max(length, float(steps))  # smaller only through rounding
