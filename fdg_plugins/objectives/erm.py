# SPDX-License-Identifier: Apache-2.0
"""Empirical risk minimisation: the mean loss of the batch by the task, as under FedAvg. Nothing is reported.

Every other objective equals this one, to the bit, if its strength is zero or before the server has sent anything.

Shapes: images ``[B, C, H, W]``, labels ``[B]``, logits ``[B, Y]``; the loss is a scalar.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch

from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives.exchange import Tensors
from fdg_plugins.objectives.objective import LocalObjective, Objective, SiteRound
from fdg_plugins.tasks import DEFAULT_TASK, Task


@dataclass(frozen=True)
class LocalRisk(LocalObjective):
    """Mean loss of the batch as defined by ``task``, such as the cross entropy of labels."""

    task: Task = field(default=DEFAULT_TASK, kw_only=True)

    def loss(self, model: ExtractorClassifier, images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the mean loss of images ``[B, C, H, W]`` and the task's targets, from logits in float32."""
        return self.task.loss(model(images).float(), targets)


@dataclass(frozen=True)
class ERMObjective(Objective):
    """The task's loss alone. It has no settings and exchanges nothing."""

    name: ClassVar[str] = "erm"
    neutral: ClassVar[Mapping[str, Any] | None] = {}

    def local(self, received: Tensors, model: ExtractorClassifier, site: SiteRound = SiteRound()) -> LocalObjective:
        """Return the mean loss; raise ``SettingsError`` if anything was received, because it would not be used."""
        self.refuse_payload(received)
        return LocalRisk(task=site.task)
