# SPDX-License-Identifier: Apache-2.0
"""Images and masks as a preset transforms them: they move together, and only the seed decides how."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import ExifTags, Image

from fdg_plugins.data import DATASETS, DomainData, open_domain
from fdg_plugins.data.decoding import DamagedError, PairForm
from fdg_plugins.data.domains import find_damaged
from fdg_plugins.data.images import training_epochs
from fdg_plugins.lab.preparation.facts import look_at
from tests.data.conftest import refused
from tests.data.pair_drawings import draw_photo, draw_volume, eyes

nibabel = pytest.importorskip("nibabel")

SIZE = 16
COUNT = 10
VALUES = torch.tensor([0, 100, 200]) / 255
Batches = list[tuple[torch.Tensor, torch.Tensor]]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A data root with drawings of three sizes; the mask is the red channel."""
    for number in range(COUNT):
        draw_photo(tmp_path / "eyes" / "left", f"{number}", (20 + 4 * (number % 3), 36), number)
    DATASETS.add(eyes())
    return tmp_path


def opened(root: Path, **options: Any) -> DomainData:
    return open_domain(root, "eyes", "left", **{"seed": 1, "preset": "photo_patches", **options})


def epoch(data: DomainData, number: int = 0, workers: int = 0) -> Batches:
    scope = ("a", number)
    epochs = training_epochs(data, image_size=SIZE, batch_size=4, seed=1, scope=scope, epochs=1, workers=workers)
    return list(next(epochs))


def test_image_and_mask_move_together_in_crops_and_flips(root: Path) -> None:
    seen = torch.cat([images for images, _ in epoch(opened(root))])
    for number in range(3):
        for images, masks in epoch(opened(root), number):
            assert (images.shape[1:], masks.shape[1:]) == ((3, SIZE, SIZE), (SIZE, SIZE))
            assert torch.allclose(images[:, 0], VALUES[masks])
    assert len({image.numpy().tobytes() for image in seen}) == len(seen)


@pytest.mark.parametrize(
    ("preset", "workers", "memory"),
    [("photo", 2, 0), ("photo", 0, 30_000), ("photo_patches", 0, 30_000), ("mri_patches", 2, 2**20)],
)
def test_workers_memory_and_repetition_change_no_bit(root: Path, preset: str, workers: int, memory: int) -> None:
    reference, data = opened(root, preset=preset), opened(root, preset=preset, image_memory=memory)
    for number in (0, 1, 1):
        for one, other in zip(epoch(reference, number), epoch(data, number, workers), strict=True):
            assert torch.equal(one[0], other[0])
            assert torch.equal(one[1], other[1])


FORM = PairForm(eyes())


def saved(path: Path, image: Image.Image, **options: Any) -> Path:
    image.save(path, **options)
    return path


def test_masks_of_any_mode_give_their_values(tmp_path: Path) -> None:
    drawn = np.random.default_rng(0).integers(0, 2, (6, 5), dtype=np.uint8)
    grey, indexed = Image.fromarray(drawn), Image.fromarray(drawn)
    indexed.putpalette([0, 0, 0, 250, 10, 10])
    of_16_bits, of_one = Image.fromarray(drawn.astype(np.uint16)), Image.fromarray(drawn.astype(bool))
    image = saved(tmp_path / "image.png", Image.new("RGB", (5, 6)))
    for picture in (indexed, of_16_bits, of_one, grey.convert("LA"), grey.convert("RGB")):
        mask = saved(tmp_path / "mask.png", picture)
        assert (PairForm(eyes(mask_values=())).read(image, mask)[1][0] == drawn).all(), picture.mode


@pytest.mark.parametrize("part", ["image", "mask"])
@pytest.mark.parametrize("orientation", [1, 3])
def test_a_pair_of_which_viewers_turn_a_part_is_refused(tmp_path: Path, part: str, orientation: int) -> None:
    tag = Image.Exif()
    tag[ExifTags.Base.Orientation] = orientation
    square = Image.new("L", (6, 6), 110)
    image = saved(tmp_path / "image.jpg", square, **({"exif": tag} if part == "image" else {}))
    mask = saved(tmp_path / "mask.png", square, **({"exif": tag} if part == "mask" else {}))
    if orientation == 1:
        assert FORM.read(image, mask)[0].shape == (3, 6, 6)
        return
    with refused("image", "EXIF orientation 3"):
        FORM.read(image, mask)


def test_a_file_with_another_suffix_is_read_by_its_content_and_by_few_readers_only(tmp_path: Path) -> None:
    mask = saved(tmp_path / "mask.png", Image.new("L", (5, 6)))
    assert FORM.read(saved(tmp_path / "a.png", Image.new("RGB", (5, 6), 7), format="TIFF"), mask)[0].max() == 7
    for format_ in ("PPM", "EPS", "GIF"):
        other = saved(tmp_path / "b.png", Image.new("L", (5, 6)), format=format_)
        with pytest.raises(DamagedError):
            FORM.read(other, mask)


VOLUMES = PairForm(eyes(dims=3, channels=1, mask_values=()))


