# SPDX-License-Identifier: Apache-2.0
"""Empirical risk minimisation, which every other objective equals if its strength is zero; the objectives by name.

Shapes: images ``[B, C, H, W]``, labels ``[B]``, logits ``[B, Y]``; the loss is a scalar.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import torch

from fdg_plugins.errors import check_settings_known, read_like
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

    name: ClassVar[str] = "erm"
    neutral: ClassVar[Mapping[str, Any] | None] = {}

    def local(self, received: Tensors, model: ExtractorClassifier, site: SiteRound = SiteRound()) -> LocalObjective:
        return LocalRisk(task=site.task)


OBJECTIVES: ClassesOf[Objective] = ClassesOf("objective", {ERMObjective.name: ERMObjective})


def make_objective(spec: str | Mapping[str, Any]) -> Objective:
    """Return the objective that ``spec`` describes: a name, or ``{"name": ..., <its settings>}``."""
    return OBJECTIVES.make(spec)


def objective_settings(name: str) -> list[str]:
    """Return the names of the settings of the objective ``name``, in the order of its fields."""
    return [one.name for one in fields(OBJECTIVES.known(name))]


def read_settings(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``settings`` of the objective ``name``; text, as from the environment, becomes each setting's type.

    Raises ``SettingsError`` for an unknown name or setting.
    """
    defaults = {one.name: one.default for one in fields(OBJECTIVES.known(name))}
    check_settings_known(f"objective {name!r}", settings, list(defaults))
    return {setting: read_like(value, defaults[setting]) for setting, value in settings.items()}
