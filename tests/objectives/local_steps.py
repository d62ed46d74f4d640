# SPDX-License-Identifier: Apache-2.0
"""Local training as a site does it, by an objective's own steps, and the same for cross entropy alone."""

from collections.abc import Mapping

import torch

from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives import ERMObjective, LocalObjective
from fdg_plugins.training.loop import DevicePolicy, LocalTraining, train_locally
from tests.objectives.objective_batches import Batch


def train_steps(
    model: ExtractorClassifier,
    objective: LocalObjective,
    epochs: list[list[Batch]],
    *,
    lr: float = 0.05,
    momentum: float = 0.9,
    weight_decay: float = 5e-4,
) -> LocalTraining:
    """Train ``model`` in place with SGD, one pass over each of ``epochs``."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum, weight_decay=weight_decay)
    policy = DevicePolicy(torch.device("cpu"))
    return train_locally(model, objective, epochs, optimizer, policy, lambda: False, lambda epoch, loss: None)


def plain(model: ExtractorClassifier) -> LocalObjective:
    """Return FedAvg's local objective."""
    return ERMObjective().local({}, model)


def copy_of(model: ExtractorClassifier) -> dict[str, torch.Tensor]:
    """Return a copy of the state dict."""
    return {name: value.clone() for name, value in model.state_dict().items()}


def same(first: Mapping[str, torch.Tensor], second: Mapping[str, torch.Tensor]) -> bool:
    """Return whether two mappings have the same names and bits."""
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)
