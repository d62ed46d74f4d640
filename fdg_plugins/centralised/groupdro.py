# SPDX-License-Identifier: Apache-2.0
r"""GroupDRO: domains whose loss stays high gain weight, so that the worst one is served.

Reference: Sagawa, Koh, Hashimoto, Liang, "Distributionally Robust Neural Networks for Group Shifts: On the Importance
of Regularization for Worst-Case Generalization", ICLR 2020, Algorithm 1; as DomainBed has it.

Equations: ``q_e <- q_e exp(eta L_e)``, rescaled to sum one -> :func:`reweigh`; then minimise ``sum_e q_e L_e``. q is
uniform before the first step and lasts for the run. In each step q moves first, by the losses of the same step.

State: ``log q [m]``, because a q that was rounded to zero could never rise again.

Exact cases: step size zero keeps q uniform, and is ERM. Equal losses keep q as it is. One domain has weight one.

Differences: the paper's strong weight decay is no default of DomainBed's, nor here. DomainBed passes the domains
through the network one after the other, here they pass together (see ``algorithm``).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch.nn.functional import log_softmax

from fdg_plugins.centralised.algorithm import Algorithm, Batch, Loss, State, domain_logits, domain_risks
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives.objective import check_number
from fdg_plugins.tasks import DEFAULT_TASK, Task

LOG_WEIGHTS = "log_weights"


def reweigh(log_weights: torch.Tensor, risks: torch.Tensor, step_size: float) -> torch.Tensor:
    """Return ``log q [m]`` after a step along the ``risks [m]``, from ``log_weights [m]``, that before it."""
    return log_softmax(log_weights + step_size * risks.to(log_weights.dtype), dim=0)


@dataclass(frozen=True)
class CentralisedGroupDRO(Algorithm):
    """The risks weighted by how high they have been.

    Args:
        step_size: eta, at least 0, how fast the weights follow the risks; zero is ERM, bit for bit. DomainBed: 0.01.
    """

    name: ClassVar[str] = "groupdro"
    title: ClassVar[str] = "GroupDRO"

    step_size: float = 0.01

    def __post_init__(self) -> None:
        check_number("step_size", self.step_size)

    def begin(self, model: ExtractorClassifier, num_domains: int) -> State:
        """Return uniform weights."""
        zeros = torch.zeros(num_domains, dtype=torch.float64, device=model.last_layer.weight.device)
        return {LOG_WEIGHTS: log_softmax(zeros, dim=0)}

    def loss(
        self,
        model: ExtractorClassifier,
        batches: Sequence[Batch],
        step: int,
        state: State,
        task: Task = DEFAULT_TASK,
    ) -> Loss:
        """Return the weighted risk, by the weights after this step's move."""
        risks = domain_risks(domain_logits(model, batches), batches, task)
        if not self.step_size:
            return Loss(risks.mean(), risks.detach(), state)
        log_weights = reweigh(state[LOG_WEIGHTS], risks.detach(), self.step_size)
        weights = log_weights.exp().to(risks.dtype)
        return Loss((weights * risks).sum(), risks.detach(), {LOG_WEIGHTS: log_weights})
