# SPDX-License-Identifier: Apache-2.0
"""The stand-in for PACS: its pictures, its folders, and several processes making it at once."""

import json
import multiprocessing
import re
import tempfile
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import platformdirs
import pytest
from PIL import Image, ImageStat

from fdg_plugins.data import stand_in, stand_in_files
from fdg_plugins.data.stand_in import STAND_IN_VERSION, draw, ensure_stand_in, stand_in_root, write_stand_in
from fdg_plugins.data.stand_in_files import is_stand_in
from fdg_plugins.data.stand_in_shapes import SHAPES, pose
from fdg_plugins.errors import DataError
from fdg_plugins.randomness import numpy_generator

DOMAINS = ("photo", "art_painting", "cartoon", "sketch")
CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")


def _make_one_per_class(cache: Path) -> Path:
    return ensure_stand_in(cache, images_per_class=1)


def _assert_complete(root: Path, images_per_class: int) -> None:
    """Every class of every domain has its pictures and nothing else, and a marker lies beside and in ``pacs``."""
    names = [f"{index:03d}.png" for index in range(images_per_class)]
    expected = {f"pacs/{domain}/{name}/{file}" for domain in DOMAINS for name in CLASSES for file in names}
    found = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}
    assert found == expected | {"STAND-IN.json", "pacs/STAND-IN.json"}


def _mean(domain: str, statistic: str) -> float:
    """The mean of a statistic of the pixels over one picture of each class."""
    values = []
    for class_name in CLASSES:
        image = draw(domain, class_name, 0)
        if statistic == "brightness":
            values.append(ImageStat.Stat(image.convert("L")).mean[0])
        elif statistic == "saturation":
            values.append(ImageStat.Stat(image.convert("HSV")).mean[1])
        else:
            # The share of neighbours on a row that are exactly equal: high in flat drawings, none under noise.
            pixels = np.asarray(image)
            values.append(float(np.mean(np.all(pixels[:, 1:] == pixels[:, :-1], axis=-1))))
    return float(np.mean(values))


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("class_name", CLASSES)
def test_equal_arguments_give_equal_pixels(domain: str, class_name: str) -> None:
    first, second = draw(domain, class_name, 3), draw(domain, class_name, 3)
    assert first.mode == "RGB"
    assert first.size == (64, 64)
    assert first.tobytes() == second.tobytes()


def test_the_global_generator_is_neither_read_nor_advanced() -> None:
    np.random.seed(1)
    expected = np.random.random()
    np.random.seed(1)
    first = draw("photo", "dog", 0)
    assert np.random.random() == expected
    np.random.seed(2)
    assert draw("photo", "dog", 0).tobytes() == first.tobytes()


@pytest.mark.parametrize("domain", DOMAINS)
def test_no_two_pictures_of_a_domain_are_equal(domain: str) -> None:
    pictures = {draw(domain, class_name, index).tobytes() for class_name in CLASSES for index in range(3)}
    assert len(pictures) == 3 * len(CLASSES)


def test_the_same_class_and_index_in_another_domain_is_another_pose_and_style() -> None:
    assert len({draw(domain, "horse", 0).tobytes() for domain in DOMAINS}) == len(DOMAINS)


def test_sketches_are_the_brightest_and_have_no_colour() -> None:
    brightness = {domain: _mean(domain, "brightness") for domain in DOMAINS}
    assert max(brightness, key=brightness.__getitem__) == "sketch"
    assert brightness["sketch"] > 220
    assert _mean("sketch", "saturation") == 0


def test_cartoons_are_the_most_saturated() -> None:
    saturation = {domain: _mean(domain, "saturation") for domain in DOMAINS}
    assert max(saturation, key=saturation.__getitem__) == "cartoon"


def test_cartoons_and_sketches_are_flat_where_photos_and_paintings_are_textured() -> None:
    flat = {domain: _mean(domain, "flatness") for domain in DOMAINS}
    assert min(flat["cartoon"], flat["sketch"]) > 0.5
    assert max(flat["photo"], flat["art_painting"]) < 0.2


@pytest.mark.parametrize("class_name", CLASSES)
@pytest.mark.parametrize("exaggeration", [0.75, 1.0, 2.1])
def test_no_pose_is_cut_off_and_every_pose_is_large_enough(class_name: str, exaggeration: float) -> None:
    for index in range(20):
        parts = pose(class_name, 100, exaggeration, numpy_generator(0, "test", class_name, index))
        points = np.concatenate([part.outline for part in parts])
        assert points.min() >= 0.0
        assert points.max() <= 100.0
        assert 0.64 * 100 <= np.ptp(points, axis=0).max() <= 0.92 * 100 + 1e-9


def test_the_shapes_are_the_classes_of_pacs_in_sorted_order() -> None:
    assert tuple(SHAPES) == CLASSES == tuple(sorted(CLASSES))


@pytest.mark.parametrize(("domain", "class_name", "named"), [("oil", "dog", "'oil'"), ("photo", "cat", "'cat'")])
def test_an_unknown_domain_or_class_is_named(domain: str, class_name: str, named: str) -> None:
    with pytest.raises(DataError, match=named):
        draw(domain, class_name, 0)


def test_the_folders_are_those_of_pacs(tmp_path: Path) -> None:
    root = ensure_stand_in(tmp_path, images_per_class=2)
    _assert_complete(root, 2)
    with Image.open(root / "pacs" / "sketch" / "giraffe" / "001.png") as stored:
        assert stored.mode == "RGB"
        assert stored.tobytes() == draw("sketch", "giraffe", 1).tobytes()


