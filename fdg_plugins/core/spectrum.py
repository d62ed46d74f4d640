# SPDX-License-Identifier: Apache-2.0
r"""Amplitude and phase of images: amplitudes carry much of an image's style, and can be mixed or replaced.

References: Xu, Zhang, Zhang, Wang, Tian, "A Fourier-based Framework for Domain Generalization", CVPR 2021 (amplitude
mix); Jiang, Wang, Dou, "HarmoFL: Harmonizing Local and Global Drifts in Federated Learning on Heterogeneous Medical
Images", AAAI 2022 (amplitude normalization).

Equations, for each channel x separately, with F its discrete Fourier transform over height and width:

- ``A = |F(x)|``, ``ph = angle F(x)``, ``x = Re F^-1(A e^(i ph))`` -> :func:`amplitude_and_phase`, :func:`images_of`
- ``A' = s A(x) + (1 - s) A(partner)`` -> :func:`mix_amplitudes`
- ``A' = Abar`` in the centred square of half-width ``b = floor(L min(H, W))`` -> :func:`replace_amplitude`,
  :func:`centred_band`
- mean of A over a batch -> :func:`mean_amplitude`

Shapes: real images ``[B, C, H, W]``; spectra ``[B, C, H, F]`` with ``F = W // 2 + 1``, in the layout of
``torch.fft.rfft2``. The remaining columns are determined by symmetry. Spectra are divided by ``H W``, so that the
amplitude at frequency zero (DC) is the absolute mean of the channel, and amplitudes have the unit of the images.

Degenerate cases: where A is zero, the phase is zero. ``s = 1``, a partner equal to x, and an ``Abar`` equal to A in the
band reproduce x up to rounding. Values are not clipped.

Computed in at least float32, also under autocast. Arguments are not changed in place.
"""

import math

import torch


def amplitude_and_phase(images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the amplitude (>= 0) and the phase (radians) of ``images [..., H, W]``, each ``[..., H, F]``."""
    with torch.autocast(images.device.type, enabled=False):
        wide = images.to(torch.promote_types(images.dtype, torch.float32))
        spectrum = torch.fft.rfft2(wide, norm="forward")
    return spectrum.abs(), spectrum.angle()


def images_of(amplitude: torch.Tensor, phase: torch.Tensor, width: int) -> torch.Tensor:
    """Return the real images ``[..., H, width]`` with the given ``amplitude`` and ``phase``, each ``[..., H, F]``."""
    with torch.autocast(amplitude.device.type, enabled=False):
        size = (amplitude.shape[-2], width)  # F alone does not determine whether the width is even
        return torch.fft.irfft2(torch.polar(amplitude, phase), s=size, norm="forward")


def mean_amplitude(images: torch.Tensor) -> torch.Tensor:
    """Return the mean amplitude ``[C, H, F]`` of a batch ``[B, C, H, W]``."""
    return amplitude_and_phase(images)[0].mean(dim=0)


def centred_band(height: int, width: int, fraction: float) -> torch.Tensor:
    """Return a mask ``[H, F]`` of the band of low frequencies: those up to ``b`` along both axes.

    ``b = floor(fraction * min(height, width))``. A ``fraction`` of 0 selects only the mean of a channel (DC), 0.5 the
    whole spectrum of a square image.

    >>> centred_band(4, 4, 0.25).int().tolist()
    [[1, 1, 0], [1, 1, 0], [0, 0, 0], [1, 1, 0]]
    """
    half_width = math.floor(fraction * min(height, width))
    rows = torch.arange(height)
    rows = torch.minimum(rows, height - rows)  # the upper half holds the negative frequencies
    columns = torch.arange(width // 2 + 1)
    return (rows[:, None] <= half_width) & (columns[None, :] <= half_width)


def replace_amplitude(images: torch.Tensor, amplitude: torch.Tensor, band: torch.Tensor) -> torch.Tensor:
    """Return ``images [B, C, H, W]`` with their amplitude replaced by ``amplitude [C, H, F]`` in ``band [H, F]``."""
    own, phase = amplitude_and_phase(images)
    return images_of(torch.where(band, amplitude.to(own.dtype), own), phase, images.shape[-1])


def mix_amplitudes(images: torch.Tensor, partners: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
    """Return ``images [B, C, H, W]``, each with its amplitude mixed with that of another image of the batch.

    ``partners [B]``: the index of each image's partner. ``shares [B]``: s in [0, 1], the share of its own amplitude.
    """
    own, phase = amplitude_and_phase(images)
    mixed = torch.lerp(own[partners], own, shares.to(own.dtype).view(-1, 1, 1, 1))
    return images_of(mixed, phase, images.shape[-1])
