# SPDX-License-Identifier: Apache-2.0
"""A user's own images as a data set: what is found, what a file says, and what is refused."""

import shutil
from pathlib import Path

import pytest
from nvflare.apis.utils.format_check import name_check

from fdg_plugins.data import dataset_spec, open_domain, own_data
from fdg_plugins.data.own_files import OwnData
from fdg_plugins.data.site_names import site_names
from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.plugins.own_dataset import OwnDataset, read_own_dataset
from fdg_plugins.settings.protocol import make_protocol
from tests.data.conftest import refused
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
    shutil.rmtree(photos / "sketch" / "vogel")
    found = own_data(photos)
    assert (found.dataset.domains, found.dataset.classes) == (DOMAINS, CLASSES)
    assert (found.dataset.name, found.dataset.title) == ("Meine_Fotos", "Meine Fotos")
    assert (found.root, found.file, found.absent) == (photos, None, {"sketch": ("vogel",)})
    assert found.ignored == ("notes",)


def test_a_file_orders_the_classes_and_leaves_out_files_and_folders(photos: Path, tmp_path: Path) -> None:
    (photos / "old").mkdir()
    shutil.copytree(photos / "photo" / "Hund", photos / "old" / "Hund")
    shutil.copytree(photos / "photo" / "Hund", photos / "photo" / "unsure")
    exclude = 'exclude = ["old/*", "*/unsure/*", "photo/Hund/bild 0.png", "none/*"]'
    own = say(photos, f'classes = ["vogel", "Hund", "große Katze"]\n{exclude}')
    assert (own.dataset.domains, own.dataset.classes) == (DOMAINS, ("vogel", "Hund", "große Katze"))
    data = open_domain(photos, own.dataset, "photo", seed=0)
    assert (data.skipped, len(data.test)) == (("photo/Hund/bild 0.png",), 14)
    assert {data.classes[sample.label] for sample in data.test if "/Hund/" in sample.file} == {"Hund"}
    elsewhere = tmp_path / "mine.toml"
    elsewhere.write_text('folder = "Meine Fotos"\nexclude = ["old/*", "*/unsure/*", "photo/vogel/*"]', encoding="utf-8")
    own = own_data(elsewhere)
    assert (own.root, own.file) == (photos, elsewhere)
    assert len(open_domain(photos, own.dataset, "photo", seed=0, dataset_file=elsewhere).test) == 10


def test_folders_in_the_domains_divide_them(tmp_path: Path) -> None:
    whole = draw_own(tmp_path / "whole")
    root = tmp_path / "divided"
    for domain in DOMAINS:
        for part in ("train", "val", "test"):
            shutil.copytree(whole / domain, root / domain / part)
    with refused("folder"):
        own_data(root)
    with refused("[parts]"):
        say(root, '[parts]\ntrain = "train"\nvalidation = "vla"')
    own = say(root, '[parts]\ntrain = "train"\nvalidation = "val"\ntest = "test"')
    assert (own.dataset.domains, own.dataset.classes) == (DOMAINS, CLASSES)
    data = open_domain(root, own.dataset, "photo", seed=0)
    for part, samples in (("train", data.train), ("val", data.validation)):
        assert {sample.file.split("/")[1] for sample in samples} == {part}
    assert (len(data.train), len(data.validation), len(data.test), data.name) == (15, 15, 45, "divided/parts")


def test_lists_divide_the_domains_and_images_in_none_never_train(photos: Path) -> None:
    own = say(photos, '[lists]\ntrain = "{domain}.txt"')
    list_ = photos / "photo.txt"
    list_.write_text("Hund/bild 1.jpg\nphoto/vogel/bild 0.png\n\nvogel/bild 2.webp\n", encoding="utf-8")
    data = open_domain(photos, own.dataset, "photo", seed=0)
    assert (len((*data.train, *data.validation)), len(data.test)) == (3, 15)
    assert data.name == "Meine_Fotos/lists+90-10@0"
    for content, problem in (
        ("Hund/none.jpg\n", "line 1"),
        ("Hund/bild 1.jpg\nvogel/bild 0.png\nphoto/Hund/bild 1.jpg\n", "line 3"),
    ):
        list_.write_text(content)
        with refused(problem):
            open_domain(photos, own.dataset, "photo", seed=0)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("classes = 3", "classes is 3"),
        ('class = ["a"]', "unknown field 'class': did you mean 'classes'?"),
        ("classes = [", "as TOML"),
        ('domains = ["../x", "y", "z"]', "domains"),
        ('[lists]\ntrain = "../{domain}.txt"', "lists.train"),
        ('[lists]\ntrain = "{domain}.txt"\n[parts]\ntrain = "train"', "not both"),
        ('task = "segmentation"', "needs classes"),
    ],
)
def test_a_file_that_cannot_be_meant_so_is_refused_by_field(photos: Path, text: str, problem: str) -> None:
    with pytest.raises((DataError, SettingsError)) as caught:
        say(photos, text)
    assert problem in str(caught.value)


def test_a_file_that_leads_out_of_the_data_root_and_a_class_in_two_spellings_are_refused(
    photos: Path, tmp_path: Path
) -> None:
    dataset = own_data(photos).dataset
    (tmp_path / "out.toml").write_text("exclude = []")
    (photos / "dataset.toml").symlink_to(tmp_path / "out.toml")
    with refused("link"):
        open_domain(photos, dataset, "photo", seed=0)
    (photos / "sketch" / "Hund").rename(photos / "sketch" / "hund")
    with refused("classes"):
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
    assert [spec.share_of(spec.site_of(domain))[0] for domain in domains] == list(domains)


@pytest.mark.parametrize(
    "changes",
    [
        *({"domains": [name, "b"]} for name in ("../a", "a/b", ".a", "a\nb")),
        *({"domains": []}, {"classes": ["x", "x"]}, {"classes": [3, 4]}, {"name": "../mine"}, {"folder": "/etc"}),
    ],
)
def test_a_description_from_a_job_can_name_nothing_but_folders(changes: dict[str, object]) -> None:
    value = {"name": "mine", "domains": ["a", "b"], "classes": ["x", "y"], **changes}
    for read in (read_own_dataset, lambda one: make_protocol([{"dataset": one}])):
        with pytest.raises(SettingsError):
            read(value)
