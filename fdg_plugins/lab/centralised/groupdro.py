# SPDX-License-Identifier: Apache-2.0
r"""GroupDRO: domains whose loss stays high gain weight, which optimises the worst domain.

Reference: Sagawa, Koh, Hashimoto, Liang, "Distributionally Robust Neural Networks for Group Shifts: On the Importance
of Regularization for Worst-Case Generalization", ICLR 2020, Algorithm 1; as DomainBed has it.

Equations: ``q_e <- q_e exp(eta L_e)``, rescaled to sum one -> :func:`reweigh`; then minimise ``sum_e q_e L_e``. q is
uniform before the first step and persists for the run. In each step q is updated first, with the losses of that step.

Shapes: logits ``[B, Y]`` of each of m source domains; risks L and weights q ``[m]``, q on the simplex.

State: ``log q [m]``, because a weight that was rounded to zero could never grow again.

Degenerate cases: a step size of zero keeps q uniform and is ERM. Equal losses do not change q. A single domain has
weight one.

Differences: the paper's strong weight decay is not a default, neither in DomainBed nor here. DomainBed passes the
domains through the network one after another; here they pass together (see ``algorithm``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch.nn.functional import log_softmax

from fdg_plugins.errors import check_number
from fdg_plugins.lab.centralised.algorithm import Algorithm, Batch, State
from fdg_plugins.models import ExtractorClassifier

LOG_WEIGHTS = "log_weights"


def reweigh(log_weights: torch.Tensor, risks: torch.Tensor, step_size: float) -> torch.Tensor:
    """Return ``log q [m]`` after one update of ``log_weights [m]`` with the ``risks [m]`` and eta = ``step_size``.

    The result is normalised: its exponentials sum to one. Its dtype is that of ``log_weights``.

    >>> reweigh(torch.zeros(2).log_softmax(0), torch.tensor([0.0, 1.0]), step_size=1.0).exp()
    tensor([0.2689, 0.7311])
    """
    return log_softmax(log_weights + step_size * risks.to(log_weights.dtype), dim=0)


@dataclass(frozen=True)
class CentralisedGroupDRO(Algorithm):
    """The weighted risk ``sum_e q_e L_e``, in which domains with a high risk gain weight from step to step.

    Args:
        step_size: eta >= 0, how fast the weights follow the risks; zero is ERM, bit for bit. DomainBed: 0.01.
    """

    name: ClassVar[str] = "groupdro"
    title: ClassVar[str] = "GroupDRO"
    neutral: ClassVar[Mapping[str, Any] | None] = {"step_size": 0.0}

    step_size: float = 0.01

    def __post_init__(self) -> None:
        check_number("step_size", self.step_size)

    def begin(self, model: ExtractorClassifier, num_domains: int) -> State:
        """Return uniform weights as ``log q [m]``, float64, on the model's device."""
        zeros = torch.zeros(num_domains, dtype=torch.float64, device=model.last_layer.weight.device)
        return {LOG_WEIGHTS: log_softmax(zeros, dim=0)}

    def objective(
        self, risks: torch.Tensor, logits: Sequence[torch.Tensor], batches: Sequence[Batch], step: int, state: State
    ) -> tuple[torch.Tensor, State]:
        """Return ``sum_e q_e L_e`` with the weights q ``[m]`` after this step's update, and ``log q`` as the new state.

        No gradient flows through q. With a step size of zero, the loss is the mean risk and the state does not change.
        """
        if not self.step_size:
            return risks.mean(), state
        log_weights = reweigh(state[LOG_WEIGHTS], risks.detach(), self.step_size)
        weights = log_weights.exp().to(risks.dtype)
        return (weights * risks).sum(), {LOG_WEIGHTS: log_weights}
