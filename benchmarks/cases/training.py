# SPDX-License-Identifier: Apache-2.0
"""One step of local training on random images, as the cases time it."""

from collections.abc import Callable

import torch

from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives import LocalObjective

LEARNING_RATE = 1e-3
MOMENTUM = 0.9


def random_batch(batch_size: int, pixels: int, num_classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return images ``[B, 3, pixels, pixels]`` and labels ``[B]``."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(batch_size, 3, pixels, pixels, generator=generator)
    return images, torch.randint(num_classes, (batch_size,), generator=generator)


def training_step(
    model: ExtractorClassifier, objective: LocalObjective, images: torch.Tensor, labels: torch.Tensor
) -> Callable[[], object]:
    """Return a function that trains ``model`` by one step of SGD on the batch each time it is called."""
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    model.train()
    objective.prepare(model)

    def compute_gradients() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = objective.loss(model, images, labels)
        loss.backward()
        return loss.detach()

    return lambda: objective.step(model, compute_gradients, optimizer)
