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
Case = Callable[[Path], SiteConfig]


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


def lists(root: Path, train: str, validation: str = f"photo/cat/{MARKER}-1.png 1\n") -> SiteConfig:
    (root / "pacs" / "photo_train_kfold.txt").write_text(train)
    (root / "pacs" / "photo_crossval_kfold.txt").write_text(validation)
    return at(root)


def no_root(root: Path) -> SiteConfig:
    return at(root / "nowhere")


def file_as_root(root: Path) -> SiteConfig:
    return at(image(root))


def no_data_set(root: Path) -> SiteConfig:
    (root / "pacs").rename(root / MARKER)
    return at(root)


def no_domain(root: Path) -> SiteConfig:
    photo(root).rename(root / "pacs" / MARKER)
    return at(root)


def unknown_domain(root: Path) -> SiteConfig:
    return at(root, domain=MARKER)


def no_class(root: Path) -> SiteConfig:
    (root / MARKER).mkdir()
    for folder in list(photo(root).iterdir()):
        folder.rename(root / MARKER / folder.name)
    return at(root)


def unknown_class(root: Path) -> SiteConfig:
    (photo(root) / MARKER).mkdir()
    return at(root)


def empty_class(root: Path) -> SiteConfig:
    for file in (photo(root) / "horse").iterdir():
        file.rename(file.with_name(f"{MARKER}.heic"))
    return at(root)


def link_out(root: Path) -> SiteConfig:
    (photo(root) / "dog" / f"{MARKER}-9.png").symlink_to("/etc/hostname")
    return at(root)


def circle(root: Path) -> SiteConfig:
    link = photo(root) / "dog" / f"{MARKER}-9.png"
    link.symlink_to(link)
    return at(root)


def pipe(root: Path) -> SiteConfig:
    os.mkfifo(photo(root) / "dog" / f"{MARKER}.png")
    return at(root)


def no_utf8(root: Path) -> SiteConfig:
    name = os.fsencode(photo(root) / "dog" / MARKER) + b"\xe9\xff.png"
    Path(os.fsdecode(name)).touch()
    return at(root)


def control_characters(root: Path) -> SiteConfig:
    (photo(root) / "dog" / f"a\nsite x | all is well {MARKER}\x1b[2J.png").touch()
    return at(root)


def class_without_utf8(root: Path) -> SiteConfig:
    Path(os.fsdecode(os.fsencode(photo(root) / MARKER) + b"\xff\n")).mkdir()
    return at(root)


def empty_image(root: Path) -> SiteConfig:
    image(root).write_bytes(b"")
    return at(root)


def damaged_image(root: Path) -> SiteConfig:
    image(root).write_bytes(image(root).read_bytes()[:-30])
    return at(root)


def no_image(root: Path) -> SiteConfig:
    image(root).write_text(f"{MARKER}: not an image")
    return at(root)


def large_image(root: Path) -> SiteConfig:
    return at(root, max_image_pixels=255)


def too_few_left(root: Path) -> SiteConfig:
    for file in (photo(root) / "horse").iterdir():
        file.write_bytes(b"")
    return at(root, damaged_images="leave_out")


def one_list(root: Path) -> SiteConfig:
    (root / "pacs" / "photo_train_kfold.txt").write_text("")
    return at(root)


def list_that_is_no_text(root: Path) -> SiteConfig:
    config = lists(root, "")
    (root / "pacs" / "photo_train_kfold.txt").write_bytes(b"\xff\xfe\xff")
    return config


def list_of_unknown_images(root: Path) -> SiteConfig:
    return lists(root, f"photo/dog/{MARKER}-77.png 1\n")


def list_of_another_form(root: Path) -> SiteConfig:
    return lists(root, f"{MARKER} has no label\n")


def list_of_other_labels(root: Path) -> SiteConfig:
    return lists(root, f"photo/dog/{MARKER}-0.png 3\n")


def list_with_one_twice(root: Path) -> SiteConfig:
    return lists(root, f"photo/dog/{MARKER}-0.png 1\n" * 2)


def empty_list(root: Path) -> SiteConfig:
    return lists(root, "\n")


def lists_that_overlap(root: Path) -> SiteConfig:
    return lists(root, f"photo/dog/{MARKER}-0.png 1\n", f"photo/dog/{MARKER}-0.png 1\n")


def too_many_parts(root: Path) -> SiteConfig:
    return at(root, part="8/900")


def site_file(root: Path, content: str) -> SiteConfig:
    path = root / "fdg_site.json"
    path.write_text(content)
    return read_site_config("photo", path, {})


def broken_file(root: Path) -> SiteConfig:
    return site_file(root, f'{{"photo": {{"data_root": "/{MARKER}"')


