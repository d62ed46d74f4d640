# SPDX-License-Identifier: Apache-2.0
"""The loss surface of a small network on small images: what it shows is what the models themselves give."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fdg_plugins.data import evaluation_batches, open_domain
from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.lab.analysis import Run
from fdg_plugins.lab.analysis.figures import Request, Surface, make_pictures
from fdg_plugins.lab.analysis.figures.surface import GLOBAL, grid_around
from fdg_plugins.models import build_model
from fdg_plugins.storage import load_tensors, save_tensors
from fdg_plugins.training.loop import DevicePolicy, evaluate
from tests.figures.figure_stubs import keep

SOURCES = ("art_painting", "cartoon", "sketch")


def surface_of(run: Run, data_root: Path | None, **request: Any) -> Surface:
    asked = Request(**{"data_root": data_root, "points": 3, "samples": 7, **request})
    (surface,) = make_pictures("surface", [run], asked)
    assert isinstance(surface, Surface)
    return surface


@pytest.fixture(scope="module")
def surface(trained_run: Run, data_root: Path) -> Surface:
    return surface_of(trained_run, data_root, points=5, samples=1000)


def own_loss(run: Run, data_root: Path, file: str) -> tuple[float, float]:
    """Return loss and error on all images of the held-out domain of the model in a file of the run."""
    model = build_model("convnet", 7, seed=0)
    model.load_state_dict(load_tensors(run.folder / file))
    data = open_domain(data_root, "pacs", "photo", seed=0)
    batches = evaluation_batches(data, data.test, image_size=16, batch_size=5)
    score = evaluate(model, batches, DevicePolicy(torch.device("cpu")), lambda: False)
    return score.loss, 1.0 - score.value("accuracy")


def test_the_three_corners_and_the_global_model_have_their_own_loss_and_error(
    surface: Surface, trained_run: Run, data_root: Path
) -> None:
    assert [model.label for model in surface.models] == [*SOURCES, GLOBAL]
    assert surface.loss_words == "loss (cross entropy)"
    files = [*(f"local_models/{site}.safetensors" for site in SOURCES), "global_model.safetensors"]
    for model, file in zip(surface.models, files, strict=True):
        assert (model.loss, model.error) == pytest.approx(own_loss(trained_run, data_root, file), rel=1e-4)


def test_a_mean_of_the_three_lies_in_the_plane_and_amid_them(surface: Surface) -> None:
    *corners, middle = surface.models
    assert middle.x == pytest.approx(sum(corner.x for corner in corners) / 3, rel=1e-5)
    assert middle.y == pytest.approx(sum(corner.y for corner in corners) / 3, rel=1e-5)
    assert middle.distance < 1e-4 * corners[1].x
    assert "28 images; after the last round; the global model lies" in surface.caption


def test_the_grid_covers_the_models_with_a_margin_and_is_even(surface: Surface) -> None:
    assert len(surface.x) == len(surface.y) == len(surface.loss) == len(surface.error[0]) == 5
    for axis, values in ((0, surface.x), (1, surface.y)):
        places = [(model.x, model.y)[axis] for model in surface.models]
        assert values[0] < min(places) < max(places) < values[-1]
        assert np.ptp(np.diff(values)) == pytest.approx(0.0, abs=1e-9)
    assert np.isfinite(surface.loss).all()
    assert 0 <= np.min(surface.error) <= np.max(surface.error) <= 1


def test_a_grid_that_has_the_corners_on_it_shows_their_loss(
    trained_run: Run, data_root: Path, surface: Surface
) -> None:
    corner = surface.models[1]
    grid = grid_around([(0.0, 0.0), (corner.x, 0.0), (0.0, corner.x)], 7)
    # With a margin of a quarter on each side, places 1 and 5 of 7 are those of the corners.
    assert (grid.x[1], grid.x[5], grid.y[1]) == pytest.approx((0.0, corner.x, 0.0), abs=1e-9)


def test_the_same_request_gives_the_same_numbers_and_the_steps_are_handed_out(
    trained_run: Run, data_root: Path
) -> None:
    seen: list[tuple[str, int]] = []

    def track(items: list[tuple[float, float]], what: str, total: int) -> list[tuple[float, float]]:
        seen.append((what, total))
        return items

    first, second = (surface_of(trained_run, data_root, track=track) for _ in range(2))
    assert first == second
    assert seen == [("evaluating the surface", 9)] * 2
    assert "; 7 images;" in first.caption


def test_other_corners_are_taken_in_the_order_named(trained_run: Run, data_root: Path) -> None:
    found = surface_of(trained_run, data_root, sites=("sketch", "art_painting", "cartoon"))
    assert [model.label for model in found.models] == ["sketch", "art_painting", "cartoon", GLOBAL]
    assert (found.models[0].x, found.models[0].y, found.models[1].y) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("sites", "reason"),
    [
        (("sketch", "cartoon"), "--sites names sketch, cartoon; expected three sites of art_painting, cartoon, sketch"),
        (("sketch", "cartoon", "cartoon"), "--sites names sketch, cartoon, cartoon; expected three sites"),
        (("sketch", "cartoon", "photo"), "site 'photo' .--sites. has no local model; expected three of"),
    ],
)
def test_sites_that_are_not_three_with_a_model_are_refused(
    trained_run: Run, data_root: Path, sites: tuple[str, ...], reason: str
) -> None:
    with pytest.raises(SettingsError, match=reason):
        surface_of(trained_run, data_root, sites=sites)


def test_a_run_without_local_models_says_how_to_keep_them(own_run: Run, data_root: Path) -> None:
    shutil.rmtree(own_run.folder / "local_models")
    with pytest.raises(DataError, match=r"kept no local models: expected them in .*local_models\.$"):
        surface_of(own_run, data_root)
    protocol = own_run.record.protocol.model_copy(update={"keep_local_models": False})
    without = Run(own_run.folder, own_run.record.model_copy(update={"protocol": protocol}))
    with pytest.raises(DataError, match="kept no local models: set keep_local_models=true"):
        surface_of(without, data_root)


def test_two_local_models_make_no_plane(own_run: Run, data_root: Path) -> None:
    (own_run.folder / "local_models/sketch.safetensors").unlink()
    with pytest.raises(DataError, match="kept the local models of art_painting, cartoon; a plane needs three"):
        surface_of(own_run, data_root)


def test_a_missing_global_model_and_a_file_of_another_network_are_named(own_run: Run, data_root: Path) -> None:
    save_tensors(own_run.folder / "local_models/sketch.safetensors", {"weight": torch.zeros(2)})
    with pytest.raises(DataError, match=r"sketch.safetensors does not hold convnet: parameter '.*' has shape"):
        surface_of(own_run, data_root)
    (own_run.folder / "global_model.safetensors").unlink()
    shutil.copy(own_run.folder / "local_models/cartoon.safetensors", own_run.folder / "local_models/sketch.safetensors")
    with pytest.raises(DataError, match=r"kept no global_model.safetensors; expected it beside the record"):
        surface_of(own_run, data_root)


def test_a_run_on_real_images_needs_a_data_root_and_one_that_holds_its_images(
    trained_run: Run, data_root: Path, own_data_root: Path, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match="was made on PACS, and no data root is named; expected --data-root or"):
        surface_of(trained_run, None)
    with pytest.raises(DataError, match="is not a folder"):
        surface_of(trained_run, tmp_path / "nowhere")
    next((own_data_root / "pacs/photo/dog").iterdir()).unlink()
    with pytest.raises(DataError, match=r"domain photo below .* has the split .* but run .* had pacs/90-10@0"):
        surface_of(trained_run, own_data_root)


def test_a_run_on_the_stand_in_refuses_real_images(own_run: Run, data_root: Path) -> None:
    drawn = own_run.record.model_copy(update={"stand_in": True, "data": "STAND-IN for PACS"})
    with pytest.raises(DataError, match=r"was made on STAND-IN for PACS, but data root .* holds images of PACS"):
        surface_of(replace(own_run, record=drawn), data_root)


def test_a_surface_is_of_one_run(trained_run: Run, data_root: Path, tmp_path: Path) -> None:
    other = keep(trained_run, tmp_path / "other")
    with pytest.raises(SettingsError, match="a figure of the kind surface is of one run, but there are 2"):
        make_pictures("surface", [trained_run, other], Request(data_root=data_root))
