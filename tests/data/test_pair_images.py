# SPDX-License-Identifier: Apache-2.0
"""Images and masks as a preset transforms them: they move together, and only the seed decides how."""

import subprocess
import sys
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
    PRESETS,
    DomainData,
    PairFiles,
    PairSample,
    SegmentationSpec,
    check_images,
    check_preset,
    dataset_spec,
    evaluation_batches,
    find_damaged,
    open_domain,
    reported_batches,
    training_batches,
    training_epochs,
)
from fdg_plugins.data.mask_facts import mask_facts
from fdg_plugins.data.pair_reading import MaskError, PairForm
from fdg_plugins.data.pairs import list_pairs
from fdg_plugins.data.presets import standardised
from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.plans.plans import make_plans
from fdg_plugins.tasks import TASKS
from tests.data.deep_images import save_deep
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


def test_the_digest_of_sizes_is_of_images_and_masks(root: Path) -> None:
    data = opened(root)
    samples = (*data.train, *data.validation, *data.test)
    digests = [data.images.sizes_digest(samples), data.images.sizes_digest(data.train)]
    for kind in ("images", "masks"):
        file = next((root / "eyes" / "left" / kind).iterdir())
        file.write_bytes(file.read_bytes() + b"\0")
        digests.append(data.images.sizes_digest(samples))
    assert len(set(digests)) == 4


# --- together ---------------------------------------------------------------------------------------


def test_image_and_mask_move_together_in_crops_and_flips(root: Path) -> None:
    seen = torch.cat([images for images, _ in epoch(opened(root))])
    for number in range(3):
        for images, masks in epoch(opened(root), scope=("a", number)):
            assert (images.shape[1:], masks.shape[1:]) == ((3, SIZE, SIZE), (SIZE, SIZE))
            assert torch.allclose(images[:, 0], VALUES[masks])
    assert len({image.numpy().tobytes() for image in seen}) == len(seen)


def test_a_whole_photo_and_its_mask_move_together_in_flips_and_turns(tmp_path: Path, register: Register) -> None:
    register()
    for number in range(COUNT):  # of the size of training, so that scaling leaves every pixel as it is
        draw_photo(tmp_path / "eyes" / "left", f"{number}", (SIZE, SIZE), number)
    data = opened(tmp_path, preset="photo")
    still = {mask.numpy().tobytes() for _, masks in whole(data) for mask in masks}
    moved: set[bytes] = set()
    for number in range(3):
        for images, masks in epoch(data, scope=("a", number)):
            assert torch.allclose(images[:, 0], VALUES[masks])
            moved.update(mask.numpy().tobytes() for mask in masks)
    assert len(moved - still) > COUNT, "most are flipped or turned, in each epoch in another way"