def test_volumes_are_turned_to_ras_as_monai_does(tmp_path: Path) -> None:
    from monai.transforms import Compose, EnsureChannelFirst, LoadImage, Orientation

    image, mask = tmp_path / "image.nii.gz", tmp_path / "mask.nii"
    draw_volume(image, mask, affine=np.array([[0, -0.6, 0, 3], [-0.5, 0, 0, 2], [0, 0, 3.0, 1], [0, 0, 0, 1]]))
    axes = (("L", "R"), ("P", "A"), ("I", "S"))
    steps = [LoadImage("NibabelReader"), EnsureChannelFirst(), Orientation(axcodes="RAS", labels=axes)]
    expected = Compose(steps)(image)
    oriented = replace(VOLUMES, oriented=True)
    pixels, found = oriented.read(image, mask)
    assert (pixels == expected.numpy()).all()
    assert (pixels == 100 + 50 * found).all()


@pytest.mark.parametrize(
    ("low", "high", "preset", "fits"),
    [
        (-0.4, 255.3, "photo_patches", True),  # but for a few values, as resampling leaves them
        (0, 3000, "photo", False),
        (0, 1, "photo", False),
        (-1024, 3000, "ct_patches", True),
        (7, 7, "photo", True),
    ],
)
def test_nifti_that_a_preset_for_photographs_would_make_white_or_black_is_refused(
    tmp_path: Path, low: float, high: float, preset: str, fits: bool
) -> None:
    values = np.linspace(low, high, 360).reshape(20, 18)
    for part, drawn in (("images", values), ("masks", np.zeros((20, 18), dtype=np.uint8))):
        (folder := tmp_path / "eyes" / "left" / part).mkdir(parents=True)
        for number in range(2):
            nibabel.save(nibabel.Nifti1Image(drawn, np.eye(4)), folder / f"{number}.nii.gz")
    DATASETS.add(spec := eyes(channels=1, mask_values=(), preset=preset))
    data = open_domain(tmp_path, "eyes", "left", seed=0)
    reasons = find_damaged(data).values()
    assert [f"values from {low} to {high}" in reason for reason in reasons] == [True] * (0 if fits else 2)
    with nullcontext() if fits else pytest.raises(DamagedError):
        look_at(tmp_path, spec, data.test[0], 1000)


def test_another_orientation_of_the_mask_and_too_many_voxels_are_refused(tmp_path: Path) -> None:
    image, mask = tmp_path / "image.nii.gz", tmp_path / "mask.nii"
    draw_volume(image, mask)
    mask.with_name("image.nii").write_bytes(mask.read_bytes()[:352])  # a header without any voxel
    for path in (image, mask.with_name("image.nii")):
        with refused("image", "has 120 pixels"):
            replace(VOLUMES, max_pixels=119).read(path, mask)
    draw_volume(tmp_path / "other.nii", mask, affine=np.diag([-0.5, 0.6, 3, 1]))
    nibabel.save(nibabel.Nifti1Image(np.zeros((6, 5), dtype=np.uint8), np.eye(4)), slice_ := tmp_path / "slice.nii")
    photo = saved(tmp_path / "photo.png", Image.new("RGB", (5, 6)))
    for form, one, other in ((VOLUMES, image, mask), (FORM, photo, slice_)):
        with refused("image", "another orientation"):
            form.read(one, other)


def test_a_broken_nifti_file_is_one_sentence(tmp_path: Path) -> None:
    image, mask = tmp_path / "a.nii", tmp_path / "b.nii"
    draw_volume(image, mask)
    whole, shape = image.read_bytes(), (6, 5, 4)
    without_type = whole[:70] + b"\xff\x7f" + whole[72:]
    values = (np.ones(shape, dtype=np.complex64), np.full(shape, np.nan))
    unfit = [nibabel.Nifti1Image(one, np.eye(4)).to_bytes() for one in values]
    for content in (whole[:400], b"text" * 200, without_type, *unfit):
        image.write_bytes(content)
        with refused("image", "a.nii"):
            VOLUMES.read(image, mask)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"srow_x": (0, np.nan, 0, 0)}, "axes that can be told apart"),
        ({"srow_x": (1e300, 0, 0, 0), "srow_y": (0, 1e300, 0, 0), "srow_z": (0, 0, 1e300, 0)}, "axes that"),
        ({"vox_offset": 2**30}, "a header of more than"),  # which would be read into memory
    ],
)
def test_numbers_in_a_nifti_header_that_mean_nothing_are_refused(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    nibabel.save(nibabel.Nifti2Image(np.zeros((6, 5, 4), dtype=np.uint8), np.eye(4)), file := tmp_path / "a.nii")
    content = file.read_bytes()
    header = np.frombuffer(content, nibabel.Nifti2Header.template_dtype, 1).copy()
    for field, value in changes.items():
        header[field] = value
    file.write_bytes(header.tobytes() + content[header.nbytes :])
    with refused("image", reason):
        replace(VOLUMES, oriented=True).read(file, file)
