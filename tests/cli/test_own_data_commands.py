# SPDX-License-Identifier: Apache-2.0
"""A user's own folder in the commands: checked, verified, described in a job, and what is refused."""

import json
import re
import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from PIL import ExifTags, Image
from typer.testing import CliRunner, Result

from fdg_plugins.cli.main import app
from fdg_plugins.data import own_data
from fdg_plugins.storage import read_json
from tests.own_drawings import CLASSES, DOMAINS, draw_own

pytestmark = pytest.mark.usefixtures("no_fdg_variables")


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return draw_own(tmp_path / "Meine Fotos")


def fdg(*arguments: object) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments)])


def test_check_says_what_is_there_and_draws_a_row_for_each_domain(photos: Path, tmp_path: Path) -> None:
    shutil.rmtree(photos / "sketch" / "Hund")
    result = fdg("data", "check", photos, "--sheets", tmp_path / "sheets")
    assert result.exit_code == 0, result.stderr
    assert "4 domains (Bäder & Küchen, photo, sketch, Öl gemälde), 3 classes" in result.stdout
    assert "absent      sketch has no image of Hund" in result.stdout
    assert "BMP 3, JPEG 3, PNG 3, TIFF 3, WEBP 3" in result.stdout
    with Image.open(tmp_path / "sheets" / "Meine_Fotos.png") as sheet:
        edges = [place * sheet.height // 4 for place in range(5)]
        rows = [sheet.crop((0, upper, sheet.width, lower)) for upper, lower in pairwise(edges)]
        assert all(len(row.getcolors(maxcolors=2**24) or []) > 50 for row in rows)


def test_check_names_damaged_and_duplicate_files_those_of_two_domains_first(photos: Path) -> None:
    shutil.copy(photos / "photo" / "Hund" / "bild 0.png", photos / "photo" / "Hund" / "again.png")
    shutil.copy(photos / "photo" / "vogel" / "bild 0.png", photos / "sketch" / "vogel" / "again.png")
    (photos / "photo" / "Hund" / "broken.jpg").write_bytes(b"no image")
    result = fdg("data", "check", photos)
    assert result.exit_code == 2
    assert "2 images are there more than once (same bytes): 1 in several domains, 0 under" in result.stdout
    first, second = [line for line in result.stdout.splitlines() if " = " in line]
    assert first.strip() == "photo/vogel/bild 0.png = sketch/vogel/again.png"
    assert second.strip() == "photo/Hund/again.png = photo/Hund/bild 0.png"
    assert "broken.jpg cannot be read" in " ".join(result.stdout.split())
    assert "of 63 images" not in result.stdout
    assert "1 cannot be used" in result.stderr


def test_check_counts_images_that_viewers_turn_and_names_those_whose_values_do_not_fit(photos: Path) -> None:
    tag = Image.Exif()
    tag[ExifTags.Base.Orientation] = 6
    file = photos / "photo" / "Hund" / "turned.jpg"
    Image.new("RGB", (20, 20), (9, 99, 9)).save(file, exif=tag)
    result = fdg("data", "check", photos)
    assert result.exit_code == 0, result.output
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("turned")]
    assert line.strip() == "turned      photo: 1 of 16 images have an EXIF orientation, which is ignored"
    values = np.arange(400, dtype=np.uint16).reshape(20, 20)
    Image.fromarray(values).save(photos / "photo" / "Hund" / "deep.png")
    refused = fdg("data", "check", photos)
    assert refused.exit_code == 2
    assert "deep.png has values of more than 8 bits that reach only 399" in " ".join(refused.stdout.split())


def test_check_names_what_is_not_used_in_each_domain_and_why(photos: Path) -> None:
    dog = photos / "photo" / "Hund"
    for number in range(3):
        (dog / "inner" / "more").mkdir(parents=True, exist_ok=True)
        shutil.copy(dog / "bild 0.png", dog / "inner" / "more" / f"{number}.png")
    (dog / "1.HEIC").write_bytes(b"")
    (dog / "2.gif").write_bytes(b"")
    (dog / ".hidden.gif").write_bytes(b"")
    shutil.copy(dog / "bild 0.png", photos / "photo" / "beside.png")
    shutil.copytree(photos / "sketch" / "vogel", photos / "sketch" / "birds" / "inner")
    result = fdg("data", "check", photos)
    assert result.exit_code == 0, result.output
    assert [line.split(maxsplit=2)[2] for line in result.stdout.splitlines() if line.startswith("not used")] == [
        "photo: 4 files or folders (such as photo/Hund/1.HEIC)",
    ]
    (photos / "dataset.toml").write_text('exclude = ["*.gif", "*.HEIC", "photo/Hund/inner/*", "sketch/birds/*"]')
    assert "beside.png" in (quiet := fdg("data", "check", photos)).stdout
    assert quiet.stdout.count("not used") == 1, "what the user leaves out is no news"


