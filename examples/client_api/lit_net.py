# SPDX-License-Identifier: Apache-2.0
"""The network of ``small_domains.py`` as a LightningModule, trained with FedIIR's penalty."""

import pytorch_lightning as pl
import torch
from small_domains import Net
from torch.nn.functional import cross_entropy

from fdg_plugins.client import GradientAlignment

STRENGTH = 0.01  # FedIIR's gamma


class LitNet(pl.LightningModule):
    """The network, which draws its head's gradients to the mean over the sites."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Net()
        self.alignment = GradientAlignment(self, head="model.fc")

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        return self.model(images)

    def training_step(self, batch: list[torch.Tensor], _index: int) -> torch.Tensor:
        """Return the loss of a batch."""
        images, labels = batch
        loss = cross_entropy(self(images), labels)
        return loss + STRENGTH / 2 * self.alignment.penalty(loss)

    def validation_step(self, batch: list[torch.Tensor], _index: int) -> None:
        """Log the metrics that FLARE sends with the update."""
        images, labels = batch
        self.log("accuracy", (self(images).argmax(dim=1) == labels).float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return SGD with momentum."""
        return torch.optim.SGD(self.parameters(), lr=0.01, momentum=0.9)
