# SPDX-License-Identifier: Apache-2.0
"""Truth and prediction on drawn images: the numbers are those of a loop over pixels, the image is the one they name."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import nibabel
import numpy as np
import pytest
import torch
from PIL import Image

from fdg_plugins.data import DATASETS, SegmentationSpec, dataset_spec, evaluation_batches, open_domain
from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.lab.analysis import Run
from fdg_plugins.lab.analysis.distances import hausdorff95
from fdg_plugins.lab.analysis.figures import Overlays, Request, make_pictures
from fdg_plugins.lab.analysis.figures.overlays import cases_of, check_has_masks, displayed, fullest_slice, outcomes_of
from fdg_plugins.lab.analysis.figures.picture import Outcome
from fdg_plugins.messages import Evaluation
from fdg_plugins.models import ExtractorClassifier, build_model
from fdg_plugins.storage import save_tensors
from fdg_plugins.tasks import SEGMENTATION
from fdg_plugins.tasks.segmentation import Segmentation
from tests.figures.figure_stubs import census_reply, figure_run, judged, keep

SELECTED = "global_model_selected.safetensors"
TARGET, OTHERS = "drive", ("chase_db1", "hrf")
SIZE, IMAGES = 32, 5
OUTCOMES = ("true_positives", "false_positives", "false_negatives")
Loop = tuple[int, int, int]

CUPS = SegmentationSpec(
    name="cups",
    folder="cups",
    title="Cups",
    reference="drawn",
    domains=(TARGET, *OTHERS),
    classes=("background", "cup", "disc"),
    channels=1,
    dims=3,
    preset="mri_patches",
)


def draw_vessels(folder: Path, count: int = IMAGES) -> None:
    """Draw photographs of 40 x 60 pixels with a line, darker than its surroundings; the last one has none."""
    for part in ("images", "masks"):
        (folder / part).mkdir(parents=True)
    for number in range(count):
        mask = np.zeros((40, 60), dtype=np.uint8)
        mask[5 * number : 5 * number + 4, 3:] = 255 * (number < count - 1)
        noise = np.random.default_rng(number).integers(100, 200, (40, 60, 3), dtype=np.uint8)
        Image.fromarray(noise - mask[..., np.newaxis] // 4).save(folder / "images" / f"{number:02d}.png")
        Image.fromarray(mask).save(folder / "masks" / f"{number:02d}.png")


def draw_cups(folder: Path, count: int = 3) -> None:
    """Draw volumes of 16 x 12 x 8 voxels of 0.5 x 0.6 x 3 mm with two kinds of foreground, most of it in slice 5."""
    for part in ("images", "masks"):
        (folder / part).mkdir(parents=True)
    for number in range(count):
        mask = np.zeros((16, 12, 8), dtype=np.uint8)
        mask[2:6, 3:9, 4:7], mask[8:12, 3 : 6 + number, 5] = 1, 2
        noise = np.random.default_rng(number).normal(10.0, 2.0, mask.shape).astype(np.float32)
        for part, values in (("images", noise + 20 * mask), ("masks", mask)):
            file = folder / part / f"{number:02d}.nii.gz"
            nibabel.save(nibabel.Nifti1Image(values, np.diag([0.5, 0.6, 3.0, 1.0])), file)


def network(dataset: str = "vessels") -> ExtractorClassifier:
    """Return an untrained network, with the classifier's bias removed, so that it finds every class somewhere."""
    spec = dataset_spec(dataset)
    model = build_model("monai_unet", len(spec.classes), seed=3, channels=spec.channels, dims=spec.dims)
    model.last_layer.bias.data.zero_()
    return model


def scored(classes: int) -> Evaluation:
    """Return an evaluation on ten images, which no figure of overlays reads."""
    voxels = [f"{kind}_{number}" for kind in OUTCOMES for number in range(1, classes)]
    sums = {"dice": {"sum": 5.0, "count": 10}, **{name: {"sum": 1.0, "count": 1000} for name in voxels}}
    return Evaluation(split="validation", loss=1.0, count=10, sums=sums)


