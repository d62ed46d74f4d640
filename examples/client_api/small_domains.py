# SPDX-License-Identifier: Apache-2.0
"""What a user has already: a network, and data that each site loads by itself. Here: stripes drawn in three styles."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CLASSES = 4  # stripes of 1, 2, 3 or 4 periods
PIXELS = 16
SEED = 0
STYLES = {"site-1": (1.0, 0.0), "site-2": (0.7, 0.8), "site-3": (0.5, -1.0)}  # contrast, brightness
SAMPLES = {"site-1": 96, "site-2": 128, "site-3": 192}


class Net(nn.Module):
    """Images ``[B, 3, 16, 16]`` -> logits ``[B, 4]``."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(SEED)  # FLARE's server draws the initial model by calling the class
        self.features = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()
        )
        self.fc = nn.Linear(16 * 8 * 8, CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        return self.fc(self.features(images))


Batches = DataLoader[tuple[torch.Tensor, ...]]  # images [B, 3, 16, 16] and labels [B]


def load(site: str) -> tuple[Batches, Batches, Batches]:
    """Return a site's training batches, the same in order, and its validation batches."""
    seed = list(STYLES).index(site)
    train = _draw(site, SAMPLES[site], torch.Generator().manual_seed(seed))
    validation = _draw(site, 64, torch.Generator().manual_seed(100 + seed))
    shuffled = DataLoader(train, batch_size=32, shuffle=True, generator=torch.Generator().manual_seed(seed))
    return shuffled, DataLoader(train, batch_size=64), DataLoader(validation, batch_size=64)


def _draw(site: str, count: int, generator: torch.Generator) -> TensorDataset:
    contrast, brightness = STYLES[site]
    labels = torch.arange(count) % CLASSES
    phases = 1.5 * torch.rand(count, 1, 1, 1, generator=generator)
    columns = torch.linspace(0, 6.3, PIXELS).view(1, 1, 1, -1)
    stripes = torch.sin((labels.view(-1, 1, 1, 1) + 1) * columns + phases)
    noise = 0.8 * torch.randn(count, 3, PIXELS, PIXELS, generator=generator)
    return TensorDataset(contrast * stripes + brightness + noise, labels)
