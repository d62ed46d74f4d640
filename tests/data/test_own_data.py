# SPDX-License-Identifier: Apache-2.0
"""A user's own images as a data set: what is found, what a file says, and what is refused."""

import shutil
from pathlib import Path

import pytest
from nvflare.apis.utils.format_check import name_check

from fdg_plugins.data import dataset_spec, open_domain, own_data
from fdg_plugins.data.own_folder import OwnData
from fdg_plugins.data.site_names import site_names
from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.plugins.own_dataset import OwnDataset, read_own_dataset
from fdg_plugins.settings.protocol import make_protocol
from tests.own_drawings import CLASSES, DOMAINS, draw_own


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return draw_own(tmp_path / "Meine Fotos")


def say(folder: Path, text: str) -> OwnData:
    (folder / "dataset.toml").write_text(text, encoding="utf-8")
    return own_data(folder)


def test_domains_and_classes_are_the_sorted_names_of_the_folders(photos: Path) -> None:
    (photos / "notes").mkdir()
    (photos / "photo" / "empty").mkdir()
    found = own_data(photos)
    assert (found.dataset.domains, found.dataset.classes) == (DOMAINS, CLASSES)
    assert (found.dataset.name, found.dataset.title, found.root, found.file) == (
        "Meine_Fotos",
        "Meine Fotos",
        photos,
        None,
    )
    assert found.absent == {}


def test_a_file_orders_the_classes_and_leaves_out_files_and_folders(photos: Path) -> None:
    (photos / "old").mkdir()
    shutil.copytree(photos / "photo" / "Hund", photos / "old" / "Hund")
    shutil.copytree(photos / "photo" / "Hund", photos / "photo" / "unsure")
    own = say(
        photos,
        """
        title = "My photographs"
        classes = ["vogel", "Hund", "große Katze"]
        exclude = ["old/*", "*/unsure/*", "photo/Hund/bild 0.png"]
        """,
    )
    assert own.dataset.classes == ("vogel", "Hund", "große Katze")
    assert own.dataset.domains == DOMAINS
    data = open_domain(photos, own.dataset, "photo", seed=0)
    assert data.skipped == ("photo/Hund/bild 0.png",)
    assert len(data.test) == 14
    assert {data.classes[sample.label] for sample in data.test if "/Hund/" in sample.file} == {"Hund"}


def test_a_file_elsewhere_describes_a_folder(photos: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('folder = "Meine Fotos"\nexclude = ["photo/vogel/*"]', encoding="utf-8")
    own = own_data(file)
    assert (own.root, own.file, own.file_is_found) == (photos, file, False)
    assert len(open_domain(photos, own.dataset, "photo", seed=0, dataset_file=file).test) == 10
    assert len(open_domain(photos, own.dataset, "photo", seed=0).test) == 15


def test_folders_in_the_domains_divide_them(tmp_path: Path) -> None:
    whole = draw_own(tmp_path / "whole")
    root = tmp_path / "divided"
    for domain in DOMAINS:
        for part in ("train", "val", "test"):
            shutil.copytree(whole / domain, root / domain / part)
    with pytest.raises(DataError, match=r"\[parts\] in dataset.toml"):
        own_data(root)
    own = say(root, '[parts]\ntrain = "train"\nvalidation = "val"\ntest = "test"')
    assert (own.dataset.domains, own.dataset.classes) == (DOMAINS, CLASSES)
    data = open_domain(root, own.dataset, "photo", seed=0)
    assert {sample.file.split("/")[1] for sample in data.train} == {"train"}
    assert {sample.file.split("/")[1] for sample in data.validation} == {"val"}
    assert (len(data.train), len(data.validation), len(data.test)) == (15, 15, 45)
    assert data.split == "divided/parts"


def test_lists_divide_the_domains_and_images_in_none_never_train(photos: Path) -> None:
    for domain in DOMAINS:
        (photos / f"{domain}.txt").write_text(
            f"Hund/bild 1.jpg\n{domain}/vogel/bild 0.png\n\nvogel/bild 2.webp\n", encoding="utf-8"
        )
    own = say(photos, '[lists]\ntrain = "{domain}.txt"')
    data = open_domain(photos, own.dataset, "photo", seed=0)
    assert len((*data.train, *data.validation)) == 3
    assert len(data.test) == 15
    assert data.split == "Meine_Fotos/lists+90-10@0"
    (photos / "photo.txt").unlink()
    with pytest.raises(DataError, match=r"photo.txt cannot be read") as caught:
        open_domain(photos, own.dataset, "photo", seed=0)
    assert caught.value.public == "a list of images of domain 'photo' cannot be read as text."
    (photos / "photo.txt").write_text("Hund/none.jpg\n")
    with pytest.raises(DataError, match=r"photo.txt, line 1: 'Hund/none.jpg'") as caught:
        open_domain(photos, own.dataset, "photo", seed=0)
    assert "none.jpg" not in caught.value.public


def test_a_list_that_names_an_image_twice_is_refused_whatever_the_seed(photos: Path) -> None:
    for domain in DOMAINS:
        (photos / f"{domain}.txt").write_text("Hund/bild 1.jpg\nvogel/bild 0.png\n" + f"{domain}/Hund/bild 1.jpg\n")
    own = say(photos, '[lists]\ntrain = "{domain}.txt"')
    for seed in range(3):
        with pytest.raises(DataError, match="line 3"):
            open_domain(photos, own.dataset, "photo", seed=seed)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("classes = 3", "classes is 3"),
        ("colour = true", "unknown field 'colour': known are format, name, title, folder, "),
        ('class = ["a"]', "unknown field 'class': did you mean 'classes'\\?"),
        ("classes = [", "is not TOML"),
        (f"format = {'1' * 5000}", "is not TOML"),
        ('classes = ["a", "a"]', "each name should be given once"),
        ('domains = ["../x", "y", "z"]', "a folder's name"),
        ('[lists]\ntrain = "../{domain}.txt"', "below the folder"),
        ('[lists]\ntrain = "list.txt"', "with {domain} in it"),
        ('[lists]\ntrain = "{domain}.txt"\n[parts]\ntrain = "train"', "not both"),
        (
            '[parts]\ntrain = "x"\nvalidation = "y"\ntest = "x"',
            "train, validation and test should be different folders",
        ),
        ("format = 2", "format is 2"),
        ('task = "segmentation"', "names no classes"),
    ],
)
def test_a_file_that_cannot_be_meant_so_is_refused_by_field(photos: Path, text: str, problem: str) -> None:
    with pytest.raises((DataError, SettingsError), match=problem):
        say(photos, text)


