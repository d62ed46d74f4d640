# SPDX-License-Identifier: Apache-2.0
r"""ERM: the mean cross entropy over the source domains. The reference that every other algorithm is measured by.

References: Vapnik, "Statistical Learning Theory", 1998; as DomainBed has it: Gulrajani, Lopez-Paz, "In Search of Lost
Domain Generalization", ICLR 2021.

Equation: minimise ``mean_e L_e``. With one batch of the same size per domain, domains count the same however many
images they have: the balance is in the batches.

Differences: DomainBed takes the mean over all images of the step, which is the same number where all batches are of
one size. Here a domain with fewer images than a batch counts as much as any other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from fdg_plugins.centralised.algorithm import Algorithm, Batch, Loss, State, domain_logits, domain_risks
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.tasks import DEFAULT_TASK, Task


@dataclass(frozen=True)
class CentralisedERM(Algorithm):
    """Empirical risk minimisation on the pooled source domains. It has no settings."""

    name: ClassVar[str] = "erm"
    title: ClassVar[str] = "ERM"

    def loss(
        self,
        model: ExtractorClassifier,
        batches: Sequence[Batch],
        step: int,
        state: State,
        task: Task = DEFAULT_TASK,
    ) -> Loss:
        """Return the mean of the domains' risks."""
        risks = domain_risks(domain_logits(model, batches), batches, task)
        return Loss(risks.mean(), risks.detach(), state)
