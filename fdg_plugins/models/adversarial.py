# SPDX-License-Identifier: Apache-2.0
"""Generator and discriminator of feature vectors, given a class, for FedADG."""

import torch
from torch import nn

from fdg_plugins.models.registry import ExtractorClassifier

CODE = 0.7  # the value that marks the class, as in FedADG's code


def class_code(labels: torch.Tensor, num_classes: int) -> torch.Tensor:
    """Return ``0.7`` in the column of each label and zero elsewhere, float32 ``[B, Y]``.

    >>> class_code(torch.tensor([1]), 3).tolist()
    [[0.0, 0.699999988079071, 0.0]]
    """
    return CODE * (labels[:, None] == torch.arange(num_classes, device=labels.device)).float()


class FeatureGenerator(nn.Module):
    """Noise ``[B, D]``, uniform on [0, 1), and a code ``[B, Y]`` -> features ``[B, D]``, at least 0.

    Two linear layers with ``2 D`` units between them: at D = 2048, the sizes of FedADG's code.

    Args:
        size: D.
        num_classes: Y.
    """

    def __init__(self, size: int, num_classes: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(size + num_classes, 2 * size), nn.LeakyReLU(), nn.Linear(2 * size, size), nn.ReLU()
        )
        self.size = size

    def forward(self, noise: torch.Tensor, code: torch.Tensor) -> torch.Tensor:
        """Return features ``[B, D]``."""
        features: torch.Tensor = self.layers(torch.cat([noise, code], dim=1))
        return features


class FeatureDiscriminator(nn.Module):
    """Features ``[B, D]`` and a code ``[B, Y]`` -> a number in (0, 1) for each: 1 for generated features, 0 for real.

    A projection without bias to ``D / 2``, to which the code is appended, and two linear layers.

    Args:
        size: D.
        num_classes: Y.
    """

    def __init__(self, size: int, num_classes: int) -> None:
        super().__init__()
        hidden = max(size // 2, 1)
        self.projection = nn.Linear(size, hidden, bias=False)
        self.layers = nn.Sequential(nn.Linear(hidden + num_classes, hidden), nn.LeakyReLU(), nn.Linear(hidden, 1))

    def forward(self, features: torch.Tensor, code: torch.Tensor) -> torch.Tensor:
        """Return the numbers ``[B]``."""
        scores: torch.Tensor = self.layers(torch.cat([self.projection(features), code], dim=1))
        return scores.sigmoid()[:, 0]


class GeneratingClassifier(ExtractorClassifier):
    """A network with unchanged parameter names, and a generator of its features that its own passes do not use."""

    def __init__(self, network: ExtractorClassifier, generator: FeatureGenerator) -> None:
        super().__init__(network.extractor, network.classifier)
        self.generator = generator