def test_a_file_that_leads_out_of_the_data_root_is_refused_at_a_site(photos: Path, tmp_path: Path) -> None:
    dataset = own_data(photos).dataset
    (tmp_path / "out.toml").write_text("exclude = []")
    (photos / "dataset.toml").symlink_to(tmp_path / "out.toml")
    with pytest.raises(DataError, match="is a link out of the data root") as caught:
        open_domain(photos, dataset, "photo", seed=0)
    assert caught.value.public == "its dataset.toml is a link."


def test_one_class_in_two_spellings_is_refused(photos: Path) -> None:
    (photos / "sketch" / "Hund").rename(photos / "sketch" / "hund")
    with pytest.raises(DataError, match="classes 'Hund' and 'hund'"):
        own_data(photos)


def test_every_domain_has_a_site_whose_name_flare_takes_and_plain_names_stay() -> None:
    domains = ("photo", "Bäder & Küchen", "Bader_Kuchen", "写真", "server", "a.b", "x" * 200)
    names = site_names(domains)
    assert (names[0], names[2], len(set(names))) == ("photo", "Bader_Kuchen", len(domains))
    for name in names:
        is_wrong, why = name_check(name, "client")
        assert not is_wrong, why
        assert name not in ("server", "@ALL")
    spec = dataset_spec(OwnDataset(name="mine", domains=domains, classes=("x", "y")))
    assert [spec.domain_of(spec.site_of(domain)) for domain in domains] == list(domains)


@pytest.mark.parametrize(
    "changes",
    [
        {"domains": ["../a", "b"]},
        {"domains": ["a/b", "b"]},
        {"domains": [".a", "b"]},
        {"domains": ["a\nb", "b"]},
        {"domains": ["a"]},
        {"classes": ["x", "x"]},
        {"classes": [3, 4]},
        {"name": "../mine"},
        {"folder": "/etc"},
        {"format": 2},
        {"channels": 1},
    ],
)
def test_a_description_from_a_job_can_name_nothing_but_folders(changes: dict[str, object]) -> None:
    value = {"name": "mine", "domains": ["a", "b"], "classes": ["x", "y"], **changes}
    with pytest.raises(SettingsError, match="dataset"):
        read_own_dataset(value)
    with pytest.raises(SettingsError, match="dataset"):
        make_protocol([{"dataset": value}])
