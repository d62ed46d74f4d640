# SPDX-License-Identifier: Apache-2.0
"""``fdg data`` as a user meets it: what is printed, what is on disk afterwards, and one sentence for a mistake."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import ExifTags, Image

from fdg_plugins.data import DATASETS, find_data_root, open_domain
from fdg_plugins.data.catalogue import PACS, Origin, Release, origin_of
from fdg_plugins.data.folders import MANIFEST
from fdg_plugins.lab.preparation import checks
from tests.cli.commands import check_refusal, fdg, printed
from tests.data.published import published, write_zip
from tests.own_drawings import draw_own

pytestmark = pytest.mark.usefixtures("no_fdg_variables")


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """An archive with the domain ``photo`` of PACS, two images of each class."""
    photos = {path: content for path, content in published("pacs").items() if "/photo/" in path}
    return write_zip(tmp_path / "PACS.zip", photos)


def test_an_archive_becomes_a_data_set_with_a_manifest_that_verify_compares_with(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = Release(name="small", source="a test", images={"photo": 14})
    origin = Origin(page="https://example.org", obtain="", licence="", terms="", releases=(release,))
    monkeypatch.setattr(checks, "origin_of", lambda dataset: origin)
    root = tmp_path / "root"
    prepared = printed("data", "prepare", "pacs", archive, "--data-root", root)
    for told in ("14 files written, 0 were there", "expected: small (a test)", f"terms: {origin_of('pacs').terms}"):
        assert told in prepared
    assert len(open_domain(root, "pacs", "photo", seed=0).test) == 14
    assert "pacs: 0 files written, 14" in fdg("data", "prepare", "pacs", archive, "--data-root", root).stdout
    assert "all 14 files are as the manifest says" in fdg("data", "verify", "pacs", "--data-root", root).stdout
    (root / "pacs" / "photo" / "dog" / "00001.jpg").unlink()
    changed = fdg("data", "verify", "pacs", "--data-root", root)
    check_refusal(changed, "missing: 1, extra: 0, changed: 0")
    assert "missing photo/dog/00001.jpg" in changed.stdout
    (root / "pacs" / MANIFEST).unlink()
    check_refusal(fdg("data", "verify", "pacs", "--data-root", root), "photo has 13 images, expected 14")


def test_other_numbers_than_known_end_with_2_and_no_manifest(archive: Path, tmp_path: Path) -> None:
    words = ("data", "prepare", "pacs", archive, "--data-root", tmp_path)
    result = fdg(*words)
    check_refusal(result, "photo has 14 images, expected 1,670 (dog 2 of 189,", "--any-counts accepts what is there")
    assert not (tmp_path / "pacs" / MANIFEST).exists()
    assert "note: photo has 14 images, expected 1,670" in fdg(*words, "--any-counts").stdout
    manifest = checks.read_manifest(tmp_path, PACS)
    assert manifest is not None
    assert manifest.release is None


def test_the_list_says_what_is_under_the_data_root(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = fdg("data", "list").stdout.splitlines()
    assert [line.split()[0] for line in lines[1:]] == [spec.name for spec in DATASETS.loaded()]
    assert origin_of("pacs").terms in fdg("data", "list", "pacs").stdout
    fdg("data", "prepare", "pacs", archive, "--data-root", tmp_path, "--any-counts")
    monkeypatch.setenv("FDG_DATA_ROOT", str(tmp_path))
    rows = {line.split()[0]: line for line in fdg("data", "list").stdout.splitlines()}
    assert rows["pacs"].endswith("1 of 4 domains, manifest")
    assert rows["vlcs"].endswith("no")
    (tmp_path / "pacs" / MANIFEST).unlink()
    assert "1 of 4 domains, preparation not ended" in fdg("data", "list").stdout


def test_a_mistake_ends_in_one_sentence(tmp_path: Path) -> None:
    for arguments, sentence in (
        (("prepare", "imagenet", "x"), "data set 'imagenet' is unknown"),
        (("prepare", "rotateddigits", "x"), "comes with an installed package"),
        (("verify", "pacs"), "holds no domain; expected one of"),
        (("verify", "pasc"), "there is no folder 'pasc' here"),
        (("verify", "pacs", "--write"), "--write is for your images"),
    ):
        check_refusal(fdg("data", *arguments, "--data-root", tmp_path), sentence)
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"


def test_the_stand_in_is_drawn_once_and_never_taken_for_the_data_set(archive: Path, tmp_path: Path) -> None:
    place = tmp_path / "drawn"
    assert "STAND-IN" in fdg("data", "stand-in", place).stdout
    assert find_data_root("pacs", place, None).stand_in
    assert "nothing was drawn" in fdg("data", "stand-in", place).stdout
    check_refusal(fdg("data", "stand-in", place, "--dataset", "vessels"), "another data set than vessels")
    check_refusal(fdg("data", "stand-in", tmp_path / "x", "--dataset", "vlcs"), "vlcs")
    assert "Warning: data root" in fdg("data", "verify", "pacs", "--data-root", place).stderr
    root = tmp_path / "root"
    check_refusal(fdg("data", "prepare", "pacs", place, "--data-root", root), "STAND-IN")
    check_refusal(fdg("data", "prepare", "pacs", archive, "--data-root", place), "holds the STAND-IN")
    check_refusal(fdg("data", "stand-in", tmp_path), "expected a new or an empty folder")


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return draw_own(tmp_path / "Meine Fotos")


def test_check_says_what_is_there_and_draws_a_row_for_each_domain(photos: Path, tmp_path: Path) -> None:
    shutil.rmtree(photos / "sketch" / "Hund")
    tag = Image.Exif()
    tag[ExifTags.Base.Orientation] = 6
    Image.new("RGB", (20, 20), (9, 99, 9)).save(photos / "photo" / "Hund" / "turned.jpg", exif=tag)
    told = printed("data", "check", photos, "--sheets", tmp_path / "sheets")
    assert "4 domains (Bäder & Küchen, photo, sketch, Öl gemälde), 3 classes" in told
    assert "sketch: no image of Hund" in told
    assert "photo: 1 of 16 images have an EXIF orientation" in told
    assert "BMP 3, JPEG 3, PNG 3, TIFF 3, WEBP 3" in told
    rows = np.array_split(np.asarray(Image.open(tmp_path / "sheets" / "Meine_Fotos.png")), 4)
    assert all(len(np.unique(row.reshape(-1, row.shape[-1]), axis=0)) > 50 for row in rows)


def test_check_names_damaged_and_duplicate_files_those_of_two_domains_first(photos: Path) -> None:
    shutil.copy(photos / "photo" / "Hund" / "bild 0.png", photos / "photo" / "Hund" / "again.png")
    shutil.copy(photos / "photo" / "vogel" / "bild 0.png", photos / "sketch" / "vogel" / "again.png")
    (photos / "photo" / "Hund" / "broken.jpg").write_bytes(b"no image")
    deep = np.arange(400, dtype=np.uint16).reshape(20, 20)
    Image.fromarray(deep).save(photos / "photo" / "Hund" / "deep.png")
    result = fdg("data", "check", photos)
    check_refusal(result, "2 of the images cannot be used")
    assert "2 images are there more than once (same bytes): 1 in several domains" in result.stdout
    assert [line.strip() for line in result.stdout.splitlines() if " = " in line] == [
        "photo/vogel/bild 0.png = sketch/vogel/again.png",
        "photo/Hund/again.png = photo/Hund/bild 0.png",
    ]
    assert "broken.jpg cannot be read" in result.stdout
    assert "deep.png has values from 0 to 399" in result.stdout


def test_check_names_what_is_not_used_and_what_the_file_excludes_is_no_news(photos: Path) -> None:
    dog = photos / "photo" / "Hund"
    (dog / "inner").mkdir()
    shutil.copy(dog / "bild 0.png", dog / "inner")
    (dog / "1.HEIC").touch()
    shutil.copy(dog / "bild 0.png", photos / "photo" / "beside.png")
    assert "photo: not used: 3 files or folders (such as photo/" in printed("data", "check", photos)
    described = 'domains = ["photo", "sketch", "quick draw"]\nexclude = ["*.HEIC", "photo/Hund/inner/*", "*.xyz"]'
    (photos / "dataset.toml").write_text(described)
    result = fdg("data", "check", photos)
    assert result.stdout.count("not used") == 1
    assert "Warning: exclude names *.xyz, which no file matches" in result.stderr
    assert "Warning: no folder for quick draw; a run on this machine needs every domain" in result.stderr


def test_verify_compares_with_the_manifest_that_it_wrote(photos: Path) -> None:
    assert "only the images were counted" in fdg("data", "verify", photos).stdout
    assert fdg("data", "verify", photos, "--write").exit_code == 0
    assert "all 60 files are as the manifest says" in fdg("data", "verify", photos).stdout
    (photos / "dataset.toml").write_text('title = "Photos"\n')
    assert "extra   dataset.toml" in fdg("data", "verify", photos).stdout


def test_a_slip_costs_one_sentence(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(photos.parent)
    check_refusal(fdg("run", "fedavg", "--dataset", photos.name, "--data-root", "."), "which is the data root")
    check_refusal(fdg("run", "fedavg", "--dataset", f"{photos.name}/photo"), f"{photos.name}/photo")
    check_refusal(fdg("run", "fedavg", "--dataset", "nowhere/photos"), "nowhere/photos")
    assert not (photos.parent / "runs").exists()


def test_one_image_of_each_class_is_too_few_for_a_check_and_for_a_run_alike(tmp_path: Path) -> None:
    for place in ("a/x/0", "a/x/1", "a/x/2", "a/y/0", "a/y/1", "a/y/2", "b/x/0", "b/y/0", "c/x/0", "c/y/0"):
        file = tmp_path / "odd" / f"{place}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (9, 9), (ord(place[0]), ord(place[2]), ord(place[4]))).save(file)
    checked = fdg("data", "check", tmp_path / "odd")
    check_refusal(checked, "no image to train or to validate on in b, c")
    assert re.search(r"^a +6 +4 +2 ", checked.stdout, re.MULTILINE)
    run = fdg("run", "fedavg", "--dataset", tmp_path / "odd", "--target", "b", "--to", tmp_path / "run")
    check_refusal(run, "domain 'c'", "('validation', 0)")


@pytest.fixture
def vessels(tmp_path: Path) -> Path:
    """A data root with four pairs in each of two domains; a tenth of each mask is vessel."""
    generator = np.random.default_rng(0)
    for folder in (tmp_path / "root" / "vessels" / domain for domain in ("drive", "stare")):
        for number in range(4):
            mask = np.zeros((20, 30), dtype=np.uint8)
            mask[2 * number : 2 * number + 2] = 255
            for part, pixels in (("images", generator.integers(0, 256, (20, 30, 3), dtype=np.uint8)), ("masks", mask)):
                (folder / part).mkdir(parents=True, exist_ok=True)
                Image.fromarray(pixels).save(folder / part / f"{number}.png")
    return tmp_path / "root"


def test_pairs_that_are_prepared_can_be_verified(vessels: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    done = fdg("data", "prepare", "vessels", vessels, "--any-counts", "--data-root", target)
    for told in ("16 files written", "not in the source: chase_db1 (CHASEDB1.zip)", "drive has 4 images, expected 40"):
        assert told in done.stdout
    assert fdg("data", "verify", "vessels", "--data-root", target).exit_code == 0
    (target / "vessels" / "drive" / "masks" / "1.png").write_bytes(b"no image")
    assert "changed drive/masks/1.png" in fdg("data", "verify", "vessels", "--data-root", target).stdout


def test_check_prints_the_facts_of_masks_and_draws_a_sheet_of_each_domain(vessels: Path, tmp_path: Path) -> None:
    result = fdg("data", "check", "vessels", "--data-root", vessels, "--sheets", tmp_path / "sheets")
    assert result.exit_code == 0, result.output
    assert re.search(r"^drive +4 +3 +1 +0 +20 x 30 +0.100 \(0.100 to 0.100\)", result.stdout, re.MULTILINE)
    assert "Warning: no folder for chase_db1, hrf;" in result.stderr
    assert sorted(path.name for path in (tmp_path / "sheets").iterdir()) == ["drive.png", "stare.png"]
    with Image.open(tmp_path / "sheets" / "drive.png") as sheet:
        assert min(sheet.size) > 600
    stare = vessels / "vessels" / "stare"
    (stare / "masks" / "2.png").write_bytes(b"no image")
    (stare / "masks" / "4.mha").touch()
    result = fdg("data", "check", "vessels", "--data-root", vessels)
    check_refusal(result, "1 of the images cannot be used")
    assert "masks/2.png cannot be read" in result.stdout
    assert "stare: not used: 1 file" in result.stdout
    for file in stare.glob("*/[1-3].png"):
        file.unlink()
    told = fdg("data", "check", "vessels", "--data-root", vessels).stderr
    assert "no image to train or to validate on in stare, which can only be held out" in told
