# SPDX-License-Identifier: Apache-2.0
"""The published augmentation by its distribution, the evaluation view by its definition, decoding by mode."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fdg_plugins.data.transforms import (
    IMAGENET_DEVIATION,
    IMAGENET_MEAN,
    evaluation_transform,
    open_image,
    read_image,
    training_transform,
)
from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.randomness import seeded

DRAWS = 400


def without_normalisation(image: torch.Tensor) -> torch.Tensor:
    """Return pixel values in [0, 1], shape ``[3, H, W]``."""
    mean, deviation = (torch.tensor(values).view(3, 1, 1) for values in (IMAGENET_MEAN, IMAGENET_DEVIATION))
    return image * deviation + mean


def draws(image: Image.Image, size: int = 32) -> torch.Tensor:
    """Return ``[DRAWS, 3, size, size]`` augmented views, values in [0, 1]."""
    transform = training_transform(size)
    with seeded(0, "test"):
        return torch.stack([without_normalisation(transform(image)) for _ in range(DRAWS)])


def ramp(size: int = 64) -> Image.Image:
    """Return a grey image whose value grows from left to right; hue and saturation leave it as it is."""
    row = np.linspace(40, 200, size).astype(np.uint8)
    return Image.fromarray(np.tile(row, (size, 1))).convert("RGB")


@pytest.mark.parametrize("shape", [(40, 30), (30, 40), (227, 227), (5, 5)])
@pytest.mark.parametrize("make", [training_transform, evaluation_transform])
def test_any_image_becomes_a_square_float_tensor(make: type, shape: tuple[int, int]) -> None:
    image = make(24)(Image.new("RGB", shape, (10, 100, 200)))
    assert type(image) is torch.Tensor
    assert (image.shape, image.dtype) == ((3, 24, 24), torch.float32)


def test_evaluation_normalises_with_imagenet_values_and_repeats_itself() -> None:
    image = Image.new("RGB", (40, 40), (51, 102, 204))
    view = evaluation_transform(16)(image)
    expected = (torch.tensor([0.2, 0.4, 0.8]) - torch.tensor(IMAGENET_MEAN)) / torch.tensor(IMAGENET_DEVIATION)
    torch.testing.assert_close(view, expected.view(3, 1, 1).expand(3, 16, 16))
    assert torch.equal(view, evaluation_transform(16)(image))


def test_evaluation_shows_the_whole_image() -> None:
    view = without_normalisation(evaluation_transform(64)(ramp()))
    torch.testing.assert_close(view[0, 0] * 255, torch.linspace(40, 200, 64).floor(), atol=1e-3, rtol=0)


def test_half_of_the_draws_are_flipped() -> None:
    views = draws(ramp())
    flipped = views[:, 0, :, 0].mean(1) > views[:, 0, :, -1].mean(1)
    assert 0.42 < flipped.float().mean() < 0.58


def test_a_tenth_of_the_draws_are_grey() -> None:
    views = draws(Image.new("RGB", (32, 32), (200, 60, 30)))
    grey = (views.amax(1) - views.amin(1)).flatten(1).amax(1) < 0.02
    assert 0.05 < grey.float().mean() < 0.15


def test_crops_cover_80_to_100_percent_of_the_area() -> None:
    # Red counts columns and green counts rows, so the range of each in a view is the crop's width or height.
    crop = training_transform(64).transforms[0]
    x, y = np.meshgrid(np.arange(200), np.arange(200))
    image = Image.fromarray(np.stack([x, y, x * 0], axis=2).astype(np.uint8))
    areas = []
    with seeded(0, "crop"):
        for _ in range(DRAWS):
            view = np.asarray(crop(image)).astype(float)
            width, height = np.ptp(view[32, :, 0]) + 1, np.ptp(view[:, 32, 1]) + 1
            areas.append(width * height / 200**2)
    assert min(areas) > 0.76
    assert max(areas) <= 1.0
    assert 0.82 < np.mean(areas) < 0.95


def test_brightness_changes_by_up_to_40_percent_both_ways() -> None:
    means = draws(Image.new("RGB", (32, 32), (120, 120, 120))).mean((1, 2, 3)) / (120 / 255)
    assert 0.58 < means.min() < 0.7
    assert 1.3 < means.max() < 1.42


def test_hue_reaches_far_around_the_circle() -> None:
    red_is_largest = draws(Image.new("RGB", (32, 32), (200, 60, 30))).mean((2, 3)).argmax(1)
    assert set(red_is_largest.tolist()) == {0, 1, 2}


@pytest.mark.parametrize("make", [training_transform, evaluation_transform])
def test_a_size_below_one_pixel_is_refused(make: type) -> None:
    with pytest.raises(SettingsError, match="image_size is 0; expected at least 1"):
        make(0)


# --- decoding ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA"])
def test_png_of_every_mode_is_read_as_rgb(tmp_path: Path, mode: str) -> None:
    Image.new("RGB", (16, 16), (255, 255, 255)).convert(mode).save(tmp_path / "image.png")
    image = read_image(tmp_path / "image.png")
    assert image.mode == "RGB"
    assert image.getpixel((3, 3)) == (255, 255, 255)


@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
def test_jpeg_of_every_mode_is_read_as_rgb(tmp_path: Path, mode: str) -> None:
    Image.new("RGB", (16, 16), (120, 120, 120)).convert(mode).save(tmp_path / "image.jpg")
    assert np.abs(np.asarray(read_image(tmp_path / "image.jpg")).astype(int) - 120).max() < 10


def test_16_bit_grey_keeps_its_upper_bits(tmp_path: Path) -> None:
    Image.fromarray(np.full((16, 16), 0x7F80, dtype=np.uint16)).save(tmp_path / "image.png")
    assert read_image(tmp_path / "image.png").getpixel((0, 0)) == (0x7F, 0x7F, 0x7F)


def test_a_palette_with_transparency_is_read_without_a_warning(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    Image.new("P", (16, 16)).save(tmp_path / "image.png", transparency=b"\x00\x80")
    assert read_image(tmp_path / "image.png").mode == "RGB"
    assert not recwarn.list


@pytest.mark.parametrize("suffix", [".jpg", ".png"])
def test_a_truncated_image_opens_but_cannot_be_read(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"half{suffix}"
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(noise).save(path)
    path.write_bytes(path.read_bytes()[:2000])
    open_image(path).close()
    with pytest.raises(DataError, match=rf"image .*half{suffix} cannot be read \(OSError\); expected an undamaged"):
        read_image(path)


def test_a_format_outside_the_list_is_refused_whatever_its_suffix(tmp_path: Path) -> None:
    Image.new("RGB", (16, 16)).save(tmp_path / "image.jpg", format="TIFF")
    with pytest.raises(DataError, match=r"image\.jpg cannot be read"):
        open_image(tmp_path / "image.jpg")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"gone\.jpg cannot be read \(FileNotFoundError\)"):
        read_image(tmp_path / "gone.jpg")
