# SPDX-License-Identifier: Apache-2.0
r"""ERM: the mean cross entropy over the source domains. The baseline for every other algorithm.

References: Vapnik, "Statistical Learning Theory", 1998; as DomainBed has it: Gulrajani, Lopez-Paz, "In Search of Lost
Domain Generalization", ICLR 2021.

Equation: minimise ``mean_e L_e`` -> :meth:`CentralisedERM.loss`. Each step has one batch of the same size per domain,
so every domain has the same weight, however many images it has.

Shapes: m domains, each with images ``[B, C, H, W]``, labels ``[B]`` and logits ``[B, Y]``; risks L ``[m]``.

Differences: DomainBed takes the mean over all images of the step, which is the same if all batches have one size. Here
a domain with fewer images than a batch has the same weight as any other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from fdg_plugins.lab.centralised.algorithm import Algorithm, Batch, Loss, State, domain_logits, domain_risks
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.tasks import DEFAULT_TASK, Task


@dataclass(frozen=True)
class CentralisedERM(Algorithm):
    """Empirical risk minimisation on the pooled source domains. It has no settings and keeps no state."""

    name: ClassVar[str] = "erm"
    title: ClassVar[str] = "ERM"
    neutral: ClassVar[Mapping[str, Any] | None] = {}

    def loss(
        self,
        model: ExtractorClassifier,
        batches: Sequence[Batch],
        step: int,
        state: State,
        task: Task = DEFAULT_TASK,
    ) -> Loss:
        """Return ``mean_e L_e``, in which every domain has weight ``1/m``; the state passes through unchanged."""
        risks = domain_risks(domain_logits(model, batches), batches, task)
        return Loss(risks.mean(), risks.detach(), state)