def deep_file(root: Path) -> SiteConfig:
    return site_file(root, '{"photo":' * 100_000)


def file_of_another_form(root: Path) -> SiteConfig:
    return site_file(root, f'["{MARKER}"]')


def relative_root(root: Path) -> SiteConfig:
    return site_file(root, json.dumps({"photo": {"data_root": MARKER}}))


def unknown_field(root: Path) -> SiteConfig:
    return site_file(root, json.dumps({"photo": {MARKER: 1}}))


def unknown_report(root: Path) -> SiteConfig:
    return site_file(root, json.dumps({"photo": {"allowed_reports": [MARKER]}}))


def root_without_utf8(root: Path) -> SiteConfig:
    return read_site_config("photo", None, {"FDG_DATA_ROOT": f"/{MARKER}\udcff"})


# What happens, what everybody may read of it, and whether the site's own log has the name or path.
CASES: list[tuple[Case, str, bool]] = [
    (no_root, "its data root is not a folder.", True),
    (file_as_root, "its data root is not a folder.", True),
    (no_data_set, "data set 'pacs' is not in its data root.", True),
    (no_domain, "domain 'photo' of data set 'pacs' is not in its data root.", True),
    (unknown_domain, "its domain is none of data set pacs; expected one of: art_painting, ", True),
    (no_class, "", True),
    (unknown_class, "domain 'photo' has 1 class folders that data set 'pacs' does not have.", True),
    (class_without_utf8, "domain 'photo' has 1 class folders that data set 'pacs' does not have.", True),
    (empty_class, "", True),
    (link_out, "a link leads out of its data root.", True),
    (circle, "a link leads out of its data root.", True),
    (pipe, "", True),
    (no_utf8, "", True),
    (control_characters, "", True),
    (empty_image, "of the images of domain 'photo', 1 cannot be used.", True),
    (damaged_image, "of the images of domain 'photo', 1 cannot be used.", True),
    (no_image, "of the images of domain 'photo', 1 cannot be used.", True),
    (large_image, "of the images of domain 'photo', 21 cannot be used.", True),
    (too_few_left, "of the 3 images of class 'horse' in domain 'photo', 0 can be used; expected", False),
    (one_list, "", True),
    (list_that_is_no_text, "", True),
    (list_of_unknown_images, "", True),
    (list_of_another_form, "", True),
    (list_of_other_labels, "", True),
    (list_with_one_twice, "", True),
    (empty_list, "", True),
    (lists_that_overlap, "", True),
    (too_many_parts, "domain 'photo' has 14 training and 7 validation images; expected at least 900", False),
    (broken_file, "its config cannot be read as JSON.", True),
    (deep_file, "its config cannot be read as JSON.", True),
    (file_of_another_form, "its config must map site names to objects of settings.", True),
    (relative_root, "its config, of file or environment, has a value of 'data_root' that is not as", True),
    (unknown_field, "its config, of file or environment, has an unknown field.", True),
    (unknown_report, "its config, of file or environment, has a value of 'allowed_reports' that is not as", True),
    (root_without_utf8, "its config, of file or environment, has a value of 'data_root' that is not", True),
]


@pytest.mark.parametrize(("case", "public", "named"), CASES, ids=[case[0].__name__ for case in CASES])
def test_a_failure_at_a_site_is_told_without_names(root: Path, case: Case, public: str, named: bool) -> None:
    with pytest.raises(FDGError) as caught:
        SiteSession("photo", case(root), Protocol(model="convnet", target="sketch", image_size=16)).census()
    assert caught.value.public.startswith(public)
    assert MARKER not in caught.value.public
    assert (MARKER in str(caught.value)) is named
    for text in (str(caught.value), caught.value.public):
        assert text.endswith(".")
        assert text.isprintable()


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


@pytest.mark.parametrize(
    ("part", "public"),
    [
        ("", "data set 'pacs' is not in its data root"),
        ("pacs", "domain 'photo' of data set 'pacs' is not in its data root"),
        ("pacs/photo", ""),
        ("pacs/photo/dog", ""),
        (f"pacs/photo/dog/{MARKER}-0.png", "of the images of domain 'photo', 1 cannot be used."),
    ],
)
def test_what_may_not_be_read_is_told_without_names(anybodys_root: Path, part: str, public: str) -> None:
    (anybodys_root / part).chmod(0)
    with pytest.raises(FDGError) as caught, an_ordinary_user():
        SiteSession("photo", at(anybodys_root), Protocol(model="convnet", target="sketch", image_size=16)).census()
    assert caught.value.public.startswith(public)
    assert MARKER in str(caught.value)


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
