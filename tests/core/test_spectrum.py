# SPDX-License-Identifier: Apache-2.0
"""Amplitudes are mixed and replaced as the definitions say, which are written out here with the full transform."""

import math

import torch
from torch.fft import fft2, fftshift, ifft2, ifftshift

from fdg_plugins.core.spectrum import centred_band, mean_amplitude, mix_amplitudes, replace_amplitude

SIZES = [(16, 16), (17, 17), (16, 17), (17, 16), (28, 28), (8, 20)]
FRACTIONS = [0.0, 0.05, 0.1, 0.25, 0.49, 0.5]


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def centred(images: torch.Tensor) -> torch.Tensor:
    return images - images.mean(dim=(-2, -1), keepdim=True)


def mixed_by_definition(images: torch.Tensor, partners: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
    own, other = fft2(images), fft2(images[partners])
    shares = shares.view(-1, 1, 1, 1)
    amplitude = shares * own.abs() + (1 - shares) * other.abs()
    return ifft2(amplitude * torch.exp(1j * own.angle())).real


def replaced_by_definition(images: torch.Tensor, amplitude: torch.Tensor, fraction: float) -> torch.Tensor:
    """Replace the centred square of ``(2 b + 1)^2`` bins of the shifted amplitude ``[C, H, W]``, cut at the borders."""
    height, width = images.shape[-2:]
    half = math.floor(fraction * min(height, width))
    rows = slice(max(height // 2 - half, 0), height // 2 + half + 1)
    columns = slice(max(width // 2 - half, 0), width // 2 + half + 1)
    spectrum = fft2(images)
    own, new = fftshift(spectrum.abs(), dim=(-2, -1)), fftshift(amplitude, dim=(-2, -1))
    own[..., rows, columns] = new[..., rows, columns]
    return ifft2(ifftshift(own, dim=(-2, -1)) * torch.exp(1j * spectrum.angle())).real


def test_the_band_is_the_centred_square_of_the_shifted_spectrum() -> None:
    for size in SIZES:
        for fraction in FRACTIONS:
            height, width = size
            half = math.floor(fraction * min(size))
            square = torch.zeros(size, dtype=torch.bool)
            rows, columns = torch.arange(height) - height // 2, torch.arange(width) - width // 2
            square[(rows.abs() <= half)[:, None] & (columns.abs() <= half)[None, :]] = True
            expected = ifftshift(square)[:, : width // 2 + 1]
            assert torch.equal(centred_band(height, width, fraction), expected)


def test_replacing_is_what_the_definition_says() -> None:
    for size in SIZES:
        for fraction in FRACTIONS:
            images, style = noise(4, 3, *size), noise(5, 3, *size, seed=1)
            full = fft2(style).abs().mean(dim=0)
            ours = replace_amplitude(images, mean_amplitude(style), centred_band(*size, fraction))
            torch.testing.assert_close(ours, replaced_by_definition(images, full, fraction))


PARTNERS, SHARES = torch.tensor([2, 0, 3, 1]), torch.tensor([0.1, 0.9, 0.0, 0.5], dtype=torch.float64)


def test_mixing_is_what_the_definition_says() -> None:
    for size in SIZES:
        images = noise(4, 3, *size)
        expected = mixed_by_definition(images, PARTNERS, SHARES)
        torch.testing.assert_close(mix_amplitudes(images, PARTNERS, SHARES), expected)