def test_a_class_or_domain_of_which_nothing_is_usable_is_warned_of_by_every_command(photos: Path) -> None:
    for domain in ("photo", "sketch"):
        (photos / domain / "fish").mkdir()
        (photos / domain / "fish" / "1.gif").write_bytes(b"")
    (photos / "painting").mkdir()
    shutil.copy(photos / "photo" / "Hund" / "bild 0.png", photos / "painting")
    (photos / "lists").mkdir()
    (photos / "lists" / "notes.txt").write_text("no images")
    for command in (("data", "check", photos), ("export", "job", "--method", "fedavg", "--to", photos.parent / "jobs")):
        result = fdg(*command, *(() if command[0] == "data" else ("--data", photos)))
        assert result.exit_code == 0, result.output
        assert "Warning: not used: lists, painting; no image is where it is" in result.stderr
    (photos / "dataset.toml").write_text(f"domains = {json.dumps(DOMAINS)}\nclasses = {json.dumps(CLASSES)}")
    assert "Warning" not in fdg("data", "check", photos).stderr, "the file says what is to be used"


def test_verify_compares_with_the_manifest_that_it_wrote(photos: Path) -> None:
    counted = fdg("data", "verify", photos).stdout
    assert "only the images were counted" in counted
    assert "expected" not in counted, "nobody knows how many images a user's own data set should have"
    assert fdg("data", "verify", photos, "--write").exit_code == 0
    assert "all 60 files are as the manifest says" in fdg("data", "verify", photos).stdout
    (photos / "dataset.toml").write_text('title = "Photos"\n')
    result = fdg("data", "verify", photos)
    assert (result.exit_code, "extra   dataset.toml" in result.stdout) == (2, True), result.stdout
    (photos / "dataset.toml").unlink()
    (photos / "photo" / "Hund" / "bild 0.png").unlink()
    result = fdg("data", "verify", photos)
    assert result.exit_code == 2
    assert "missing photo/Hund/bild 0.png" in result.stdout


def test_verify_decodes_masks_too_and_follows_a_file_elsewhere(tmp_path: Path) -> None:
    for domain in ("a", "b", "c"):
        for kind in ("images", "masks"):
            (tmp_path / "pairs" / domain / kind).mkdir(parents=True)
            for number in range(3):
                Image.new("L", (16, 16), int(kind == "masks")).save(
                    tmp_path / "pairs" / domain / kind / f"{number}.png"
                )
    (tmp_path / "pairs" / "dataset.toml").write_text('task = "segmentation"\nclasses = ["background", "vessel"]\n')
    sound = fdg("data", "verify", tmp_path / "pairs", "--images")
    assert sound.exit_code == 0, sound.output
    (tmp_path / "pairs" / "a" / "images" / "1.png").write_bytes(b"no image")
    refused = fdg("data", "verify", tmp_path / "pairs", "--images")
    assert refused.exit_code == 2
    assert "cannot be used" in refused.stderr + refused.stdout
    described = tmp_path / "pairs" / "dataset.toml"
    described.write_text(described.read_text() + 'exclude = ["a/images/1.*", "a/masks/1.*"]\n')
    for command in (("verify", "--images"), ("check",)):
        done = fdg("data", command[0], tmp_path / "pairs", *command[1:])
        assert (done.exit_code, done.stderr) == (0, ""), "what is excluded is not looked at"
        assert re.search(r"^a +│ +2 ", done.stdout, re.MULTILINE)

    for number in range(4):
        file = tmp_path / "own" / "a" / "train" / "x" / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (16, 16)).save(file)
    for domain in ("b", "c"):
        shutil.copytree(tmp_path / "own" / "a", tmp_path / "own" / domain)
    for domain in ("a", "b", "c"):
        shutil.copytree(tmp_path / "own" / domain / "train" / "x", tmp_path / "own" / domain / "train" / "y")
    (tmp_path / "elsewhere.toml").write_text('folder = "own"\n[parts]\ntrain = "train"\n')
    counted = fdg("data", "verify", tmp_path / "elsewhere.toml")
    assert (counted.exit_code, counted.stderr) == (0, "")


