# SPDX-License-Identifier: Apache-2.0
"""Images and masks as a preset transforms them: they move together, and only the seed decides how."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
import torch
from PIL import ExifTags, Image

from fdg_plugins.data import (
    DATASETS,
    DomainData,
    PairSample,
    SegmentationSpec,
    find_damaged,
    open_domain,
    training_batches,
)
from fdg_plugins.data.facts import mask_facts
from fdg_plugins.data.pair_reading import MaskError, PairForm
from fdg_plugins.data.pairs import list_pairs
from fdg_plugins.errors import DataError
from fdg_plugins.tasks import TASKS
from tests.data.pair_drawings import PairTask, draw_photo, draw_volume, eyes

SIZE = 16
COUNT = 10
VALUES = torch.tensor([0, 100, 200]) / 255
Batches = list[tuple[torch.Tensor, torch.Tensor]]
Register = Callable[..., SegmentationSpec]


@pytest.fixture
def register() -> Iterator[Register]:
    """Register the data set, with changes to its record."""
    TASKS.add(PairTask())
    added: list[str] = []

    def add(**changes: Any) -> SegmentationSpec:
        spec = eyes(**changes)
        DATASETS.add(spec)
        added.append(spec.name)
        return spec

    yield add
    for name in added:
        DATASETS.remove(name)
    TASKS.remove(PairTask().name)


@pytest.fixture
def root(tmp_path: Path, register: Register) -> Path:
    """A data root with drawings of three sizes; the mask is the red channel."""
    register()
    for number in range(COUNT):
        draw_photo(tmp_path / "eyes" / "left", f"{number}", (20 + 4 * (number % 3), 36), number)
    return tmp_path


def opened(root: Path, **options: Any) -> DomainData:
    return open_domain(root, "eyes", "left", **{"seed": 1, "preset": "photo_patches", **options})


def epoch(data: DomainData, *, workers: int = 0, seed: int = 1, scope: tuple[Any, ...] = ("a", 0)) -> Batches:
    return list(training_batches(data, image_size=SIZE, batch_size=4, seed=seed, scope=scope, workers=workers))


def equal(one: Batches, other: Batches) -> bool:
    return len(one) == len(other) and all(
        torch.equal(a, b) for pair, more in zip(one, other, strict=True) for a, b in zip(pair, more, strict=True)
    )


# --- together ---------------------------------------------------------------------------------------


def test_image_and_mask_move_together_in_crops_and_flips(root: Path) -> None:
    seen = torch.cat([images for images, _ in epoch(opened(root))])
    for number in range(3):
        for images, masks in epoch(opened(root), scope=("a", number)):
            assert (images.shape[1:], masks.shape[1:]) == ((3, SIZE, SIZE), (SIZE, SIZE))
            assert torch.allclose(images[:, 0], VALUES[masks])
    assert len({image.numpy().tobytes() for image in seen}) == len(seen)


# --- the same bits ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("preset", "workers", "memory"),
    [
        ("photo", 2, 0),
        ("photo", 0, 30_000),
        ("photo_patches", 0, 30_000),
        ("photo_patches", 2, 2**20),
        ("mri_patches", 2, 2**20),
    ],
)
def test_workers_memory_and_repetition_change_no_bit(root: Path, preset: str, workers: int, memory: int) -> None:
    reference = opened(root, preset=preset)
    data = opened(root, preset=preset, image_memory=memory)
    for number in range(2):
        expected = epoch(reference, scope=("a", number))
        assert equal(expected, epoch(data, scope=("a", number), workers=workers))
    assert equal(expected, epoch(data, scope=("a", 1), workers=workers))


# --- memory -----------------------------------------------------------------------------------------


# --- evaluation and reports -------------------------------------------------------------------------


# --- files ------------------------------------------------------------------------------------------


def form(**changes: Any) -> PairForm:
    return replace(PairForm(3, 2, {0: 0, 100: 1, 110: 1, 200: 2}), **changes)


def saved(path: Path, image: Image.Image, **options: Any) -> Path:
    image.save(path, **options)
    return path


@pytest.mark.parametrize("mode", ["L", "P", "LA", "RGB", "RGBA", "I;16", "1"])
def test_masks_of_any_mode_give_their_values(tmp_path: Path, mode: str) -> None:
    drawn = np.random.default_rng(0).integers(0, 2, (6, 5), dtype=np.uint8)
    picture = Image.fromarray(drawn if mode != "1" else drawn.astype(bool))
    if mode == "P":
        picture.putpalette([0, 0, 0, 250, 10, 10])
    elif mode == "I;16":
        picture = Image.fromarray(drawn.astype(np.uint16))
    elif mode != "1":
        picture = picture.convert(mode)
    mask = saved(tmp_path / "mask.png", picture)
    image = saved(tmp_path / "image.png", Image.new("RGB", (5, 6)))
    assert (form(class_of_value={0: 0, 1: 1}).read(image, mask)[1][0] == drawn).all()


@pytest.mark.parametrize("part", ["image", "mask"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_pair_of_which_viewers_turn_a_part_is_refused(tmp_path: Path, part: str, orientation: int) -> None:
    tag = Image.Exif()
    tag[ExifTags.Base.Orientation] = orientation
    square = Image.new("L", (6, 6), 110)
    image = saved(tmp_path / "image.jpg", square, **({"exif": tag} if part == "image" else {}))
    mask = saved(tmp_path / "mask.png", square, **({"exif": tag} if part == "mask" else {}))
    if orientation == 1:
        assert form().read(image, mask)[0].shape == (3, 6, 6)
        return
    with pytest.raises(DataError, match=f"^{part} .* has the EXIF orientation {orientation}, expected 1: ") as refused:
        form().read(image, mask)
    assert "\n" not in str(refused.value)


def test_a_file_with_another_suffix_is_read_by_its_content_and_by_few_readers_only(tmp_path: Path) -> None:
    mask = saved(tmp_path / "mask.png", Image.new("L", (5, 6)))
    assert form().read(saved(tmp_path / "a.png", Image.new("RGB", (5, 6), 7), format="TIFF"), mask)[0].max() == 7
    for format_ in ("PPM", "EPS", "GIF"):
        other = saved(tmp_path / "b.png", Image.new("L", (5, 6)), format=format_)
        with pytest.raises(DataError, match="cannot be read"):
            form().read(other, mask)


# --- NIfTI ------------------------------------------------------------------------------------------


def nifti(folder: Path, size: tuple[int, ...], **options: Any) -> tuple[Path, Path, np.ndarray]:
    image, mask = folder / "image.nii.gz", folder / "mask.nii"
    return image, mask, draw_volume(image, mask, size, **options)


VOLUMES = PairForm(1, 3, {0: 0, 1: 1, 2: 2})


def test_volumes_are_turned_to_ras_as_monai_does(tmp_path: Path) -> None:
    from monai.transforms import Compose, EnsureChannelFirst, LoadImage, Orientation

    affine = np.array([[0, -0.6, 0, 3], [-0.5, 0, 0, 2], [0, 0, 3.0, 1], [0, 0, 0, 1]])
    image, mask, _ = nifti(tmp_path, (6, 5, 4), affine=affine)
    axes = (("L", "R"), ("P", "A"), ("I", "S"))
    expected = Compose([LoadImage("NibabelReader"), EnsureChannelFirst(), Orientation(axcodes="RAS", labels=axes)])(
        image
    )
    oriented = replace(VOLUMES, oriented=True)
    pixels, found = oriented.read(image, mask)
    assert (pixels == expected.numpy()).all()
    assert (pixels == 100 + 50 * found).all()
    assert oriented.spacing_of(image) == pytest.approx(tuple(expected.pixdim.tolist())) == (0.6, 0.5, 3.0)


@pytest.mark.parametrize(
    ("low", "high", "preset", "fits"),
    [
        (0, 255, "photo", True),
        (-0.4, 255.3, "photo_patches", True),  # but for a few values, as resampling leaves them
        (0, 3000, "photo", False),
        (-1024, 200, "photo_patches", False),
        (0, 1, "photo", False),
        (-1024, 3000, "mri_patches", True),
        (-1024, 3000, "ct_patches", True),
        (7, 7, "photo", True),
    ],
)
def test_nifti_that_a_preset_for_photographs_would_make_white_or_black_is_refused(
    tmp_path: Path, register: Register, low: float, high: float, preset: str, fits: bool
) -> None:
    spec = register(channels=1, mask_values=(), preset=preset)
    values = np.linspace(low, high, 360).reshape(20, 18)
    for part, drawn in (("images", values), ("masks", np.zeros((20, 18), dtype=np.uint8))):
        (folder := tmp_path / "eyes" / "left" / part).mkdir(parents=True)
        for number in range(2):
            nibabel.save(nibabel.Nifti1Image(drawn, np.eye(4)), folder / f"{number}.nii.gz")
    data = open_domain(tmp_path, "eyes", "left", seed=0)
    pairs = list_pairs(tmp_path, spec, "left")[0].all
    assert len(mask_facts(tmp_path, spec, pairs).damaged) == (0 if fits else 2)
    if fits:
        assert not find_damaged(data).files
        return
    reasons = find_damaged(data).unfit.values()
    expected = f"values from {low} to {high}, expected 0 to 255 for a preset of photographs; mri_patches and ct_patches"
    assert [reason.startswith(expected) for reason in reasons] == [True, True]


def test_another_orientation_of_the_mask_is_refused(tmp_path: Path) -> None:
    image, _, _ = nifti(tmp_path, (6, 5, 4))
    _, mask, _ = nifti(tmp_path / "b", (6, 5, 4), affine=np.diag([-0.5, 0.6, 3, 1]))
    with pytest.raises(MaskError, match=r"mask.nii has another orientation than its image"):
        VOLUMES.read(image, mask)


def broken(path: Path, kind: str) -> None:
    if kind == "truncated":
        path.write_bytes(path.read_bytes()[:400])
    elif kind == "text":
        path.write_bytes(b"text" * 200)
    elif kind == "header":
        content = bytearray(path.read_bytes())
        content[70:72] = b"\xff\x7f"  # no data type of NIfTI
        path.write_bytes(content)
    elif kind == "complex":
        nibabel.save(nibabel.Nifti1Image(np.ones((6, 5, 4), dtype=np.complex64), np.eye(4)), path)
    elif kind == "nan":
        nibabel.save(nibabel.Nifti1Image(np.full((6, 5, 4), np.nan, dtype=np.float32), np.eye(4)), path)


@pytest.mark.parametrize("kind", ["truncated", "text", "header", "complex", "nan"])
def test_a_broken_nifti_file_is_one_sentence(tmp_path: Path, kind: str) -> None:
    image, mask = tmp_path / "a.nii", tmp_path / "b.nii"
    draw_volume(image, mask, (6, 5, 4))
    broken(image, kind)
    with pytest.raises(DataError, match=r"^image .*a\.nii (cannot be read|has values that are not finite)") as caught:
        VOLUMES.read(image, mask)
    assert "\n" not in str(caught.value)
    assert "nii" not in caught.value.public.lower().replace("nifti", "")


def test_the_limit_of_voxels_is_checked_by_the_header(tmp_path: Path) -> None:
    image, mask, _ = nifti(tmp_path, (6, 5, 4))
    content = image.with_name("image.nii")
    content.write_bytes(mask.read_bytes()[:352])  # a header without any voxel
    for path in (image, content):
        with pytest.raises(DataError, match="has 120 pixels; expected at most 119"):
            replace(VOLUMES, max_pixels=119).read(path, mask)


# --- presets ----------------------------------------------------------------------------------------


# --- errors -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("memory", [0, 2**20])
@pytest.mark.parametrize("part", ["images", "masks"])
def test_a_bad_file_is_one_sentence_with_or_without_workers(root: Path, workers: int, memory: int, part: str) -> None:
    data = opened(root, image_memory=memory)
    sample = data.train[3]
    assert isinstance(sample, PairSample)
    bad = root / "eyes" / (sample.file if part == "images" else sample.mask)
    bad.write_bytes(bad.read_bytes()[:100])
    with pytest.raises(DataError, match=rf"^image .*{bad.name} cannot be read") as caught:
        epoch(data, workers=workers)
    assert "\n" not in str(caught.value)
    assert caught.value.public == "an image of the split cannot be read."
