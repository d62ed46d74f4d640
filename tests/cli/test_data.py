# SPDX-License-Identifier: Apache-2.0
"""``fdg data`` as a user meets it: what is printed, what is on disk afterwards, and one sentence for every mistake."""

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from fdg_plugins.cli.data import data_app
from fdg_plugins.data import DATASETS, PACS, VLCS, dataset_spec, find_data_root, open_domain
from fdg_plugins.data.catalogue import Origin, Release, origin_of
from fdg_plugins.data.folders import MANIFEST
from fdg_plugins.lab.preparation import checks

pytestmark = pytest.mark.usefixtures("no_fdg_variables")


def run(*arguments: object, data_root: Path | None = None) -> Result:
    options = [] if data_root is None else ["--data-root", str(data_root)]
    return CliRunner().invoke(data_app, [*(str(argument) for argument in arguments), *options])


def picture(number: int) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (2, 2), (number, 0, 0)).save(stream, "PNG")
    return stream.getvalue()


PHOTOS = {
    f"PACS/photo/{name}/{n}.jpg": picture(10 * label + n) for label, name in enumerate(PACS.classes) for n in (1, 2)
}


def archive(path: Path, files: Mapping[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as target:
        for name, content in files.items():
            target.writestr(name, content)
    return path


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """An archive with the domain ``photo`` of PACS, two images of each class."""
    return archive(tmp_path / "PACS.zip", PHOTOS)


@pytest.fixture
def fourteen_photos(monkeypatch: pytest.MonkeyPatch) -> None:
    """A PACS whose domain ``photo`` has two images of each class."""
    release = Release(name="small", source="a test", images={"photo": 14})
    origin = Origin(page="https://example.org", obtain="", licence="", terms="", releases=(release,))
    monkeypatch.setattr(checks, "origin_of", lambda dataset: origin)


def check_refusal(result: Result, sentence: str) -> None:
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit)
    assert len(result.stderr.strip().splitlines()) == 1
    assert result.stderr.lstrip().startswith("Error: ")
    assert sentence in result.stderr


# --- list -------------------------------------------------------------------------------------------------


def test_the_list_has_one_line_for_each_data_set_and_the_terms_of_one_on_request() -> None:
    lines = run("list").stdout.splitlines()
    assert [line.split()[0] for line in lines[2:]] == [spec.name for spec in DATASETS.loaded()]
    assert origin_of("pacs").terms in " ".join(run("list", "pacs").stdout.split())


def test_the_list_says_what_is_under_the_data_root(photos: Path, tmp_path: Path) -> None:
    run("prepare", "pacs", "--from", photos, "--any-counts", data_root=tmp_path)
    result = run("list", data_root=tmp_path)
    rows = {line.split()[0]: line for line in result.stdout.splitlines() if "│" in line}
    assert rows["pacs"].rstrip().endswith("1 of 4 domains, manifest")
    assert rows["vlcs"].rstrip().endswith("no")
    assert rows["rotateddigits"].rstrip().endswith("with scikit-learn")


def test_the_list_of_a_data_root_that_is_not_there_is_refused(tmp_path: Path) -> None:
    check_refusal(run("list", data_root=tmp_path / "away"), "away is not a folder; expected --data-root or FDG_DATA_RO")


# --- prepare ----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("fourteen_photos")
def test_an_archive_becomes_a_data_set_with_a_manifest(photos: Path, tmp_path: Path) -> None:
    result = run("prepare", "pacs", "--from", photos, data_root=tmp_path / "root")
    assert result.exit_code == 0, result.output
    assert "pacs: 14 files written, 0 were there already" in result.stdout
    assert "expected: small (a test)" in result.stdout
    assert f"{MANIFEST}: 14 files, sha256 " in result.stdout
    assert f"terms: {origin_of('pacs').terms}; {origin_of('pacs').page}" in result.stdout
    assert len(open_domain(tmp_path / "root", "pacs", "photo", seed=0).test) == 14
    again = run("prepare", "pacs", "--from", photos, data_root=tmp_path / "root")
    assert "pacs: 0 files written, 14 were there already" in again.stdout


def test_other_numbers_than_known_end_with_2_and_no_manifest(photos: Path, tmp_path: Path) -> None:
    result = run("prepare", "pacs", "--from", photos, data_root=tmp_path)
    check_refusal(result, "photo has 14 images, expected 1,670 (dog 2 of 189,")
    assert "no manifest was written (--any-counts accepts what is there)" in result.stderr
    assert "1,670" in result.stdout, "the table is shown all the same"
    assert not (tmp_path / "pacs" / MANIFEST).exists()
    accepted = run("prepare", "pacs", "--from", photos, "--any-counts", data_root=tmp_path)
    assert accepted.exit_code == 0
    assert "note: photo has 14 images, expected 1,670" in accepted.stdout
    assert (tmp_path / "pacs" / MANIFEST).exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ("prepare", "imagenet", "--from", "x"),
            "data set 'imagenet' is unknown, and no installed plug-in",
        ),
        (("prepare", "pacs", "--from", "/nowhere"), "source /nowhere is not there; expected a folder or an archive"),
        (("prepare", "rotateddigits", "--from", "x"), "comes with an installed package; there is nothing to prepare"),
        (("verify", "pacs"), "pacs is not there; fdg data prepare pacs makes it"),
        (("verify", "rotatedmnist"), "mnist is not there; fdg data prepare rotatedmnist makes it"),
        (("verify", "rotateddigits"), "there is nothing to prepare or verify"),
    ],
)
def test_a_mistake_ends_in_one_sentence(arguments: tuple[str, ...], sentence: str, tmp_path: Path) -> None:
    check_refusal(run(*arguments, data_root=tmp_path), sentence)
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"


