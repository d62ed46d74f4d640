# SPDX-License-Identifier: Apache-2.0
"""``fdg data`` with images and masks: what prepare, verify and check print, and the sheets that check draws."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from fdg_plugins.cli.data import data_app

pytestmark = pytest.mark.usefixtures("no_fdg_variables")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(data_app, [str(argument) for argument in arguments])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A data root with four pairs in each of two domains; a tenth of each mask is vessel."""
    generator = np.random.default_rng(0)
    for domain in ("drive", "stare"):
        folder = tmp_path / "root" / "vessels" / domain
        for part in ("images", "masks"):
            (folder / part).mkdir(parents=True)
        for number in range(4):
            pixels = generator.integers(0, 256, (20, 30, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / "images" / f"{number}.png")
            mask = np.zeros((20, 30), dtype=np.uint8)
            mask[2 * number : 2 * number + 2] = 255
            Image.fromarray(mask).save(folder / "masks" / f"{number}.png")
    return tmp_path / "root"


def test_what_is_prepared_can_be_verified_with_its_images(root: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    done = run("prepare", "vessels", "--from", root, "--any-counts", "--data-root", target)
    assert done.exit_code == 0, done.output
    assert "vessels: 16 files written, 0 were there already" in done.stdout
    assert "not in the source: chase_db1 (CHASEDB1.zip), hrf (all.zip)" in done.stdout
    assert "note: drive has 4 images, expected 40" in done.stdout
    assert "HRF: CC BY 4.0" in done.stdout
    verified = run("verify", "vessels", "--images", "--data-root", target)
    assert verified.exit_code == 0, verified.output
    assert "vessels: all 8 images can be decoded" in verified.stdout
    assert "fewest in a class" not in verified.stdout
    (target / "vessels" / "drive" / "masks" / "1.png").write_bytes(b"no image")
    changed = run("verify", "vessels", "--data-root", target)
    assert changed.exit_code == 2
    assert "changed drive/masks/1.png" in changed.stdout


def test_check_prints_the_facts_of_each_domain_and_draws_its_sheet(root: Path, tmp_path: Path) -> None:
    result = run("check", "vessels", "--data-root", root, "--sheets", tmp_path / "sheets")
    assert result.exit_code == 0, result.output
    rows = [
        line.replace("│", " ").split() for line in result.stdout.splitlines() if line.startswith(("drive ", "stare "))
    ]
    assert [row[:3] for row in rows] == [["drive", "4", "0"], ["stare", "4", "0"]]
    assert "20 x 30" in result.stdout
    assert "0.100 (0.100 to 0.100)" in result.stdout
    warned = "Warning: no folder for chase_db1, hrf; a run on this machine needs every domain."
    assert " ".join(result.stderr.split()) == warned
    assert sorted(path.name for path in (tmp_path / "sheets").iterdir()) == ["drive.png", "stare.png"]
    with Image.open(tmp_path / "sheets" / "drive.png") as sheet:
        assert min(sheet.size) > 600


def test_check_names_the_pairs_that_cannot_be_used(root: Path, tmp_path: Path) -> None:
    (root / "vessels" / "stare" / "masks" / "2.png").write_bytes(b"no image")
    result = run("check", "vessels", "--data-root", root, "--sheets", tmp_path / "sheets")
    assert result.exit_code == 2
    assert "masks/2.png cannot be read" in result.stdout
    assert "of 8 pairs of data set vessels in" in result.stderr
    assert "1 cannot be used" in result.stderr
    assert (tmp_path / "sheets" / "stare.png").is_file()


def test_check_names_what_a_run_passes_over(root: Path) -> None:
    base = root / "vessels" / "drive"
    for name in ("images/4.mha", "masks/4.mha", "images/Thumbs.db", "images/.hidden.mha"):
        (base / name).write_bytes(b"")
    (base / "masks" / "second").mkdir()
    (base / "masks" / "second" / "0.png").write_bytes(b"")
    result = run("check", "vessels", "--data-root", root)
    assert result.exit_code == 0, result.output
    assert [line for line in result.stdout.splitlines() if line.startswith("not used")] == [
        "not used    drive: 3 files or folders (such as drive/images/4.mha)",
    ]


def test_check_names_an_image_that_is_in_two_domains_by_a_copy_or_by_their_lists(root: Path) -> None:
    base = root / "vessels"
    assert "duplicates" not in run("check", "vessels", "--data-root", root).stdout
    shutil.copy(base / "drive" / "images" / "1.png", base / "drive" / "images" / "9.png")
    shutil.copy(base / "drive" / "masks" / "1.png", base / "drive" / "masks" / "9.png")
    for domain, others in (("drive", ()), ("stare", ("drive/{}/3.png",))):
        paths = [*(f"{domain}/{{}}/{number}.png" for number in (0, 1, 9) if number < 9 or domain == "drive"), *others]
        pairs = [{"image": path.format("images"), "label": path.format("masks")} for path in paths]
        (base / f"{domain}.json").write_text(json.dumps({"training": pairs}))
    assert "duplicates  1 images are there more than once (same bytes): 0 in several domains" in told(root)
    listed = json.loads((base / "drive.json").read_text())
    listed["training"].append({"image": "drive/images/3.png", "label": "drive/masks/3.png"})
    (base / "drive.json").write_text(json.dumps(listed))
    lines = told(root)
    first = lines.index("duplicates  2 images are there more than once (same bytes): 1 in several domains")
    assert lines[first + 1 : first + 3] == [
        "  drive: drive/images/3.png = stare: drive/images/3.png",
        "  drive: drive/images/1.png = drive: drive/images/9.png",
    ]


def told(root: Path) -> list[str]:
    result = run("check", "vessels", "--data-root", root)
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def test_check_refuses_a_domain_with_which_no_run_can_start(root: Path) -> None:
    for number in range(1, 4):
        for part in ("images", "masks"):
            (root / "vessels" / "stare" / part / f"{number}.png").unlink()
    result = run("check", "vessels", "--data-root", root)
    assert result.exit_code == 2
    assert "of the 1 training images of domain 'stare', 1 can be used; expected at least 2." in result.stderr


def test_the_stand_in_for_vessels_is_drawn_and_cannot_be_taken_for_retinas(tmp_path: Path) -> None:
    to = tmp_path / "drawn"
    done = run("stand-in", "--dataset", "vessels", "--images-per-class", 2, "--to", to)
    assert done.exit_code == 0, done.output
    assert "STAND-IN for Retinal vessels, drawings in vessels/" in done.stdout
    assert run("check", "vessels", "--data-root", to).exit_code == 0
    assert run("verify", "vessels", "--data-root", to).exit_code == 2
    assert "STAND-IN" in run("list", "--data-root", to).stdout
    assert "nothing was drawn" in run("stand-in", "--dataset", "vessels", "--to", to).stdout
    refused = run("stand-in", "--dataset", "vlcs", "--to", tmp_path / "other")
    assert "data set 'vlcs' is not drawn; expected --dataset pacs, vessels, celeba" in refused.stderr
