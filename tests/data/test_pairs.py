# SPDX-License-Identifier: Apache-2.0
"""Images with masks are listed from folders or a data list, and what is wrong with them is one sentence."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fdg_plugins.data import DATASETS, DomainData, open_domain
from fdg_plugins.data.domains import find_damaged, without_damaged
from fdg_plugins.data.specs import Sample
from fdg_plugins.errors import DataError
from tests.data.conftest import move_out, refused
from tests.data.pair_drawings import CLASSES, draw_photo, eyes

COUNT = 20


@pytest.fixture
def domain(tmp_path: Path) -> Path:
    """The folder of the domain left, with twenty drawings."""
    folder = tmp_path / "root" / "eyes" / "left"
    for number in range(COUNT):
        draw_photo(folder, f"{number:02d}", number=number)
    DATASETS.add(eyes())
    return folder


def opened(domain: Path, **options: Any) -> DomainData:
    return open_domain(domain.parents[1], "eyes", "left", **{"seed": 1, **options})


def test_images_and_masks_of_equal_stems_are_pairs_and_are_split(domain: Path) -> None:
    (domain / "masks" / "notes.txt").touch()
    data = opened(domain)
    assert (len(data.train), len(data.validation), len(data.test)) == (18, 2, COUNT)
    assert data.test[3] == Sample("left/images/03.png", 0, mask="left/masks/03.png")
    assert (data.name, data.classes, data.skipped) == ("eyes/90-10@1", CLASSES, ())
    assert data.unused == ("1 files or folders (such as left/masks/notes.txt)",)
    assert opened(domain).digest == data.digest != opened(domain, seed=2).digest


def test_what_is_missing_is_named_here_and_counted_in_public(domain: Path) -> None:
    (domain / "masks" / "03.png").unlink()
    with refused("images", "03"):
        opened(domain)
    (domain / "images" / "03.png").rename(domain / "masks" / "04.nii")
    with refused("image", "04"):
        opened(domain)
    (domain / "masks" / "04.png").unlink()
    assert [*find_damaged(opened(domain))] == ["left/images/04.png"], "a NIfTI mask of a photograph"
    (domain / "masks").rename(domain / "mask")
    with refused("images"):
        opened(domain)


@pytest.mark.parametrize("link", ["images", "images/03.png", "masks/03.png"])
def test_a_link_out_of_the_data_root_is_refused(domain: Path, link: str) -> None:
    move_out(domain / link, domain.parents[1])
    with refused("link", link):
        opened(domain)


def entries(numbers: range, base: str = "") -> list[dict[str, str]]:
    return [{"image": f"{base}images/{number:02d}.png", "label": f"{base}masks/{number:02d}.png"} for number in numbers]


def write_list(domain: Path, content: Any, *, beside: bool = False) -> None:
    path = domain.parent / "left.json" if beside else domain / "dataset.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")


@pytest.mark.parametrize(("beside", "base"), [(False, ""), (True, "left/"), (False, "left/"), (False, "eyes/left/")])
def test_a_list_gives_the_split_whatever_its_paths_are_relative_to(domain: Path, beside: bool, base: str) -> None:
    parts = {"training": entries(range(12), base), "validation": entries(range(12, 16), base)}
    write_list(domain, parts, beside=beside)
    data = opened(domain)
    assert [sample.file for sample in data.train] == [f"left/images/{number:02d}.png" for number in range(12)]
    assert (len(data.validation), len(data.test), data.name) == (4, 16, "eyes/list")
    assert len(opened(domain, max_samples=14).test) == 14


def test_a_list_without_validation_is_split_by_the_seed(domain: Path) -> None:
    write_list(domain, {"training": entries(range(10)), "testing": entries(range(10, 15))})
    data = opened(domain)
    assert (len(data.train), len(data.validation), data.name) == (9, 1, "eyes/list+90-10@1")
    assert [sample.file[-6:-4] for sample in data.test] == ["10", "11", "12", "13", "14"]


@pytest.mark.parametrize(
    "content",
    [
        *("{", [], {}, {"training": {}}, {"training": ["images/00.png"]}),
        {"training": [{"image": ["images/00.png"], "label": "masks/00.png"}]},
        {"training": entries(range(2)), "test": entries(range(2, 4)), "testing": entries(range(3, 4))},
        {"training": entries(range(2)), "validation": entries(range(1, 3))},
        *(
            {"training": [{"image": path, "label": "masks/00.png"}]}
            for path in ("/etc/a.png", "../../../a.png", "images/../00.png", "images/.a.png", "images/00.npy", "99.png")
        ),
    ],
)
def test_a_list_of_another_form_or_that_leads_elsewhere_is_refused(domain: Path, content: Any) -> None:
    write_list(domain, content)
    with pytest.raises(DataError) as caught:
        opened(domain)
    assert ".png" not in caught.value.public


@pytest.mark.parametrize(
    ("part", "picture", "reason"),
    [
        *(("images", None, "cannot be read"), ("masks", None, "cannot be read")),
        ("masks", Image.new("L", (7, 5)), "5 x 7 pixels, expected those of its image, 24 x 20"),
        ("masks", Image.fromarray(np.full((24, 20), 7, dtype=np.uint8)), "values 7, expected only 0, 100, 110, 200"),
        ("masks", Image.new("RGB", (20, 24), (0, 100, 0)), "colours, expected one value"),
    ],
)
def test_a_damaged_image_or_mask_is_said_and_can_leave_the_pair_out(
    domain: Path, part: str, picture: Image.Image | None, reason: str
) -> None:
    file = domain / part / "03.png"
    file.write_bytes(file.read_bytes()[:60]) if picture is None else picture.save(file)
    data = opened(domain)
    ((found, why),) = find_damaged(data).items()
    assert found == "left/images/03.png"
    assert reason in why
    rest, _ = without_damaged(data, lambda files: opened(domain, left_out=files))
    assert (len(rest.test), rest.left_out) == (COUNT - 1, ("left/images/03.png",))
