# SPDX-License-Identifier: Apache-2.0
"""Images that are kept: the same pixels as those read, decoded once, shared with forked processes, within the limit."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fdg_plugins.data import ImageFiles, Sample, WholeImages, WholeView
from fdg_plugins.errors import DataError

SHAPES = {"a.png": (8, 6), "b.png": (5, 9), "c.png": (8, 6)}
SIZES = {name: height * width * 3 for name, (height, width) in SHAPES.items()}
ALL = sum(SIZES.values())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    generator = np.random.default_rng(0)
    for name, shape in SHAPES.items():
        Image.fromarray(generator.integers(0, 256, (*shape, 3), dtype=np.uint8)).save(tmp_path / name)
    return tmp_path


def replace_all(folder: Path) -> None:
    """Make every image black, in its old size: who reads a file again sees it."""
    for name, (height, width) in SHAPES.items():
        Image.new("RGB", (width, height)).save(folder / name)


def kept(images: ImageFiles, folder: Path) -> set[str]:
    """Return the names of the images that are not read again."""
    for name in SHAPES:
        images.read(name)
    replace_all(folder)
    return {name for name in SHAPES if images.read(name).any()}


@pytest.mark.parametrize("memory", [0, SIZES["a.png"], ALL, 10 * ALL])
def test_pixels_are_those_of_the_file_kept_or_not(folder: Path, memory: int) -> None:
    expected = {name: np.asarray(Image.open(folder / name)) for name in SHAPES}
    images = ImageFiles(folder, memory)
    images.reserve(SHAPES)
    for _ in range(2):
        for name, pixels in expected.items():
            assert np.array_equal(images.read(name), pixels)


@pytest.mark.parametrize(
    ("memory", "expected"),
    [
        (ALL, {"a.png", "b.png", "c.png"}),
        (ALL - 1, {"a.png", "b.png"}),
        (SIZES["a.png"] + SIZES["c.png"], {"a.png", "b.png"}),
        (SIZES["b.png"] - 1, set()),
        (0, set()),
    ],
)
def test_no_more_is_kept_than_the_memory_holds_the_first_ones_first(
    folder: Path, memory: int, expected: set[str]
) -> None:
    images = ImageFiles(folder, memory)
    images.reserve(SHAPES)
    assert kept(images, folder) == expected


WHOLE = 3 * 4 * 4


@pytest.mark.parametrize(
    ("memory", "expected"),
    [(3 * WHOLE, {"a.png", "b.png", "c.png"}), (3 * WHOLE - 1, {"a.png", "b.png"}), (WHOLE - 1, set()), (0, set())],
)
def test_whole_images_are_resized_once_and_kept_as_far_as_the_memory_goes(
    folder: Path, memory: int, expected: set[str]
) -> None:
    samples = [Sample(name, 0) for name in SHAPES]
    view = WholeView(4)
    pixels = [view(np.asarray(Image.open(folder / name)), 0) for name in SHAPES]
    for images in (ImageFiles(folder, memory), ImageFiles(folder)):
        whole = WholeImages(images, samples, 4, passes=2)
        for index in range(6):
            assert np.array_equal(whole[index][0], pixels[index % 3])
    images = ImageFiles(folder, memory)
    WholeImages(images, samples, 4)
    whole = WholeImages(images, samples, 4, passes=2)
    for index in range(3):
        whole[index]
    replace_all(folder)
    assert {name for index, name in enumerate(SHAPES) if whole[3 + index][0].any()} == expected


def test_whole_images_of_two_sizes_and_the_files_share_the_memory(folder: Path) -> None:
    images = ImageFiles(folder, ALL + 3 * WHOLE)
    for size in (4, 4, 8):
        images.reserve_whole(SHAPES, size)
    images.reserve(SHAPES)
    assert {images.whole(name, WholeView(8)).shape for name in SHAPES} == {(3, 8, 8)}
    assert kept(images, folder) == set()  # what the resized ones left is less than the smallest
    assert np.array_equal(images.whole("a.png", WholeView(4)), WholeView(4)(images.read("a.png"), 0))


def test_room_found_later_counts_what_was_found_before(folder: Path) -> None:
    images = ImageFiles(folder, ALL - 1)
    for name in SHAPES:
        images.reserve([name, name])
    assert kept(images, folder) == {"a.png", "b.png"}


def test_without_room_an_image_is_read_each_time(folder: Path) -> None:
    assert kept(ImageFiles(folder, ALL), folder) == set()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_what_a_forked_process_decodes_its_parent_has(folder: Path) -> None:
    images = ImageFiles(folder, ALL)
    images.reserve(SHAPES)
    expected = np.asarray(Image.open(folder / "b.png"))
    child = os.fork()
    if child == 0:
        images.read("b.png")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    replace_all(folder)
    assert np.array_equal(images.read("b.png"), expected)
    assert not images.read("a.png").any()


def test_another_process_is_sent_the_folder_and_no_pixels(folder: Path) -> None:
    images = ImageFiles(folder, ALL)
    images.reserve(SHAPES)
    images.read("a.png")
    copy = pickle.loads(pickle.dumps(images))
    assert copy == images
    assert len(pickle.dumps(images)) < 1000
    assert np.array_equal(copy.read("a.png"), images.read("a.png"))


def test_a_bad_file_is_named_when_it_is_read_and_costs_the_others_nothing(folder: Path) -> None:
    (folder / "b.png").write_text("not an image")
    images = ImageFiles(folder, ALL)
    images.reserve([*SHAPES, "gone.png"])
    for name in ("b.png", "gone.png"):
        with pytest.raises(DataError, match=f"{name} cannot be read"):
            images.read(name)
    assert images.read("c.png").shape == (*SHAPES["c.png"], 3)


def test_a_file_that_changed_its_size_since_room_was_found_is_read_as_it_is(folder: Path) -> None:
    images = ImageFiles(folder, ALL)
    images.reserve(SHAPES)
    Image.new("RGB", (30, 20)).save(folder / "a.png")
    for _ in range(2):
        assert images.read("a.png").shape == (20, 30, 3)