def make_run(folder: Path, root: Path, dataset: str = "vessels", **protocol: Any) -> Run:
    """Write a run with its model into ``folder``; its census counted the held-out images in ``root``."""
    spec = dataset_spec(dataset)
    fields = {"dataset": dataset, "task": "segmentation", "model": "monai_unet", "image_size": SIZE, **protocol}
    data = open_domain(root, dataset, TARGET, seed=0)
    given = {"split": data.split, "split_hash": data.split_hash, "dataset": dataset, "classes": spec.classes}
    sites = (TARGET, *OTHERS)
    census = {
        site: census_reply(site, 0, class_counts=(5,) * len(spec.classes), **(given if site == TARGET else {}))
        for site in sites
    }
    run = figure_run(
        target=TARGET,
        scores=[dict.fromkeys(sites, scored(len(spec.classes)))],
        protocol=fields,
        domains={site: site for site in sites},
        census=census,
        classes=spec.classes,
        data=spec.title,
    )
    kept = keep(run, folder)
    save_tensors(folder / SELECTED, network(dataset).state_dict())
    return kept


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("drawn")
    draw_vessels(folder / "vessels" / TARGET)
    return folder


@pytest.fixture(scope="module")
def run(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run on drawn vessels; not to be written to."""
    return make_run(tmp_path_factory.mktemp("segmented") / "run", root)


def overlays_of(run: Run, root: Path) -> Overlays:
    (picture,) = make_pictures("overlays", [run], Request(data_root=root))
    assert isinstance(picture, Overlays)
    return picture


@pytest.fixture(scope="module")
def picture(run: Run, root: Path) -> Overlays:
    return overlays_of(run, root)


def predicted(root: Path, dataset: str, **loading: int) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Yield image, truth and prediction of every held-out image, by the network itself."""
    model = network(dataset).eval()
    data = open_domain(root, dataset, TARGET, seed=0)
    options: dict[str, Any] = {"image_size": SIZE, "batch_size": 2, **loading}
    for images, truths in evaluation_batches(data, data.test, **options):
        with torch.inference_mode():
            found = SEGMENTATION.logits(model, images, options["image_size"]).argmax(dim=-1)
        yield from zip(images, truths, found, strict=True)


def dice_of(truth: torch.Tensor, found: torch.Tensor) -> float:
    """Return the Dice of two masks that are not both empty."""
    return 2 * int((truth & found).sum()) / int(truth.sum() + found.sum())


def counted(truth: torch.Tensor, found: torch.Tensor) -> Loop:
    """Return true positives, false positives and false negatives, pixel by pixel."""
    right = wrong = missed = 0
    for place in itertools.product(*map(range, truth.shape)):
        true, other = int(truth[place]), int(found[place])
        if true > 0 and other == true:
            right += 1
        elif other > 0:
            wrong += 1
        elif true > 0:
            missed += 1
    return right, wrong, missed


def test_the_scores_of_all_images_are_those_of_a_loop_over_pixels(picture: Overlays, root: Path) -> None:
    looked_at = list(predicted(root, "vessels"))
    assert len(picture.images) == len(looked_at) == IMAGES
    assert [image.file for image in picture.images] == [f"{TARGET}/images/{number:02d}.png" for number in range(IMAGES)]
    for image, (_, truth, found) in zip(picture.images, looked_at, strict=True):
        right, wrong, missed = counted(truth, found)
        assert (image.true_positives, image.false_positives, image.false_negatives) == (right, wrong, missed)
        assert image.dice == pytest.approx(2 * right / (2 * right + wrong + missed))
        assert image.hausdorff95 == pytest.approx(hausdorff95(found == 1, truth == 1))
    assert len({image.dice for image in picture.images}) == IMAGES
    assert picture.images[-1].dice == 0.0  # no vessel there, but some found
    assert picture.unit == "pixels"


def test_the_best_the_median_and_the_worst_are_shown_with_the_outcome_of_each_pixel(
    picture: Overlays, root: Path
) -> None:
    ranked = sorted(picture.images, key=lambda image: image.dice, reverse=True)
    assert [shown.file for shown in picture.shown] == [ranked[place].file for place in (0, IMAGES // 2, IMAGES - 1)]
    looked_at = dict(zip([image.file for image in picture.images], predicted(root, "vessels"), strict=True))
    dices = {image.file: image.dice for image in picture.images}
    for shown, case in zip(picture.shown, ("best", "median", "worst"), strict=True):
        image, truth, found = looked_at[shown.file]
        assert (shown.case, shown.label) == (case, f"{case}: Dice {100 * dices[shown.file]:.1f} %")
        np.testing.assert_allclose(shown.pixels, 255 * image.movedim(0, -1).numpy(), atol=0.51)
        for outcome, count in zip(list(Outcome)[1:], counted(truth, found), strict=True):
            assert int((shown.outcomes == outcome).sum()) == count
        np.testing.assert_array_equal(shown.outcomes == Outcome.TRUE_POSITIVE, ((truth == 1) & (found == 1)).numpy())
        assert shown.ratio == pytest.approx(40 / 60)  # the photographs are scaled to squares


def test_images_that_the_held_out_site_left_out_are_left_out(tmp_path: Path) -> None:
    draw_vessels(tmp_path / "vessels" / TARGET)
    damaged = f"{TARGET}/images/01.png"
    (tmp_path / "vessels" / damaged).write_bytes(b"no image")
    kept = make_run(tmp_path / "run", tmp_path)
    with pytest.raises(DataError, match="cannot be read"):
        overlays_of(kept, tmp_path)
    left = open_domain(tmp_path, "vessels", TARGET, seed=0, left_out=[damaged])
    told = {"split": left.split, "split_hash": left.split_hash, "num_damaged": 1}
    census = {**kept.record.census, TARGET: kept.record.census[TARGET].model_copy(update=told)}
    run = replace(kept, record=kept.record.model_copy(update={"census": census}))
    assert [image.file for image in overlays_of(run, tmp_path).images] == [sample.file for sample in left.test]


def test_the_limit_of_pixels_can_be_set(run: Run, root: Path) -> None:
    with pytest.raises(DataError, match="has 2,400 pixels; expected at most 2,399"):
        make_pictures("overlays", [run], Request(data_root=root, max_pixels=2399))
    assert make_pictures("overlays", [run], Request(data_root=root, max_pixels=2400))


def test_the_caption_names_domain_method_rule_round_images_and_distances(picture: Overlays) -> None:
    distances = {image.file: image.hausdorff95 for image in picture.images}
    listed = ", ".join(f"{distances[shown.file]:.1f} ({shown.case})" for shown in picture.shown)
    assert picture.title == "Segmentation of the held-out domain drive, FedAvg"
    assert picture.caption.endswith(
        "one seed (0); FedAvg; 5 images of the held-out domain drive; global model after round 0, "
        f"selection: source validation, mean; HD95 {listed} pixels"
    )


def test_the_same_run_gives_the_same_numbers(picture: Overlays, run: Run, root: Path) -> None:
    again = overlays_of(run, root)
    assert again.images == picture.images
    for one, other in zip(again.shown, picture.shown, strict=True):
        np.testing.assert_array_equal(one.outcomes, other.outcomes)


@pytest.fixture
def cups(tmp_path: Path) -> Iterator[Path]:
    """The folder of a data set of volumes with two foreground classes."""
    DATASETS.add(CUPS)
    draw_cups(tmp_path / "cups" / TARGET)
    yield tmp_path
    DATASETS.remove(CUPS.name)


def test_volumes_of_several_classes_show_their_fullest_slice_upright_and_distances_in_mm(cups: Path) -> None:
    picture = overlays_of(make_run(cups / "run", cups, "cups", image_size=16), cups)
    looked_at = list(predicted(cups, "cups", image_size=16))
    for image, (_, truth, found) in zip(picture.images, looked_at, strict=True):
        assert (image.true_positives, image.false_positives, image.false_negatives) == counted(truth, found)
        each = [hausdorff95(found == number, truth == number, (0.5, 0.6, 3.0)) for number in (1, 2)]
        assert image.hausdorff95 == pytest.approx(sum(each) / 2)
        assert image.dice == pytest.approx(sum(dice_of(truth == number, found == number) for number in (1, 2)) / 2)
    assert picture.unit == "mm"
    assert "a wrong foreground class is a false positive; of each volume, the slice with most" in picture.caption
    shown = picture.shown[0]
    _, truth, found = looked_at[[image.file for image in picture.images].index(shown.file)]
    assert shown.outcomes.shape == (12, 16)
    assert shown.pixels.shape == (12, 16, 3)
    assert shown.ratio == pytest.approx(0.6 / 0.5)
    for x, y in itertools.product(range(16), range(12)):
        assert shown.outcomes[11 - y, x] == outcomes_of(truth[x, y, 5], found[x, y, 5])


def test_every_pixel_has_one_outcome() -> None:
    truth, found = torch.tensor([[0, 0, 1], [1, 1, 2]]), torch.tensor([[0, 2, 0], [1, 2, 1]])
    none, right, wrong, missed = Outcome
    assert outcomes_of(truth, found).tolist() == [[none, wrong, missed], [right, wrong, wrong]]


@pytest.mark.parametrize(
    ("dices", "expected"),
    [
        ((0.3,), {"only": 0}),
        ((0.3, 0.4), {"best": 1, "worst": 0}),
        ((0.3, 0.4, 0.1), {"best": 1, "median": 0, "worst": 2}),
        ((0.3, 0.4, 0.1, 0.2), {"best": 1, "median": 3, "worst": 2}),  # the worse of two in the middle
        ((0.5, 0.5, 0.5, 0.5, 0.5), {"best": 0, "median": 2, "worst": 4}),
    ],
)
def test_cases_are_images_by_rank(dices: tuple[float, ...], expected: dict[str, int]) -> None:
    assert cases_of(dices) == expected


def test_a_volume_without_true_foreground_shows_what_was_found() -> None:
    truth, found = torch.zeros(2, 4, 4, 5, dtype=torch.int64)
    found[0, 0, 3] = 2
    assert (fullest_slice(truth, found), fullest_slice(truth, truth)) == (3, 0)
    truth[1, 1, 1] = 1
    assert fullest_slice(truth, found) == 1


def test_intensities_without_a_black_are_stretched_and_grey_is_shown_in_three_channels() -> None:
    ramp = torch.linspace(-3.0, 7.0, 200).reshape(1, 10, 20)
    pixels = displayed(ramp)
    assert pixels.shape == (10, 20, 3)
    assert (pixels.min(), pixels.max()) == (0, 255)
    assert (pixels == pixels[..., :1]).all()
    np.testing.assert_array_equal(displayed(torch.full((1, 2, 2), 0.2)), np.full((2, 2, 3), 51))
    assert displayed(torch.full((2, 2, 2), 9.0)).max() == 0


def test_a_task_of_ones_own_that_is_a_segmentation_has_masks() -> None:
    class Strict(Segmentation):
        pass

    check_has_masks(cast(Run, SimpleNamespace(folder=Path("run"), record=SimpleNamespace(task=Strict(name="strict")))))


def test_a_run_of_another_task_and_several_runs_are_refused(run: Run, root: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="learned the task 'classification', expected 'segmentation', whose masks"):
        overlays_of(keep(figure_run(scores=[{"photo": judged()}]), tmp_path / "other"), root)
    with pytest.raises(SettingsError, match="a figure of the kind overlays is of one run, but there are 2"):
        make_pictures("overlays", [run, replace(run, folder=tmp_path)], Request(data_root=root))


def test_a_model_that_is_not_finite_is_named_with_the_image(root: Path, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", root)
    save_tensors(run.folder / SELECTED, {**network().state_dict(), "classifier.bias": torch.full((2,), torch.nan)})
    with pytest.raises(DataError, match=r"after round 0 are not finite for drive/images/00\.png"):
        overlays_of(run, root)