def test_the_marker_says_that_these_are_drawings(tmp_path: Path) -> None:
    root = ensure_stand_in(tmp_path, images_per_class=1)
    marker = json.loads((root / "STAND-IN.json").read_text())
    assert (marker["stand_in"], marker["version"], marker["images_per_class"]) == (True, STAND_IN_VERSION, 1)
    assert "not the PACS data set" in marker["note"]
    assert is_stand_in(root)
    assert not is_stand_in(tmp_path)
    assert not is_stand_in(tmp_path / "absent")


def test_pacs_stays_marked_where_it_is_moved(tmp_path: Path) -> None:
    root = ensure_stand_in(tmp_path / "cache", images_per_class=1)
    (tmp_path / "data").mkdir()
    (root / "pacs").rename(tmp_path / "data" / "pacs")
    assert is_stand_in(tmp_path / "data", "pacs")
    assert not is_stand_in(tmp_path / "data")


@pytest.mark.parametrize("there", [False, True])
def test_it_can_be_drawn_into_a_folder_of_ones_own(tmp_path: Path, there: bool) -> None:
    if there:
        (tmp_path / "own").mkdir()
    assert write_stand_in(tmp_path / "own", images_per_class=1) == tmp_path / "own"
    _assert_complete(tmp_path / "own", 1)
    assert [path.name for path in tmp_path.iterdir()] == ["own"]


def test_the_default_place_is_the_cache_of_the_user_and_carries_the_version() -> None:
    assert stand_in_root() == platformdirs.user_cache_path("fdg_plugins") / f"stand-in-v{STAND_IN_VERSION}"


def test_making_it_twice_draws_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = _make_one_per_class(tmp_path)

    def refuse(folder: Path, images_per_class: int) -> None:
        raise AssertionError("drawn again")

    monkeypatch.setattr(stand_in, "_build", refuse)
    assert _make_one_per_class(tmp_path) == root


def test_other_counts_do_not_mix(tmp_path: Path) -> None:
    one, two = ensure_stand_in(tmp_path, images_per_class=1), ensure_stand_in(tmp_path, images_per_class=2)
    assert one != two
    _assert_complete(one, 1)
    _assert_complete(two, 2)
    assert stand_in_root(tmp_path) == tmp_path / f"stand-in-v{STAND_IN_VERSION}"


def test_less_than_one_image_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="0"):
        ensure_stand_in(tmp_path, images_per_class=0)
    assert list(tmp_path.iterdir()) == []


def test_four_threads_at_once_make_one_complete_folder_and_leave_nothing_behind(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        roots = set(pool.map(_make_one_per_class, [tmp_path] * 4))
    assert list(tmp_path.iterdir()) == [roots.pop()]
    assert roots == set()
    _assert_complete(next(tmp_path.iterdir()), 1)


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="other methods load torch each time")
def test_processes_at_once_make_one_complete_folder_and_leave_nothing_behind(tmp_path: Path) -> None:
    with ProcessPoolExecutor(4, mp_context=multiprocessing.get_context("fork")) as pool:
        roots = set(pool.map(_make_one_per_class, [tmp_path] * 4))
    assert list(tmp_path.iterdir()) == [roots.pop()]
    assert roots == set()
    _assert_complete(next(tmp_path.iterdir()), 1)


def test_who_loses_the_race_uses_the_winners_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build = stand_in._build

    def build_after_another(folder: Path, images_per_class: int) -> None:
        monkeypatch.setattr(stand_in, "_build", build)
        winner = _make_one_per_class(tmp_path)
        (winner / "winner").touch()
        build(folder, images_per_class)

    monkeypatch.setattr(stand_in, "_build", build_after_another)
    root = _make_one_per_class(tmp_path)
    assert (root / "winner").is_file()
    assert list(tmp_path.iterdir()) == [root]


def test_a_truncated_attempt_is_not_taken_for_the_data(tmp_path: Path) -> None:
    root = stand_in_root(tmp_path, images_per_class=1)
    truncated = tmp_path / f".{root.name}.killed" / "pacs" / "photo" / "dog"
    truncated.mkdir(parents=True)
    draw("photo", "dog", 0).save(truncated / "000.png")
    assert _make_one_per_class(tmp_path) == root
    _assert_complete(root, 1)


def test_an_attempt_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill_the_disk(folder: Path, images_per_class: int) -> None:
        (folder / "pacs").mkdir()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(stand_in, "_build", fill_the_disk)
    with pytest.raises(DataError, match="No space left on device") as caught:
        _make_one_per_class(tmp_path)
    assert str(stand_in_root(tmp_path, images_per_class=1)) in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_place_of_the_cache_is_named(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.write_text("")
    with pytest.raises(DataError, match=re.escape(str(cache))):
        _make_one_per_class(cache)


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(tempfile, "mkdtemp", refuse)  # root, who runs the tests in a container, may write everywhere
    with pytest.raises(DataError, match=f"{re.escape(str(tmp_path))} .*Permission denied"):
        _make_one_per_class(tmp_path)


def test_a_cache_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(data_root: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(stand_in_files, "is_stand_in", refuse)
    with pytest.raises(DataError, match=f"{re.escape(str(tmp_path))} .*Permission denied"):
        _make_one_per_class(tmp_path)


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_is_in_the_way_of_the_folder_is_named_and_kept(tmp_path: Path, kind: str) -> None:
    root = stand_in_root(tmp_path, images_per_class=1)
    if kind == "file":
        root.write_text("mine")
    else:
        root.mkdir()
        (root / "mine").touch()
    with pytest.raises(DataError, match=re.escape(str(root))):
        _make_one_per_class(tmp_path)
    assert list(tmp_path.iterdir()) == [root]
    assert root.is_file() if kind == "file" else (root / "mine").is_file()