def test_photos_are_scaled_as_by_pillow_and_masks_keep_their_classes(tmp_path: Path, register: Register) -> None:
    register()
    for number in range(2):
        draw_photo(tmp_path / "eyes" / "left", f"{number}", (40, 24), number)
    data = opened(tmp_path, preset="photo")
    for sample, image, mask in zip(data.test, *whole(data)[0], strict=True):
        assert isinstance(sample, PairSample)
        with Image.open(tmp_path / "eyes" / sample.file) as drawn:
            channels = [
                np.asarray(part.convert("F").resize((SIZE, SIZE), Image.Resampling.BILINEAR)) for part in drawn.split()
            ]
        assert np.allclose(image.numpy(), np.stack(channels) / 255, atol=1e-4)
        with Image.open(tmp_path / "eyes" / sample.mask) as values:
            nearest = np.asarray(values.resize((SIZE, SIZE), Image.Resampling.NEAREST))
        assert (mask.numpy() == nearest // 100).all()


def whole(data: DomainData, size: int = SIZE) -> Batches:
    return list(evaluation_batches(data, data.test, image_size=size, batch_size=4))


def test_crops_centre_on_foreground_as_often_as_on_background(tmp_path: Path, register: Register) -> None:
    register(classes=("background", "vessel"), mask_values=((0,), (255,)))
    mask = np.zeros((60, 60), dtype=np.uint8)
    mask[40, 40] = 255
    for part in ("images", "masks"):
        (tmp_path / "eyes" / "left" / part).mkdir(parents=True)
        for number in range(40):
            Image.fromarray(mask).save(tmp_path / "eyes" / "left" / part / f"{number}.png")
    hits = sum(int((masks.flatten(1) > 0).any(1).sum()) for _, masks in epoch(opened(tmp_path)))
    assert 11 <= hits <= 32, "36 crops, half of them centred on the one pixel, the others with a small chance"


@pytest.mark.parametrize("value", [0, 200])
def test_a_mask_of_one_class_is_cropped_anywhere(root: Path, value: int) -> None:
    for file in (root / "eyes" / "left" / "masks").iterdir():
        with Image.open(file) as mask:
            Image.new("L", mask.size, value).save(file)
    assert all((masks == (2 if value else 0)).all() for _, masks in epoch(opened(root)))


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


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_threads_change_no_bit(root: Path, preset: str) -> None:
    for number in range(COUNT):
        draw_photo(root / "eyes" / "left", f"{number}", (200, 250), number)  # large enough for threads
    before = torch.get_num_threads()
    found = []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        found.append((epoch(opened(root, preset=preset)), whole(opened(root, preset=preset, image_memory=2**30))))
    torch.set_num_threads(before)
    assert all(equal(one, other) for one, other in zip(*found, strict=True))


def test_seed_and_every_part_of_the_scope_change_the_draws(root: Path) -> None:
    data = opened(root)
    epochs = [epoch(data), epoch(data, seed=2), epoch(data, scope=("b", 0)), epoch(data, scope=("a", 1))]
    assert len({str([images.sum().item() for images, _ in batches]) for batches in epochs}) == 4


def test_epochs_in_one_go_are_those_one_by_one(root: Path) -> None:
    data = opened(root, image_memory=2**20)
    epochs = training_epochs(data, image_size=SIZE, batch_size=4, seed=1, scope=("a", 7), epochs=3, workers=2)
    for number, batches in zip(range(3), epochs, strict=True):
        assert equal(list(batches), epoch(data, scope=("a", 7, number)))


def test_the_global_generators_are_left_alone(root: Path) -> None:
    before, other = torch.get_rng_state(), np.random.get_state(legacy=False)
    epoch(opened(root))
    assert torch.equal(torch.get_rng_state(), before)
    np.testing.assert_equal(np.random.get_state(legacy=False), other)


# --- memory -----------------------------------------------------------------------------------------


def test_the_memory_bounds_what_is_kept_and_kept_images_are_read_once(root: Path) -> None:
    for memory in (0, 30_000, 2**20):
        data = opened(root, image_memory=memory)
        whole(data)
        assert isinstance(data.images, PairFiles)
        sizes = [data.images.bytes_of(sample, SIZE) for sample in data.test]
        kept = [sum(sizes[:count]) for count in range(COUNT + 1) if sum(sizes[:count]) <= memory][-1]
        assert data.images.kept_bytes == kept <= memory
    before = epoch(data)
    for file in (root / "eyes" / "left" / "images").iterdir():
        file.unlink()
    assert equal(before, epoch(data, workers=2)), "training, evaluation and later rounds share what is kept"


def test_the_bytes_are_those_of_the_tensors(root: Path) -> None:
    for preset in ("photo", "photo_patches"):
        data = opened(root, preset=preset)
        image, mask = data.images.evaluation(data.test[:1], SIZE)[0]
        assert isinstance(data.images, PairFiles)
        assert data.images.bytes_of(data.test[0], SIZE) == image.nbytes + mask.nbytes // 4


def test_batches_are_plain_tensors(root: Path) -> None:
    for batches in (epoch(opened(root)), whole(opened(root)), epoch(opened(root, preset="photo"))):
        for images, masks in batches:
            assert (type(images), images.dtype, type(masks), masks.dtype) == (
                torch.Tensor,
                torch.float32,
                torch.Tensor,
                torch.int64,
            )


# --- evaluation and reports -------------------------------------------------------------------------


def test_an_evaluation_has_whole_images_in_order_whatever_their_size(root: Path) -> None:
    data = opened(root)
    batches = whole(data)
    assert [tuple(images.shape) for images, _ in batches] == [(1, 3, 20 + 4 * (n % 3), 36) for n in range(COUNT)]
    for sample, (images, masks) in zip(data.test, batches, strict=True):
        assert isinstance(sample, PairSample)
        with Image.open(root / "eyes" / sample.file) as image, Image.open(root / "eyes" / sample.mask) as mask:
            expected = np.asarray(image).transpose(2, 0, 1).astype(np.float32) / 255
            assert np.allclose(images[0].numpy(), expected, atol=1e-7), "rows are the first axis, as in Pillow"
            assert (masks[0].numpy() == np.asarray(mask) // 100).all()


def test_scaled_images_are_evaluated_in_batches_and_reported_as_evaluated(root: Path) -> None:
    data = opened(root, preset="photo")
    batches = whole(data)
    assert [len(masks) for _, masks in batches] == [4, 4, 2]
    options: dict[str, Any] = {"image_size": SIZE, "batch_size": 4}
    reported = list(reported_batches(data, seed=1, scope=("a",), **options))
    assert equal(reported, list(evaluation_batches(data, data.train, **options)))
    assert not data.images.reports_differ


def test_pixels_of_scaled_photos_have_the_proportions_of_their_files(root: Path) -> None:
    data = opened(root, preset="photo")
    assert isinstance(data.images, PairFiles)
    height, width = data.images.form.size_of(data.images.folder / data.test[0].file)
    assert data.images.spacing(data.test[0], SIZE) is None
    assert data.images.pixel_sides(data.test[0], SIZE) == (height / SIZE, width / SIZE)
    assert opened(root).images.pixel_sides(data.test[0], SIZE) == (1.0, 1.0)


def test_large_images_are_evaluated_a_few_at_a_time(root: Path) -> None:
    data = opened(root, preset="photo")
    assert [len(masks) for _, masks in whole(data, 512)] == [4, 4, 2]
    assert [len(masks) for _, masks in whole(data, 700)] == [2] * 5


def test_reports_have_one_seeded_crop_of_each_image(root: Path) -> None:
    data = opened(root)
    options: dict[str, Any] = {"image_size": SIZE, "batch_size": 64, "seed": 1}
    images, masks = next(iter(reported_batches(data, scope=("a",), **options)))
    assert (images.shape, masks.shape) == ((len(data.train), 3, SIZE, SIZE), (len(data.train), SIZE, SIZE))
    assert equal([(images, masks)], list(reported_batches(data, scope=("a",), workers=2, **options)))
    assert not equal([(images, masks)], list(reported_batches(data, scope=("b",), **options)))
    assert data.images.reports_differ


# --- files ------------------------------------------------------------------------------------------


def form(**changes: Any) -> PairForm:
    return replace(PairForm(3, 2, {0: 0, 100: 1, 110: 1, 200: 2}), **changes)


def saved(path: Path, image: Image.Image, **options: Any) -> Path:
    image.save(path, **options)
    return path


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".tif"])
def test_photographs_are_read_as_pillow_reads_them(tmp_path: Path, suffix: str) -> None:
    draw_photo(tmp_path, "a", suffix=suffix)
    path, mask = tmp_path / "images" / f"a{suffix}", tmp_path / "masks" / "a.png"
    pixels, classes = form().read(path, mask)
    with Image.open(path) as image:
        assert (pixels == np.asarray(image).transpose(2, 0, 1)).all()
    with Image.open(mask) as values:
        assert (classes[0] == np.asarray(values) // 100).all()
    assert (pixels.dtype, classes.dtype) == (np.dtype(np.float32), np.dtype(np.int16))
    assert form().spacing_of(path) is None
    assert form().size_of(path) == (24, 20)


def test_grey_images_are_repeated_colours_become_grey_and_transparency_is_dropped(tmp_path: Path) -> None:
    drawn = np.random.default_rng(0).integers(0, 256, (6, 5, 4), dtype=np.uint8)
    mask = saved(tmp_path / "mask.png", Image.new("L", (5, 6), 110))
    grey = saved(tmp_path / "grey.png", Image.fromarray(drawn[..., 0]))
    clear = saved(tmp_path / "clear.png", Image.fromarray(drawn))
    deep = saved(tmp_path / "deep.png", Image.fromarray(drawn[..., 0].astype(np.uint16) * 256 + 7))
    assert (form().read(grey, mask)[0] == drawn[..., 0]).all()
    assert (form().read(clear, mask)[0] == drawn[..., :3].transpose(2, 0, 1)).all()
    assert (form(channels=1).read(deep, mask)[0] == drawn[..., 0]).all()
    assert form(channels=1).read(clear, mask)[0].shape == (1, 6, 5)


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


@pytest.mark.parametrize(("suffix", "channels"), [(".png", 2), (".png", 3), (".png", 4), (".tif", 3)])
def test_a_mask_of_several_channels_of_16_bits_is_refused_and_not_read_as_empty(
    tmp_path: Path, suffix: str, channels: int
) -> None:
    drawn = np.random.default_rng(0).integers(0, 2, (6, 5, 1)).astype(np.uint16)
    mask = save_deep(tmp_path / f"mask{suffix}", np.repeat(drawn, channels, axis=2))
    with pytest.raises(MaskError, match="several channels of 16 bits, expected one, or channels of 8 bits"):
        form(class_of_value={0: 0, 1: 1}).mask(mask)


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


@pytest.mark.parametrize("part", ["image", "mask"])
def test_a_damaged_png_is_refused_and_not_read_in_part(tmp_path: Path, part: str) -> None:
    drawn = np.where(np.random.default_rng(0).random((64, 64)) < 0.5, 110, 0).astype(np.uint8)
    files = {name: saved(tmp_path / f"{name}.png", Image.fromarray(drawn)) for name in ("image", "mask")}
    assert form().read(**files)[0].shape == (3, 64, 64)
    content = bytearray(files[part].read_bytes())
    begin = content.index(b"IDAT") + 4
    for place in range(begin + 100, begin + 140):
        content[place] ^= 0xFF
    files[part].write_bytes(content)
    with pytest.raises(DataError, match="cannot be read"):
        form().read(**files)


def test_a_file_with_another_suffix_is_read_by_its_content_and_by_few_readers_only(tmp_path: Path) -> None:
    mask = saved(tmp_path / "mask.png", Image.new("L", (5, 6)))
    assert form().read(saved(tmp_path / "a.png", Image.new("RGB", (5, 6), 7), format="TIFF"), mask)[0].max() == 7
    for format_ in ("PPM", "EPS", "GIF"):
        other = saved(tmp_path / "b.png", Image.new("L", (5, 6)), format=format_)
        with pytest.raises(DataError, match=r"cannot be read .*expected an undamaged JPEG, PNG, TIFF"):
            form().read(other, mask)


def test_a_tiff_of_several_pages_is_refused(tmp_path: Path) -> None:
    page = Image.new("L", (5, 6))
    stack = saved(tmp_path / "a.tif", page, save_all=True, append_images=[page])
    with pytest.raises(DataError, match="has 2 pages; expected one"):
        form().read(stack, stack)


# --- NIfTI ------------------------------------------------------------------------------------------


def nifti(folder: Path, size: tuple[int, ...], **options: Any) -> tuple[Path, Path, np.ndarray]:
    image, mask = folder / "image.nii.gz", folder / "mask.nii"
    return image, mask, draw_volume(image, mask, size, **options)


VOLUMES = PairForm(1, 3, {0: 0, 1: 1, 2: 2})


def test_volumes_keep_their_values_and_spacing(tmp_path: Path) -> None:
    image, mask, classes = nifti(tmp_path, (6, 5, 4))
    pixels, found = VOLUMES.read(image, mask)
    assert (pixels.shape, VOLUMES.size_of(image)) == ((1, 6, 5, 4), (6, 5, 4))
    assert (found[0] == classes).all()
    assert (pixels[0] == 100 + 50 * classes).all()
    assert VOLUMES.spacing_of(image) == pytest.approx((0.5, 0.6, 3.0))


@pytest.mark.parametrize(("code", "millimetres"), [(0, 1.0), (2, 1.0), (3, 0.001), (1, 1000.0), (7, 1.0), (2 + 8, 1.0)])
def test_the_spacing_is_in_millimetres_whatever_the_unit_of_the_header(
    tmp_path: Path, code: int, millimetres: float
) -> None:
    image = nibabel.Nifti1Image(np.zeros((4, 3, 2), dtype=np.uint8), np.diag([0.5, 0.25, 3.0, 1.0]))
    image.header["xyzt_units"] = code
    nibabel.save(image, tmp_path / "a.nii.gz")
    assert VOLUMES.spacing_of(tmp_path / "a.nii.gz") == pytest.approx(
        (0.5 * millimetres, 0.25 * millimetres, 3.0 * millimetres)
    )


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


def test_slices_may_have_a_third_axis_of_one(tmp_path: Path) -> None:
    slices = replace(VOLUMES, dims=2)
    for size in ((6, 5), (6, 5, 1)):
        image, mask, classes = nifti(tmp_path, size)
        assert (slices.read(image, mask)[1][0] == classes.reshape(6, 5)).all()
        assert slices.spacing_of(image) == pytest.approx((0.5, 0.6))


def test_a_volume_is_no_slice_and_a_photograph_no_volume(tmp_path: Path) -> None:
    image, mask, _ = nifti(tmp_path, (6, 5, 4))
    with pytest.raises(DataError, match=r"has the shape \(6, 5, 4\); expected 2 axes and 1 channels"):
        replace(VOLUMES, dims=2).read(image, mask)
    photo = saved(tmp_path / "a.png", Image.new("L", (5, 6)))
    with pytest.raises(DataError, match=r"has the shape \(6, 5\); expected 3 axes") as caught:
        VOLUMES.read(photo, photo)
    assert caught.value.public == "an image of the split has another number of axes or channels than the data set."


def test_the_values_of_a_mask_of_one_bit_are_numbers(tmp_path: Path) -> None:
    mask = saved(tmp_path / "mask.png", Image.new("1", (5, 6), 1))
    with pytest.raises(MaskError, match="the values 1, expected only 0, 100, 110, 200"):
        form().mask(mask)


def test_a_value_that_is_nearly_a_class_is_named_with_all_its_digits(tmp_path: Path) -> None:
    image, mask, _ = nifti(tmp_path, (8, 7, 3))
    nearly = np.zeros((8, 7, 3))
    nearly[0, 0] = 1 - 1e-9
    nibabel.save(nibabel.Nifti1Image(nearly, np.diag([0.5, 0.6, 3.0, 1.0])), mask)
    with pytest.raises(MaskError, match=r"the values 0\.999999999, expected only 0, 1, 2"):
        form(dims=3, channels=1, class_of_value={0: 0, 1: 1, 2: 2}).read(image, mask)


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
        with pytest.raises(DataError, match="has 120 voxels; expected at most 119"):
            replace(VOLUMES, max_pixels=119).read(path, mask)


def test_volumes_are_trained_on_in_crops_and_evaluated_whole(tmp_path: Path, register: Register) -> None:
    register(dims=3, channels=1, mask_values=(), preset="mri_patches")
    for number in range(4):
        names = [tmp_path / "eyes" / "left" / part / f"{number}.nii.gz" for part in ("images", "masks")]
        draw_volume(names[0], names[1], (20, 18, 10 + number), number)
    data = open_domain(tmp_path, "eyes", "left", seed=0, image_memory=2**20)
    check_images(data)
    for images, masks in epoch(data, workers=2):
        assert (images.shape[1:], masks.shape[1:]) == ((1, SIZE, SIZE, SIZE), (SIZE,) * 3)
        inside = images[:, 0] != 0  # padding is zero
        order = torch.stack([images[:, 0][inside & (masks == number)].mean() for number in range(3)])
        assert order[0] < order[1] < order[2], "the brighter, the higher the class"
    assert [tuple(images.shape[2:]) for images, _ in whole(data)] == [(20, 18, 10 + number) for number in range(4)]
    assert data.images.spacing(data.test[0], SIZE) == pytest.approx((0.5, 0.6, 3.0))


def test_scaling_changes_the_spacing(tmp_path: Path, register: Register) -> None:
    register(channels=1, mask_values=())
    for number in range(2):
        names = [tmp_path / "eyes" / "left" / part / f"{number}.nii" for part in ("images", "masks")]
        draw_volume(names[0], names[1], (32, 8), number)
    data = open_domain(tmp_path, "eyes", "left", seed=0)
    assert data.images.spacing(data.test[0], SIZE) == pytest.approx((1.0, 0.3))
    assert data.images.pixel_sides(data.test[0], SIZE) == pytest.approx((1.0, 0.3))
    assert whole(data)[0][0].shape == (2, 1, SIZE, SIZE)


# --- presets ----------------------------------------------------------------------------------------


def test_standardised_is_monais_normalisation() -> None:
    from monai.transforms import NormalizeIntensity

    image = torch.randn(2, 9, 8, 7, generator=torch.Generator().manual_seed(0)) * 30 + 100
    image[:, :3] = 0
    image[1] = 0
    expected = NormalizeIntensity(nonzero=True, channel_wise=True)(image.clone())
    assert torch.allclose(standardised(image), torch.as_tensor(expected), atol=1e-5)
    assert standardised(image).dtype == torch.float32


def test_ct_has_the_stated_window() -> None:
    fixed = PRESETS["ct_patches"].fixed(SIZE)
    image = torch.tensor([[[-1000.0, -175.0], [37.5, 900.0]]])
    made = fixed({"image": image, "mask": torch.zeros(1, 2, 2, dtype=torch.int16)})["image"]
    assert torch.allclose(made, torch.tensor([[[0.0, 0.0], [0.5, 1.0]]]))


@pytest.mark.parametrize(
    ("preset", "changes", "message"),
    [
        ("foto", {}, "is 'foto', expected one of: photo, photo_patches, mri_patches, ct_patches"),
        ("photo", {"dims": 3}, "is 'photo', but the images of eyes have 3 axes; expected one of: mri_patches, ct_p"),
        ("", {"preset": "none"}, "is 'none', expected one of"),
    ],
)
def test_an_unknown_or_impossible_preset_lists_the_others(preset: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        check_preset(preset, eyes(**changes))


def test_only_segmentation_has_presets() -> None:
    check_preset("", dataset_spec("pacs"))
    with pytest.raises(SettingsError, match="'photo', but pacs is not a data set for segmentation"):
        make_plans({"preset": "photo"}, {}, {}, [])


@pytest.mark.slow
def test_nothing_is_imported_before_it_is_needed() -> None:
    code = (
        "import sys; import fdg_plugins.data, fdg_plugins.training.session, fdg_plugins.plans.plans as plans\n"
        "from fdg_plugins.data import check_preset, dataset_spec; check_preset('photo', dataset_spec('vessels'))\n"
        "assert not {'monai', 'nibabel'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


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


@pytest.mark.parametrize("memory", [0, 10**6])
def test_a_file_that_our_readers_cannot_decode_is_offered_to_none_of_monais(
    root: Path, memory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    import monai.data

    for name in ("PILReader", "NibabelReader", "NumpyReader", "NrrdReader", "ITKReader", "PydicomReader"):
        monkeypatch.setattr(getattr(monai.data, name), "read", lambda *_: pytest.fail("another reader"))
    data = opened(root, image_memory=memory)
    (root / "eyes" / data.train[0].file).write_bytes(b"no image")
    with pytest.raises(DataError, match="cannot be read"):
        epoch(data)
