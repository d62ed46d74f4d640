# SPDX-License-Identifier: Apache-2.0
"""Amplitude normalization: a network that replaces the amplitude spectrum of every image with a common one.

The mathematics is in ``fdg_plugins.core.spectrum``; HarmoFL (``fdg_plugins.methods.harmofl``) determines the
spectrum.
"""

import torch
from torch import nn

from fdg_plugins.core.spectrum import centred_band, mean_amplitude, replace_amplitude
from fdg_plugins.errors import SettingsError
from fdg_plugins.models.registry import ExtractorClassifier


class AmplitudeNormalization(nn.Module):
    """Images ``[B, C, H, W]`` -> the same images, with the amplitudes in the band replaced by those in a buffer.

    The buffer ``amplitude``, float32 ``[C, H, W // 2 + 1]``, is zero until a spectrum is known; until then images pass
    unchanged. In training mode, while ``collects`` is set, it is the running mean ``(1 - v) amplitude + v batch mean``,
    starting with the first batch; each batch is normalised with the mean that it has just updated. Otherwise, and once
    ``frozen``, the buffer never changes. Outside the band it stays zero, so unused values do not leave a site.

    Args:
        image_shape: ``(C, H, W)``; images of another shape raise a SettingsError.
        band: L in [0, 0.5], half-width of the band as a fraction of the shorter side: 0 is the mean of each channel.
        momentum: v in [0, 1], the batch's share of the running mean; 0 keeps the first batch's.
    """

    amplitude: torch.Tensor
    band: torch.Tensor
    frozen: torch.Tensor

    def __init__(self, image_shape: tuple[int, ...], band: float, momentum: float) -> None:
        super().__init__()
        channels, height, width = image_shape
        self.image_shape = (channels, height, width)
        self.momentum = momentum
        self.collects = False
        self.register_buffer("amplitude", torch.zeros(channels, height, width // 2 + 1))
        self.register_buffer("band", centred_band(height, width, band), persistent=False)
        self.register_buffer("frozen", torch.tensor(False), persistent=False)

    @property
    def known(self) -> torch.Tensor:
        """Whether a spectrum is known, a scalar on the device: reading it there would wait for an accelerator."""
        return self.amplitude.any()

    def freeze_if_known(self) -> None:
        """Freeze a spectrum that is known now; one that is not can be collected."""
        self.frozen.copy_(self.known)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the images ``[B, C, H, W]`` normalised, in at least float32."""
        if images.shape[1:] != self.image_shape:
            raise SettingsError(
                f"images of shape {list(images.shape[1:])} came to a network whose amplitude spectrum is of "
                f"{list(self.image_shape)}, expected those.",
                public=True,
            )
        if self.collects and self.training:
            self._collect(images)
        return torch.where(self.known, replace_amplitude(images, self.amplitude, self.band), images)

    @torch.no_grad()
    def _collect(self, images: torch.Tensor) -> None:
        if self.frozen.device.type == "cpu" and bool(self.frozen):  # costs no wait there, and saves a transform
            return
        mean = torch.where(self.band, mean_amplitude(images), 0.0)
        running = (1 - self.momentum) * self.amplitude + self.momentum * mean
        moved = torch.where(self.known, running, mean)
        self.amplitude.copy_(torch.where(self.frozen, self.amplitude, moved))


class AmplitudeNormalizedClassifier(ExtractorClassifier):
    """A network with unchanged parameter names and an :class:`AmplitudeNormalization` in front of the extractor."""

    def __init__(self, network: ExtractorClassifier, normalization: AmplitudeNormalization) -> None:
        super().__init__(network.extractor, network.classifier)
        self.normalization = normalization

    def features(self, images: torch.Tensor) -> torch.Tensor:
        """Return the features ``[B, D]`` of the normalised ``images: [B, C, H, W]``."""
        return super().features(self.normalization(images))
