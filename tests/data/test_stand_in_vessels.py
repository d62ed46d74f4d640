# SPDX-License-Identifier: Apache-2.0
"""The stand-in for the retinal vessels: its pictures and masks, its folders, and that it is what a site finds."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fdg_plugins.data import DataRoot, find_data_root, stand_in_vessels
from fdg_plugins.data.catalogue import VESSELS
from fdg_plugins.data.mask_facts import mask_facts
from fdg_plugins.data.pairs import list_pairs
from fdg_plugins.data.stand_in_files import MARKER, is_stand_in
from fdg_plugins.data.stand_in_trees import EDGE, STEP, grow, optic_disc
from fdg_plugins.data.stand_in_vessels import draw_pair, ensure_vessels, vessels_root, write_vessels
from fdg_plugins.errors import DataError
from fdg_plugins.lab.preparation import open_source, prepare
from fdg_plugins.randomness import numpy_generator


def pixels(domain: str, index: int) -> tuple[np.ndarray, np.ndarray]:
    image, mask = draw_pair(domain, index)
    return np.asarray(image, dtype=np.float64), np.asarray(mask) == 255


@pytest.mark.parametrize("domain", VESSELS.domains)
def test_equal_arguments_give_equal_pixels_and_other_numbers_other_ones(domain: str) -> None:
    first, second, other = draw_pair(domain, 1), draw_pair(domain, 1), draw_pair(domain, 2)
    for part in (0, 1):
        assert first[part].size == (128, 128)
        assert first[part].tobytes() == second[part].tobytes()
        assert first[part].tobytes() != other[part].tobytes()
    assert (first[0].mode, first[1].mode) == ("RGB", "L")


@pytest.mark.parametrize("domain", VESSELS.domains)
def test_a_mask_marks_a_part_of_the_disc_that_is_brighter_than_its_surroundings(domain: str) -> None:
    line = np.arange(128) - 63.5
    inside = np.hypot(*np.meshgrid(line, line)) < 58
    for index in range(4):
        image, mask = pixels(domain, index)
        assert set(np.unique(np.asarray(draw_pair(domain, index)[1]))) == {0, 255}
        assert 0.04 < mask.mean() < 0.2
        brightness = image.mean(axis=-1)
        assert brightness[mask & inside].mean() > brightness[~mask & inside].mean() + 8
        corners = image[:10, :10]
        assert corners.max() == 0


def test_the_domains_differ_in_colour_noise_and_width() -> None:
    colours, roughness, shares = {}, {}, {}
    for domain in VESSELS.domains:
        images, masks = zip(*(pixels(domain, index) for index in range(6)), strict=True)
        middle = np.stack(images)[:, 32:96, 32:96]
        colours[domain] = middle.mean(axis=(0, 1, 2))
        roughness[domain] = np.abs(np.diff(middle, axis=2)).mean()
        shares[domain] = np.stack(masks).mean()
    for one, other in pairwise(VESSELS.domains):
        assert np.abs(colours[one] - colours[other]).max() > 15
    assert max(roughness, key=roughness.__getitem__) == "stare"
    assert max(shares, key=shares.__getitem__) == "chase_db1"
    assert min(shares, key=shares.__getitem__) == "hrf"


@pytest.mark.parametrize("index", range(5))
def test_a_tree_is_connected_and_stays_on_the_disc(index: int) -> None:
    generator = numpy_generator(0, "tree", index)
    disc = optic_disc(generator)
    lines = grow(disc, generator)
    assert len(lines) > 6
    seen = {disc}
    for line in lines:
        assert line.points[0] in seen
        assert len(line.points) == len(line.widths)
        assert all(narrow <= wide for wide, narrow in pairwise(line.widths))
        assert max(np.hypot(*point) for point in line.points) < EDGE + STEP
        seen.update(line.points)


def test_the_drawings_are_pairs_in_the_layout_of_the_data_set_and_marked(tmp_path: Path) -> None:
    root = ensure_vessels(tmp_path, images=2)
    assert root == vessels_root(tmp_path, images=2)
    assert root != vessels_root(tmp_path)
    for domain in VESSELS.domains:
        pairs = list_pairs(root, VESSELS, domain)[0].all
        assert [pair.stem for pair in pairs] == [f"{domain}/images/000", f"{domain}/images/001"]
        assert mask_facts(root, VESSELS, pairs).sizes == ((128, 128), (128, 128))
        with Image.open(root / "vessels" / pairs[1].file) as image:
            assert image.tobytes() == draw_pair(domain, 1)[0].tobytes()
    assert is_stand_in(root)
    for place in (root, root / "vessels"):
        assert json.loads((place / MARKER).read_text())["images_per_domain"] == 2
    (root / MARKER).unlink()
    assert is_stand_in(root, "vessels"), "vessels/ stays marked if it is moved"
    with pytest.raises(DataError, match=r"it is the STAND-IN; expected images of Retinal vessels"):
        prepare(VESSELS, open_source(root), tmp_path / "new")


def test_a_site_without_data_root_gets_the_drawings_and_one_with_a_root_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stand_in_vessels, "IMAGES_PER_DOMAIN", 2)
    monkeypatch.setattr(stand_in_vessels, "_build", lambda folder, images: (folder / MARKER).touch())
    found = find_data_root("vessels", None, tmp_path)
    assert found.stand_in
    assert found.path is not None
    assert found.path.parent == tmp_path
    (tmp_path / "root").mkdir()
    assert find_data_root("vessels", tmp_path / "root", tmp_path) == DataRoot(tmp_path / "root", stand_in=False)


def test_making_it_twice_draws_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_vessels(tmp_path / "root", images=2)

    def refuse(folder: Path, images: int) -> None:
        raise AssertionError(f"{folder} was drawn again")

    monkeypatch.setattr(stand_in_vessels, "_build", refuse)
    assert write_vessels(tmp_path / "root", images=2) == tmp_path / "root"


@pytest.mark.parametrize("images", [-1, 1, 10_001])
def test_impossible_numbers_are_refused(images: int, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"images per domain is {images}; .* needs at least two, .* and at most 10,000"):
        write_vessels(tmp_path / "root", images=images)
    assert not list(tmp_path.iterdir())


def test_an_unknown_domain_is_refused() -> None:
    with pytest.raises(DataError, match="domain 'away' is not drawn; the stand-in for vessels has chase_db1, drive"):
        draw_pair("away", 0)


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "own").touch()
    with pytest.raises(DataError, match="is in the way and is not the stand-in data"):
        write_vessels(tmp_path, images=2)
    assert [path.name for path in tmp_path.iterdir()] == ["own"]
