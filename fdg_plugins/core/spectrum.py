# SPDX-License-Identifier: Apache-2.0
r"""Amplitude and phase of images: amplitudes carry much of a style, and can be mixed or replaced beside the phase.

References: Xu, Zhang, Zhang, Wang, Tian, "A Fourier-based Framework for Domain Generalization", CVPR 2021 (amplitude
mix); Jiang, Wang, Dou, "HarmoFL: Harmonizing Local and Global Drifts in Federated Learning on Heterogeneous Medical
Images", AAAI 2022 (amplitude normalization).

Equations (here), of each channel x on its own, with F its discrete Fourier transform over height and width:

- ``A = |F(x)|``, ``ph = angle F(x)``, ``x = Re F^-1(A e^(i ph))`` -> :func:`amplitude_and_phase`, :func:`images_of`
- ``A' = s A(x) + (1 - s) A(partner)`` -> :func:`mix_amplitudes`
- ``A' = Abar`` in the centred square of half-width ``b = floor(L min(H, W))`` -> :func:`replace_amplitude`,
  :func:`centred_band`
- mean of A over a batch -> :func:`mean_amplitude`

Shapes: images ``[B, C, H, W]``, real; spectra ``[B, C, H, F]`` with ``F = W // 2 + 1``, as ``torch.fft.rfft2`` lays
them out: the amplitudes of the other columns mirror these, so nothing is lost. F is divided by ``H W``: the amplitude
at frequency zero (DC) is the absolute mean of the channel, and all have the unit of the images.

Degenerate cases: where A is zero, the phase is taken as zero. ``s = 1``, a partner equal to x, and an ``Abar`` equal
to A in the band give x back up to rounding. Values are not clipped.

Computed in float32, wider if the images are, also under autocast. Nothing given is changed in place.
"""

import math

import torch


def amplitude_and_phase(images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return amplitude, at least 0, and phase, in radians, of ``images [..., H, W]``: each ``[..., H, F]``."""
    with torch.autocast(images.device.type, enabled=False):
        wide = images.to(torch.promote_types(images.dtype, torch.float32))
        spectrum = torch.fft.rfft2(wide, norm="forward")
    return spectrum.abs(), spectrum.angle()


def images_of(amplitude: torch.Tensor, phase: torch.Tensor, width: int) -> torch.Tensor:
    """Return the real images ``[..., H, width]`` that have these spectra ``[..., H, F]``."""
    with torch.autocast(amplitude.device.type, enabled=False):
        size = (amplitude.shape[-2], width)  # F alone does not say whether the width is even
        return torch.fft.irfft2(torch.polar(amplitude, phase), s=size, norm="forward")


def mean_amplitude(images: torch.Tensor) -> torch.Tensor:
    """Return the mean amplitude ``[C, H, F]`` of a batch ``[B, C, H, W]``."""
    amplitude, _ = amplitude_and_phase(images)
    return amplitude.mean(dim=0)


def centred_band(height: int, width: int, fraction: float) -> torch.Tensor:
    """Return where in a spectrum ``[H, F]`` the band lies, as truth values: frequencies up to ``b`` along both sides.

    ``b = floor(fraction * min(height, width))``. A ``fraction`` of 0 is the mean of a channel alone (DC), one of 0.5
    the whole spectrum of a square image.
    """
    half_width = math.floor(fraction * min(height, width))
    rows = torch.arange(height)
    rows = torch.minimum(rows, height - rows)  # the upper half are the negative frequencies
    columns = torch.arange(width // 2 + 1)
    return (rows[:, None] <= half_width) & (columns[None, :] <= half_width)


def replace_amplitude(images: torch.Tensor, amplitude: torch.Tensor, band: torch.Tensor) -> torch.Tensor:
    """Return ``images [B, C, H, W]`` with ``amplitude [C, H, F]`` in place of their own within ``band [H, F]``."""
    own, phase = amplitude_and_phase(images)
    return images_of(torch.where(band, amplitude.to(own.dtype), own), phase, images.shape[-1])


def mix_amplitudes(images: torch.Tensor, partners: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
    """Return ``images [B, C, H, W]`` with their amplitudes mixed with those of others of the batch.

    ``partners [B]``: the index of each image's partner; ``shares [B]``: s in [0, 1], what each keeps of its own.
    """
    own, phase = amplitude_and_phase(images)
    mixed = torch.lerp(own[partners], own, shares.to(own.dtype).view(-1, 1, 1, 1))
    return images_of(mixed, phase, images.shape[-1])
