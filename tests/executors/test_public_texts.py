# SPDX-License-Identifier: Apache-2.0
"""What a site says of its own failures: names and paths to its own log, a category and counts to everybody else."""

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from fdg_plugins.data import PACS
from fdg_plugins.errors import FDGError
from fdg_plugins.executors import SiteConfig, read_site_config
from fdg_plugins.models import build_model
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.training.session import SiteSession

MARKER = "Mueller_Erika_1961"
PER_CLASS = 3
NOBODY = 65534


def photo(root: Path) -> Path:
    return root / "pacs" / "photo"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A data root whose own path, and the name of each image in it, hold what nobody else may read."""
    return fill(tmp_path / MARKER)


def fill(root: Path) -> Path:
    """Write the domain photo below ``root``."""
    for name in PACS.classes:
        (photo(root) / name).mkdir(parents=True)
        for number in range(PER_CLASS):
            Image.new("RGB", (16, 16), (number, 90, 40)).save(photo(root) / name / f"{MARKER}-{number}.png")
    return root


def image(root: Path, name: str = "dog") -> Path:
    return photo(root) / name / f"{MARKER}-0.png"


def at(root: Path, **settings: Any) -> SiteConfig:
    return SiteConfig(data_root=root, device="cpu", **settings)


def lists(root: Path, train: bytes) -> None:
    (root / "pacs" / "photo_train_kfold.txt").write_bytes(train)
    (root / "pacs" / "photo_crossval_kfold.txt").write_text(f"photo/cat/{MARKER}-1.png 1\n")


def empty_class(root: Path) -> None:
    for file in (photo(root) / "horse").iterdir():
        file.rename(file.with_name(f"{MARKER}.heic"))


def no_utf8(root: Path) -> None:
    Path(os.fsdecode(os.fsencode(photo(root) / "dog" / MARKER) + b"\xe9\xff.png")).touch()


# What happens in a data root.
ACCIDENTS: dict[str, Callable[[Path], object]] = {
    "no data set": lambda root: (root / "pacs").rename(root / MARKER),
    "no domain": lambda root: photo(root).rename(root / "pacs" / MARKER),
    "unknown class": lambda root: (photo(root) / MARKER).mkdir(),
    "empty class": empty_class,
    "link that leads out": lambda root: (photo(root) / "dog" / f"{MARKER}-9.png").symlink_to("/etc/hostname"),
    "pipe": lambda root: os.mkfifo(photo(root) / "dog" / f"{MARKER}.png"),
    "no UTF-8": no_utf8,
    "control characters": lambda root: (photo(root) / "dog" / f"a\nsite x | all is well {MARKER}\x1b[2J.png").touch(),
    "empty image": lambda root: image(root).write_bytes(b""),
    "no image": lambda root: image(root).write_text(f"{MARKER}: not an image"),
    "one list of two": lambda root: (root / "pacs" / "photo_train_kfold.txt").write_text(""),
    "list that is no text": lambda root: lists(root, b"\xff\xfe\xff"),
    "list of unknown images": lambda root: lists(root, f"photo/dog/{MARKER}-77.png 1\n".encode()),
    "list of another form": lambda root: lists(root, f"{MARKER} has no label\n".encode()),
    "lists that overlap": lambda root: lists(root, f"photo/cat/{MARKER}-1.png 1\n".encode()),
}


def census(config: SiteConfig) -> FDGError:
    """Return the error of a site's census."""
    with pytest.raises(FDGError) as caught:
        SiteSession("photo", config, Protocol(model="convnet", target="sketch", image_size=16)).census()
    return caught.value


def assert_told_without_names(error: FDGError) -> None:
    assert MARKER not in error.public
    assert MARKER in str(error)
    for text in (str(error), error.public):
        assert text.endswith(".")
        assert text.isprintable()


@pytest.mark.parametrize("accident", ACCIDENTS)
def test_a_failure_at_a_site_is_told_without_names(root: Path, accident: str) -> None:
    ACCIDENTS[accident](root)
    assert_told_without_names(census(at(root)))


def test_a_wrong_config_of_a_site_is_told_without_names(root: Path) -> None:
    for config in (at(root / "nowhere"), at(image(root)), at(root, domain=MARKER), at(root, max_image_pixels=255)):
        assert_told_without_names(census(config))
    path = root / "fdg_site.json"
    for content in (
        f'{{"photo": {{"data_root": "/{MARKER}"',
        '{"photo":' * 100_000,
        f'["{MARKER}"]',
        json.dumps({"photo": {"data_root": MARKER}}),
        json.dumps({"photo": {MARKER: 1}}),
    ):
        path.write_text(content)
        with pytest.raises(FDGError) as caught:
            read_site_config("photo", path, {})
        assert_told_without_names(caught.value)


@contextmanager
def an_ordinary_user() -> Iterator[None]:
    """Work as somebody else, if this is the superuser, who may read everything."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)


@pytest.fixture
def anybodys_root() -> Iterator[Path]:
    """The same data root, where other users may look for it, and may not in the end."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield fill(Path(folder) / MARKER)
        for path in Path(folder).rglob("*"):
            path.chmod(0o700)


@pytest.mark.parametrize("part", ["", "pacs", "pacs/photo", "pacs/photo/dog", f"pacs/photo/dog/{MARKER}-0.png"])
def test_what_may_not_be_read_is_told_without_names(anybodys_root: Path, part: str) -> None:
    (anybodys_root / part).chmod(0)
    with an_ordinary_user():
        error = census(at(anybodys_root))
    assert_told_without_names(error)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("gone", [True, False])
def test_an_image_lost_after_the_census_is_told_without_its_name(root: Path, workers: int, gone: bool) -> None:
    protocol = Protocol(model="convnet", target="sketch", image_size=16, local_epochs=1, rounds=1)
    session = SiteSession("photo", at(root, workers=workers, image_memory=0), protocol)
    session.census()
    for sample in session.data.train[:2]:
        path = root / "pacs" / sample.file
        path.unlink() if gone else path.write_bytes(b"")
    state = build_model("convnet", len(PACS.classes), seed=0).state_dict()
    with pytest.raises(FDGError, match=MARKER) as caught:
        session.train(state, 0, lambda: False, lambda *_: None)
    assert caught.value.public == "an image of the split cannot be read."
    assert "Traceback" not in str(caught.value)
    assert "\n" not in str(caught.value)