def test_a_job_brings_the_description_and_no_code(photos: Path, tmp_path: Path) -> None:
    result = fdg("export", "job", "--method", "fedomg", "--data", photos, "--to", tmp_path / "jobs")
    assert result.exit_code == 0, result.stderr
    job = tmp_path / "jobs" / "Meine_Fotos_fedomg"
    server = read_json(job / "app_server" / "config" / "config_fed_server.json")["workflows"][0]["args"]
    assert server["protocol"]["dataset"] == own_data(photos).dataset.model_dump(mode="json")
    assert str(photos) not in json.dumps(server)
    assert not list(job.rglob("custom"))
    sites = [site for sites in read_json(job / "meta.json")["deploy_map"].values() for site in sites]
    assert sorted(sites) == ["Bader_Kuchen", "Ol_gemalde", "photo", "server", "sketch"]
    assert (set(CLASSES), set(DOMAINS)) == (
        set(server["protocol"]["dataset"]["classes"]),
        set(server["protocol"]["dataset"]["domains"]),
    )


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--data", ".", "--data-root", "."), "--data and --data-root exclude each other"),
        (("--data", ".", "--dataset", "pacs"), "--data and --dataset pacs exclude each other"),
        (("--data", "Meine Fotos", "--target", "Photo"), "did you mean 'photo'?"),
        (("--data", "Meine Fotos/photo",), "Use the folder above"),
        (("--data", "nowhere",), "nowhere', expected one that holds"),
        (("--dataset", "nowhere.toml",), "nowhere.toml cannot be read"),
    ],
)  # fmt: skip
def test_a_slip_costs_one_sentence(
    photos: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], problem: str
) -> None:
    monkeypatch.chdir(photos.parent)
    result = fdg("run", "fedavg", *options)
    assert result.exit_code == 2
    assert problem in " ".join(result.stderr.split())
    assert not (photos.parent / "runs").exists()


def test_doctor_says_what_the_folder_has(photos: Path) -> None:
    told = json.loads(fdg("doctor", "--data", photos, "--json").stdout)
    assert [one["status"] for one in told["findings"] if one["check"] == "data, own"] == ["ok"]
    assert (told["advice"]["sites"], told["advice"]["command"]) == (4, f"fdg run fedomg --data '{photos}'")
    found = json.loads(fdg("doctor", "--data", photos / "photo", "--json").stdout)["findings"]
    (own,) = [one for one in found if one["check"] == "data, own"]
    assert own["status"] == "problem"
    assert "Use the folder above" in own["text"]


def divided(root: Path, *domains: str, parts: tuple[str, ...] = ("",), count: int = 2) -> Path:
    """Write ``count`` images of each of two classes in each part of each domain; return the folder."""
    for domain in domains:
        for place in (root / domain / part / name for part in parts for name in ("x", "y")):
            place.mkdir(parents=True)
            for number in range(count):
                Image.new("RGB", (9, 9), (number, len(domain), 9)).save(place / f"{number}.png")
    return root


def test_one_image_of_each_class_is_too_few_for_a_check_and_for_a_run_alike(tmp_path: Path) -> None:
    odd = divided(divided(tmp_path / "odd", "a", count=3), "b", "c", count=1)
    checked = fdg("data", "check", odd)
    assert checked.exit_code == 2
    assert re.search(r"^a +│ +6 │ +4 │ +2 │", checked.stdout, re.MULTILINE)
    assert "no image to train or to validate on in b, c, expected both" in " ".join(checked.stderr.split())
    run = fdg("run", "fedavg", "--data", odd, "--target", "b", "--to", tmp_path / "run")
    assert (run.exit_code, (tmp_path / "run").exists()) == (2, False)
    assert "domain 'c' of data set odd has 2 training and 0 validation images" in " ".join(run.stderr.split())
    shutil.rmtree(odd / "c")
    held_out = fdg("data", "check", divided(odd, "c"))
    assert held_out.exit_code == 0
    assert "in b, which can only be held out" in " ".join(held_out.stderr.split())


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('train = "train"\nvalidation = "valid"', "'valid', expected the name of a folder in the domains"),
        ('train = "training"\nvalidation = "val"', "'training', expected the name of a folder in the domains"),
    ],
)
def test_a_part_that_no_domain_has_is_named(tmp_path: Path, text: str, problem: str) -> None:
    root = divided(tmp_path / "odd", "a", "b", "c", parts=("train", "val"))
    (root / "dataset.toml").write_text(f"[parts]\n{text}\n")
    for command in (("data", "check", root), ("run", "fedavg", "--data", root)):
        result = fdg(*command)
        assert result.exit_code == 2
        assert re.search(problem, " ".join(result.stderr.split()))


def test_a_domain_without_a_folder_is_named_but_no_error_as_a_site_has_its_own_alone(photos: Path) -> None:
    (photos / "dataset.toml").write_text('domains = ["photo", "sketch", "quick draw"]')
    result = fdg("data", "check", photos)
    assert result.exit_code == 0
    assert "no folder for quick draw; a run on this machine needs every domain" in " ".join(result.stderr.split())
