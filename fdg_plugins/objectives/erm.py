# SPDX-License-Identifier: Apache-2.0
"""Empirical risk minimisation, which every other objective equals if its strength is zero; the objectives by name.

Shapes: images ``[B, C, H, W]``, labels ``[B]``, logits ``[B, Y]``; the loss is a scalar.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch

from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives.exchange import Tensors
from fdg_plugins.objectives.objective import LocalObjective, Objective, SiteRound
from fdg_plugins.plugins.classes import ClassesOf
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
    """The task's loss alone, as under FedAvg. It has no settings and exchanges nothing."""

    name = "erm"
    neutral: ClassVar[Mapping[str, Any] | None] = {}

    def local(self, received: Tensors, model: ExtractorClassifier, site: SiteRound = SiteRound()) -> LocalObjective:
        return LocalRisk(task=site.task)


OBJECTIVES: ClassesOf[Objective] = ClassesOf("objective", {ERMObjective.name: ERMObjective})


def make_objective(spec: str | Mapping[str, Any]) -> Objective:
    """Return the objective that ``spec`` describes: a name, or ``{"name": ..., <its settings>}``."""
    return OBJECTIVES.make(spec)


objective_settings = OBJECTIVES.settings_of
read_settings = OBJECTIVES.read
