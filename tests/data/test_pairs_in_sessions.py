# SPDX-License-Identifier: Apache-2.0
"""A site whose images have masks: its census, what it leaves out, and the images on which its methods report."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from fdg_plugins.data import DATASETS
from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.settings.site_config import SiteConfig
from fdg_plugins.tasks import TASKS
from fdg_plugins.training.session import SiteSession
from tests.data.pair_drawings import PairTask, draw_photo, eyes

COUNT = 20


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    TASKS.add(PairTask())
    DATASETS.add(eyes(preset="photo_patches"))
    for number in range(COUNT):
        draw_photo(tmp_path / "eyes" / "left", f"{number:02d}", number=number)
    yield tmp_path
    DATASETS.remove("eyes")
    TASKS.remove(PairTask().name)


def session(root: Path, config: dict[str, Any] | None = None, **settings: Any) -> SiteSession:
    site = SiteConfig(**{"device": "cpu", "domain": "left", "data_root": root, **(config or {})})
    protocol = {"dataset": "eyes", "target": "right", "task": PairTask().name, "image_size": 16, **settings}
    return SiteSession("clinic", site, Protocol(**protocol))


def spoil(root: Path) -> None:
    Image.new("L", (20, 24), 7).save(root / "eyes" / "left" / "masks" / "04.png")


def test_the_census_counts_pairs(root: Path) -> None:
    reply = session(root, {"part": "1/2"}).census()
    assert (reply.num_train, reply.num_validation, reply.num_test, reply.class_counts) == (9, 1, 20, (10,) * 3)
    assert re.fullmatch(r"eyes/90-10@0/equal@0-[0-9a-f]{16}/part1of2", reply.split)
    assert session(root, {"part": "1/2"}, target="left").census().class_counts == (20,) * 3, (
        "judged on the whole domain"
    )
    reply = session(root, max_samples_per_domain=14).census()
    assert (reply.num_train, reply.num_validation, reply.num_test) == (13, 1, 14)


def test_a_spoilt_mask_stops_the_site_or_is_left_out(root: Path) -> None:
    spoil(root)
    with pytest.raises(DataError, match=r"04\.png: the values 7, expected only 0, 100, 110, 200") as caught:
        session(root).census()
    assert caught.value.public == "of the images of domain 'left', 1 with a mask that does not fit."
    tolerant = session(root, {"damaged_images": "leave_out"})
    reply = tolerant.census()
    assert (reply.num_test, reply.num_damaged) == (COUNT - 1, 1)
    assert tolerant.images.left_out == {"left/images/04.png"}


@pytest.mark.parametrize(("preset", "shape"), [("", (18, 3, 16, 16)), ("photo", (18, 3, 16, 16))])
def test_reports_see_images_of_the_size_of_training(root: Path, preset: str, shape: tuple[int, ...]) -> None:
    site = session(root, preset=preset)
    (batch,) = site._training_images(lambda: False)
    assert (batch[0].shape, batch[1].shape) == (shape, (18, 16, 16))
    sizes = {images.shape[2:] for images, _ in site.images.unchanged(site.data.validation)}
    assert sizes == ({(16, 16)} if preset else {(24, 20)})


def test_what_is_kept_serves_all_rounds(root: Path) -> None:
    site = session(root)
    before = [images.sum() for epoch in site.images.epochs(site.protocol.local_epochs, 1) for images, _ in epoch]
    list(site.images.unchanged(site.data.validation))
    for file in (root / "eyes" / "left" / "images").iterdir():
        file.unlink()
    again = [images.sum() for epoch in site.images.epochs(site.protocol.local_epochs, 1) for images, _ in epoch]
    assert (
        before
        == again
        != [images.sum() for epoch in site.images.epochs(site.protocol.local_epochs, 2) for images, _ in epoch]
    )


def test_an_unknown_preset_is_refused(root: Path) -> None:
    with pytest.raises(SettingsError, match=r"preset .* is 'x', expected one of: photo, photo_patches"):
        session(root, preset="x")


def test_files_that_are_no_pairs_are_told_in_the_sites_log(root: Path) -> None:
    for part in ("images", "masks"):
        (root / "eyes" / "left" / part / "20.mha").write_bytes(b"")
    unused = "2 files with a suffix that is not read: .mha 2 (such as left/images/20.mha)"
    assert session(root).data.unused == (unused,)
