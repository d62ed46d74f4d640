# SPDX-License-Identifier: Apache-2.0
"""Contact sheets and facts of masks: what is coloured, and what is counted."""

import hashlib
from pathlib import Path

import nibabel
import numpy as np
import pytest
from PIL import Image

from fdg_plugins.data.catalogue import VESSELS
from fdg_plugins.data.contact_sheets import COLOURS, TILE, Entry, Picture, draw_sheet, lay_over
from fdg_plugins.data.mask_facts import mask_facts
from fdg_plugins.data.pairs import list_pairs
from tests.data.pair_drawings import draw_volume
from tests.data.published import write_files
from tests.data.published_vessels import annotation, photograph

CLASSES = ("background", "one", "two")


def halves(size: tuple[int, int] = (64, 32)) -> Picture:
    """Return a grey image whose left half is background and whose right half is the classes 1 and 2."""
    labels = np.zeros((size[1], size[0]), dtype=np.int64)
    labels[: size[1] // 2, size[0] // 2 :] = 1
    labels[size[1] // 2 :, size[0] // 2 :] = 2
    return Picture(Image.new("RGB", size, (100, 100, 100)), labels)


def test_only_classes_after_the_first_are_coloured_and_each_in_its_own_colour() -> None:
    picture = halves()
    pixels = np.asarray(lay_over(picture.image, picture.labels, strength=1))
    height, width, _ = pixels.shape
    assert (width, height) == (TILE, TILE // 2)
    assert pixels[5, 5].tolist() == pixels[-5, 5].tolist() == [100, 100, 100]
    assert tuple(pixels[5, -5].tolist()) == COLOURS[0]
    assert tuple(pixels[-5, -5].tolist()) == COLOURS[1]


def test_a_translucent_mask_lets_the_image_through() -> None:
    picture = halves()
    pixels = np.asarray(lay_over(picture.image, picture.labels, strength=0.5))
    assert pixels[5, -5].tolist() == [(100 + value) // 2 for value in COLOURS[0]]


def test_a_line_of_one_pixel_is_seen_in_an_image_of_many() -> None:
    labels = np.zeros((3200, 3200), dtype=np.int64)
    labels[1603] = 1
    pixels = np.asarray(lay_over(Image.new("RGB", (3200, 3200)), labels, strength=1)).astype(int)
    row = pixels[:, 50].sum(axis=-1)
    assert row.argmax() == 160
    assert row[160] > 0.15 * sum(COLOURS[0])


@pytest.mark.parametrize("number", [1, 2, 5])
def test_a_sheet_has_room_for_all_entries(number: int) -> None:
    sheet = draw_sheet([Entry(halves(), "a caption with ümläuts")] * number, "a title", CLASSES)
    assert sheet.width > 2 * TILE * min(number, 2)
    assert sheet.height > TILE * -(-number // 2)
    found = sheet.getcolors(2**24)
    assert found is not None
    colours = {colour for _, colour in found}
    assert {COLOURS[0], COLOURS[1], (100, 100, 100)} <= colours


def test_facts_count_sizes_and_fractions_and_keep_the_damaged_apart(tmp_path: Path) -> None:
    files = {
        "a": (photograph(1, "PNG"), annotation(1, "PNG")),
        "b": (photograph(2, "PNG", (10, 10)), annotation(2, "PNG", size=(10, 10))),
        "c": (photograph(3, "PNG")[:60], annotation(3, "PNG")),
        "d": (photograph(3, "PNG"), annotation(3, "PNG", size=(10, 10))),
        "e": (photograph(3, "PNG"), photograph(4, "PNG")),
    }
    for stem, (image, mask) in files.items():
        write_files(tmp_path, {f"vessels/hrf/images/{stem}.png": image, f"vessels/hrf/masks/{stem}.png": mask})
    facts = mask_facts(tmp_path, VESSELS, list_pairs(tmp_path, VESSELS, "hrf")[0].all)
    assert facts.pairs == 5
    assert facts.sizes == ((20, 24), (10, 10))
    np.testing.assert_allclose(facts.shares, [[0.95, 0.05], [0.9, 0.1]])
    assert {pair.file: str(error).split(" ")[0] for pair, error in facts.damaged.items()} == {
        "hrf/images/c.png": "image",
        "hrf/images/d.png": "mask",
        "hrf/images/e.png": "mask",
    }


def test_facts_have_the_digest_of_every_image_so_that_none_is_read_again_to_find_copies(tmp_path: Path) -> None:
    images = {"a": photograph(1, "PNG"), "b": photograph(2, "PNG"), "c": photograph(3, "PNG")[:60]}
    for stem, image in images.items():
        mask = annotation(1, "PNG")
        write_files(tmp_path, {f"vessels/hrf/images/{stem}.png": image, f"vessels/hrf/masks/{stem}.png": mask})
    facts = mask_facts(tmp_path, VESSELS, list_pairs(tmp_path, VESSELS, "hrf")[0].all)
    assert [Path(pair.file).stem for pair in facts.damaged] == ["c"]
    digests = {Path(pair.file).stem: digest for pair, digest in facts.digests.items()}
    assert digests == {stem: hashlib.sha256(image).hexdigest() for stem, image in images.items()}


def test_grey_images_and_volumes_become_pictures_of_their_middle() -> None:
    volume = np.zeros((1, 4, 6, 5), dtype=np.float32)
    volume[0, 3, 5, 2] = 1000.0
    labels = np.zeros((4, 6, 5), dtype=np.int16)
    labels[3, 5, 2] = 1
    picture = Picture.of(volume, labels)
    pixels = np.asarray(picture.image)
    assert pixels.shape == (6, 4, 3)
    assert pixels[0, 3].tolist() == [255, 255, 255]
    np.testing.assert_array_equal(picture.labels == 1, pixels[..., 0] == 255)
    plain = np.full((1, 2, 3), 7.0, dtype=np.float32)
    assert np.asarray(Picture.of(plain, labels[:2, :3, 0]).image).tolist() == np.full((2, 3, 3), 7).tolist()


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (0.25, 0.75), (-1024.0, 3071.0), (0.0, 4095.5)])
def test_intensities_are_drawn_from_black_to_white_whatever_their_scale(low: float, high: float) -> None:
    volume = np.linspace(low, high, 16, dtype=np.float32).reshape(1, 4, 4)
    pixels = np.asarray(Picture.of(volume, np.zeros((4, 4), dtype=np.int16)).image)[..., 0]
    np.testing.assert_array_equal(pixels.ravel(), 17 * np.arange(16))


@pytest.mark.parametrize(
    ("change", "elsewhere"),
    [
        ((), False),
        (((0, 3, 0.04),), False),  # mm: less than a tenth of a voxel
        (((0, 3, 5.0),), True),
        (((1, 1, 0.7),), True),
        (((1, 1, 0.601), (2, 0, 0.001)), False),  # a rounded rotation, which moves the corners by less than that
    ],
)
def test_masks_that_lie_elsewhere_than_their_images_are_told(
    tmp_path: Path, change: tuple[tuple[int, int, float], ...], elsewhere: bool
) -> None:
    image, mask = (tmp_path / "vessels" / "hrf" / part / "a.nii.gz" for part in ("images", "masks"))
    draw_volume(image, mask, (20, 24, 1))
    affine = np.diag([0.5, 0.6, 3.0, 1.0])
    for row, column, value in change:
        affine[row, column] = value
    nibabel.save(nibabel.Nifti1Image(np.zeros((20, 24, 1), dtype=np.uint8), affine), mask)
    facts = mask_facts(tmp_path, VESSELS, list_pairs(tmp_path, VESSELS, "hrf")[0].all)
    assert not facts.damaged
    assert [pair.mask for pair in facts.elsewhere] == ["hrf/masks/a.nii.gz"] * elsewhere


@pytest.mark.parametrize("channels", [2, 4])
def test_of_sequences_in_several_channels_the_first_is_drawn(channels: int) -> None:
    volume = np.random.default_rng(0).normal(100, 40, (channels, 4, 6, 5)).astype(np.float32)
    labels = np.zeros((4, 6, 5), dtype=np.int16)
    drawn, first = (np.asarray(Picture.of(values, labels).image) for values in (volume, volume[:1]))
    np.testing.assert_array_equal(drawn, first)


@pytest.mark.parametrize("value", [-1024.0, 0.5, 300.0, 3e38])
def test_a_blank_image_out_of_range_is_black(value: float) -> None:
    blank = np.full((1, 4, 5), value, dtype=np.float32)
    assert np.asarray(Picture.of(blank, np.zeros((4, 5), dtype=np.int16)).image).max() == 0
