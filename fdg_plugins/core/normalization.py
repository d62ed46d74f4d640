# SPDX-License-Identifier: Apache-2.0
"""How far local steps go: the effective number of steps of SGD with momentum.

Reference: Wang, Liu, Liang, Joshi, Poor, "Tackling the Objective Inconsistency Problem in Heterogeneous Federated
Optimization" (FedNova), NeurIPS 2020.
"""


def effective_steps(steps: int, momentum: float) -> float:
    """Return ``||a||_1`` of ``steps`` steps of heavy-ball SGD (no dampening) whose buffer starts at zero.

    It is the displacement under a constant unit gradient, over the learning rate: ``steps`` itself without momentum
    ``m``, else ``(tau - m (1 - m^tau) / (1 - m)) / (1 - m)``.
    """
    if momentum == 0:
        return float(steps)
    length = (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)
    return max(length, float(steps))  # which it is never below, but for rounding
