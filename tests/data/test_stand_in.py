# SPDX-License-Identifier: Apache-2.0
"""The stand-ins: pictures that are equal for everyone, domains by style, classes by shape, and complete folders."""

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fdg_plugins.data import PACS, find_data_root, open_domain, stand_in
from fdg_plugins.data.catalogue import CELEBA, VESSELS
from fdg_plugins.data.stand_in import GLYPHS, MARKER, STYLES, draw, draw_pair, is_stand_in, write_stand_in
from tests.data.conftest import refused

FEW = {"0": (6, 5, 4, 2), "1": (1, 1, 1, 1), "2": (3, 3, 2, 2)}


def files_below(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}


def complete(count: int) -> set[str]:
    places = (f"pacs/{domain}/{name}" for domain in PACS.domains for name in PACS.classes)
    return {MARKER, f"pacs/{MARKER}", *(f"{place}/{index:03d}.png" for place in places for index in range(count))}


def test_every_picture_of_pacs_is_drawn_and_no_two_are_equal() -> None:
    assert (tuple(STYLES), tuple(GLYPHS)) == (PACS.domains, PACS.classes)
    made = [draw(domain, name, index) for domain in STYLES for name in GLYPHS for index in range(2)]
    assert {(one.mode, one.size) for one in made} == {("RGB", (64, 64))}
    assert len({one.tobytes() for one in made}) == len(made)
    again = draw("photo", "dog", 0)
    np.random.seed(1)
    assert draw("photo", "dog", 0).tobytes() == again.tobytes()


@pytest.mark.parametrize("domain", VESSELS.domains)
def test_a_mask_marks_what_is_brighter_on_the_disc(domain: str) -> None:
    image, mask = draw_pair(domain, 0)
    pixels, marked = np.asarray(image, dtype=float).mean(axis=-1), np.asarray(mask) == 255
    assert set(np.unique(np.asarray(mask))) == {0, 255}
    assert 0.04 < marked.mean() < 0.2
    assert pixels[marked].mean() > pixels[(pixels > 0) & ~marked].mean() + 8


def test_pacs_is_drawn_in_its_layout_and_marked(tmp_path: Path) -> None:
    root = write_stand_in(tmp_path / "drawn", images_per_class=2)
    assert files_below(root) == complete(2)
    with Image.open(root / "pacs" / "sketch" / "giraffe" / "001.png") as stored:
        assert stored.tobytes() == draw("sketch", "giraffe", 1).tobytes()
    facts = json.loads((root / MARKER).read_text())
    assert (facts["stand_in"], facts["images_per_class"]) == (True, 2)
    assert is_stand_in(root)
    assert not is_stand_in(tmp_path)
    (root / MARKER).unlink()
    assert is_stand_in(root, "pacs"), "pacs/ stays marked if it is moved"


def test_vessels_are_drawn_in_pairs(tmp_path: Path) -> None:
    files = files_below(write_stand_in(tmp_path / "drawn", "vessels", images_per_class=1))
    pairs = {f"vessels/{domain}/{part}/000.png" for domain in VESSELS.domains for part in ("images", "masks")}
    assert files == {MARKER, f"vessels/{MARKER}", *pairs}


def test_celeba_is_drawn_with_its_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stand_in, "PORTRAITS", FEW)
    root = find_data_root("celeba", None, tmp_path)
    assert root.stand_in
    for domain, part in CELEBA.parts.items():
        test = open_domain(root.path, "celeba", domain, seed=0).test
        counts = Counter((sample.label, sample.attribute) for sample in test)
        assert [counts[group] for group in ((1, 0), (1, 1), (0, 0), (0, 1))] == list(FEW[part])


def test_several_at_once_make_one_complete_folder_once_and_leave_nothing_behind(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        (root,) = set(pool.map(partial(write_stand_in, images_per_class=1), [tmp_path / "drawn"] * 4))
    assert list(tmp_path.iterdir()) == [root]
    assert files_below(root) == complete(1)


def test_what_is_in_the_way_is_named_and_kept(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "mine").touch()
    for name in ("file", "folder"):
        with refused("", name):
            write_stand_in(tmp_path / name, images_per_class=1)
    assert files_below(tmp_path) == {"file", "folder/mine"}
