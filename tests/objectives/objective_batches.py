# SPDX-License-Identifier: Apache-2.0
"""What the tests of local objectives share: names, types and random batches."""

from collections.abc import Callable

import torch

from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives import LocalObjective

CLASSES = 3
Batch = tuple[torch.Tensor, torch.Tensor]
Train = Callable[[ExtractorClassifier, LocalObjective, list[Batch]], dict[str, torch.Tensor]]


def make_batches(model: ExtractorClassifier, sizes: tuple[int, ...] = (4, 5, 4), seed: int = 0) -> list[Batch]:
    """Batches of random images; the first labels count up, so that every class is in the first batch."""
    generator = torch.Generator().manual_seed(seed)
    channels = next(model.extractor.parameters()).shape[1]
    return [(torch.randn(size, channels, 16, 16, generator=generator), torch.arange(size) % CLASSES) for size in sizes]