# --- verify -----------------------------------------------------------------------------------------------


@pytest.fixture
def root(photos: Path, tmp_path: Path) -> Path:
    """A data root with the photos, prepared."""
    assert run("prepare", "pacs", "--from", photos, "--any-counts", data_root=tmp_path / "root").exit_code == 0
    return tmp_path / "root"


def test_what_was_not_touched_is_verified(root: Path) -> None:
    result = run("verify", "pacs", data_root=root)
    assert result.exit_code == 0, result.output
    assert "pacs: all 14 files are as the manifest says" in result.stdout


def test_the_list_tells_a_preparation_that_has_not_ended(root: Path) -> None:
    assert "1 of 4 domains, manifest" in " ".join(run("list", data_root=root).stdout.split())
    (root / "pacs" / MANIFEST).unlink()
    assert "1 of 4 domains, preparation not ended" in " ".join(run("list", data_root=root).stdout.split())


@pytest.mark.usefixtures("fourteen_photos")
def test_without_a_manifest_the_images_are_counted(root: Path) -> None:
    (root / "pacs" / MANIFEST).unlink()
    result = run("verify", "pacs", data_root=root)
    assert result.exit_code == 0, result.output
    assert "pacs: no manifest, so only the images were counted" in result.stdout
    (root / "pacs" / "photo" / "dog" / "1.jpg").unlink()
    check_refusal(run("verify", "pacs", data_root=root), "photo has 13 images, expected 14")


@pytest.mark.usefixtures("fourteen_photos")
def test_images_that_cannot_be_used_are_named_where_every_one_is_decoded(root: Path) -> None:
    result = run("verify", "pacs", "--images", data_root=root)
    assert result.exit_code == 0, result.output
    assert "pacs: all 14 images can be decoded" in result.stdout
    (root / "pacs" / MANIFEST).unlink()
    (root / "pacs" / "photo" / "dog" / "1.jpg").write_bytes(b"no image")
    Image.new("1", (8000, 8000)).save(root / "pacs" / "photo" / "dog" / "2.jpg", "PNG")
    assert run("verify", "pacs", data_root=root).exit_code == 0
    result = run("verify", "pacs", "--images", data_root=root)
    check_refusal(result, f"of 14 images of data set pacs in {root}, 2 cannot be used.")
    assert "unusable    photo/dog/1.jpg cannot be read" in result.stdout
    assert "unusable    photo/dog/2.jpg has " in result.stdout


@pytest.mark.usefixtures("fourteen_photos")
def test_an_image_whose_values_do_not_fit_is_named_with_the_reason(root: Path) -> None:
    (root / "pacs" / MANIFEST).unlink()
    drawn = np.random.default_rng(0).integers(0, 4096, (8, 8), dtype=np.uint16)
    Image.fromarray(drawn).save(root / "pacs" / "photo" / "dog" / "1.jpg", "PNG")
    result = run("verify", "pacs", "--images", data_root=root)
    check_refusal(result, f"of 14 images of data set pacs in {root}, 1 cannot be used.")
    assert "unusable    photo/dog/1.jpg has " in result.stdout


def test_a_data_set_of_which_no_number_is_known_is_counted_and_said_so(tmp_path: Path) -> None:
    for name in dataset_spec("domainnet10").classes:
        folder = tmp_path / "domainnet10" / "real" / name
        folder.mkdir(parents=True)
        (folder / "1.jpg").touch()
    result = run("verify", "domainnet10", data_root=tmp_path)
    assert result.exit_code == 0, result.output
    assert "not known" in result.stdout


# --- stand-in ---------------------------------------------------------------------------------------------


def test_the_stand_in_is_drawn_and_runs_on_it_know_it(tmp_path: Path) -> None:
    result = run("stand-in", "--to", tmp_path / "si", "--images-per-class", 2)
    assert result.exit_code == 0, result.output
    assert "STAND-IN" in result.stdout
    assert find_data_root("pacs", tmp_path / "si", None).stand_in
    assert len(open_domain(tmp_path / "si", "pacs", "sketch", seed=0).test) == 2 * len(PACS.classes)
    for same in ((), ("--images-per-class", 2)):
        assert "is there already; nothing was drawn" in run("stand-in", "--to", tmp_path / "si", *same).stdout
    more = run("stand-in", "--to", tmp_path / "si", "--images-per-class", 3)
    check_refusal(more, "holds the STAND-IN with 2 drawings each, expected a new folder for 3")
    check_refusal(run("stand-in", "--to", tmp_path / "si", "--dataset", "vessels"), "for another data set than vessels")
    assert "STAND-IN" in run("list", data_root=tmp_path / "si").stdout


def test_drawings_are_never_taken_for_the_data_set(photos: Path, tmp_path: Path) -> None:
    run("stand-in", "--to", tmp_path / "si", "--images-per-class", 1)
    check_refusal(run("verify", "pacs", data_root=tmp_path / "si"), "holds the STAND-IN, drawings; expected images of")
    refused = run("prepare", "pacs", "--from", tmp_path / "si", data_root=tmp_path / "root")
    check_refusal(refused, "it is the STAND-IN; expected images of PACS")
    refused = run("prepare", "pacs", "--from", photos, data_root=tmp_path / "si")
    check_refusal(refused, "holds the STAND-IN; expected another one for images of PACS")


def test_the_stand_in_is_not_drawn_over_anything(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    check_refusal(run("stand-in", "--to", tmp_path), "should be a new or an empty folder")
    check_refusal(
        run("stand-in", "--to", tmp_path / "x", "--dataset", VLCS.name), "data set 'vlcs' is not drawn; expected --d"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


# --- help -------------------------------------------------------------------------------------------------
