# SPDX-License-Identifier: Apache-2.0
"""Empirical risk minimisation: the mean cross entropy of the batch, as under FedAvg. Nothing is reported.

Every other objective equals this one, to the bit, if its strength is zero or before the server has sent anything.

Shapes: images ``[B, C, H, W]``, labels ``[B]``, logits ``[B, Y]``; the loss is a scalar.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch.nn.functional import cross_entropy

from fdg_plugins.errors import SettingsError
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives.exchange import Reader, Tensors
from fdg_plugins.objectives.objective import LocalObjective, Objective, SiteRound


class LocalCrossEntropy(LocalObjective):
    """Mean cross entropy of the batch."""

    def loss(self, model: ExtractorClassifier, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the mean cross entropy of images ``[B, C, H, W]`` with labels ``[B]``."""
        return cross_entropy(model(images).float(), labels)


@dataclass(frozen=True)
class CrossEntropy(Objective):
    """Cross entropy alone. It has no settings, and exchanges nothing."""

    name: ClassVar[str] = "erm"
    neutral: ClassVar[Mapping[str, Any] | None] = {}

    def local(self, received: Tensors, model: ExtractorClassifier, site: SiteRound = SiteRound()) -> LocalObjective:
        """Return the cross entropy; refuse anything received, for it would go unused."""
        Reader("sent for objective 'erm'", SettingsError).fields(received, ())
        return LocalCrossEntropy()
