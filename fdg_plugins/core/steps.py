# SPDX-License-Identifier: Apache-2.0
"""How many steps a site takes, and how far they go: one rule for the sites and the server that checks their reports.

Reference: Wang, Liu, Liang, Joshi, Poor, "Tackling the Objective Inconsistency Problem in Heterogeneous Federated
Optimization" (FedNova), NeurIPS 2020.

Equation: ``||a||_1 = (tau - m (1 - m^tau) / (1 - m)) / (1 - m)`` for tau steps of SGD with momentum m
-> :func:`effective_steps`.

Degenerate cases: it equals tau without momentum and for a single step; it is never below tau.
"""


def batches_per_epoch(count: int, batch_size: int) -> int:
    """Return the number of batches that ``count`` samples make; the last batch may be smaller.

    A single remaining sample joins the previous batch, because batch normalisation cannot train on one sample.

    >>> batches_per_epoch(100, 32), batches_per_epoch(97, 32)
    (4, 3)
    """
    whole, left_over = divmod(count, batch_size)
    return whole + (left_over > 1 or (left_over == 1 and whole == 0))


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
