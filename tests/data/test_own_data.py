# SPDX-License-Identifier: Apache-2.0
"""A user's own images as a data set: what is found, what a file says, what is refused, and where a hint leads."""

import shutil
import unicodedata
from pathlib import Path

import pydantic
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from nvflare.apis.utils.format_check import name_check
from PIL import Image

from fdg_plugins.data import check_images, dataset_spec, open_domain, own_data
from fdg_plugins.data.image_files import ImageFiles
from fdg_plugins.data.own_folder import OwnData
from fdg_plugins.data.site_names import site_names
from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.messages import Name
from fdg_plugins.plugins.own_dataset import OwnDataset, dataset_text, is_folder_name, read_own_dataset
from fdg_plugins.settings.protocol import make_protocol
from fdg_plugins.settings.site_config import SiteConfig
from fdg_plugins.training.session import SiteSession
from tests.own_drawings import CLASSES, DOMAINS, SUFFIXES, draw_own


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


@pytest.mark.parametrize("place", [".", "photo"])
def test_a_link_to_itself_hides_nothing_beside_it(photos: Path, place: str) -> None:
    (photos / place / "loop").symlink_to("loop")
    assert own_data(photos).dataset.domains == DOMAINS
    assert len(open_domain(photos, own_data(photos).dataset, "photo", seed=0).test) == 15


@pytest.mark.parametrize("place", [".", "photo"])
@pytest.mark.parametrize("name", ["Hund ", " Hund", "a\tb"])
def test_a_folder_whose_name_cannot_be_used_is_refused_and_not_left_out(photos: Path, place: str, name: str) -> None:
    shutil.copytree(photos / "sketch" / "Hund", photos / place / name)
    with pytest.raises(DataError, match=r"has the folder .*, whose name cannot be used: expected no space") as refused:
        own_data(photos)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("domain", DOMAINS)
def test_images_of_every_format_colour_and_size_are_opened(photos: Path, domain: str) -> None:
    data = open_domain(photos, own_data(photos).dataset, domain, seed=0)
    check_images(data)
    assert len(data.test) == 15
    images = data.images
    assert isinstance(images, ImageFiles)
    assert {images.read(sample.file).shape[-1] for sample in data.test} == {3}


def test_a_class_that_a_domain_lacks_is_told_and_keeps_its_label_elsewhere(photos: Path) -> None:
    shutil.rmtree(photos / "sketch" / "Hund")
    found = own_data(photos)
    assert found.absent == {"sketch": ("Hund",)}
    data = open_domain(photos, found.dataset, "sketch", seed=0)
    assert {data.classes[sample.label] for sample in data.test} == {"große Katze", "vogel"}


@given(st.text(max_size=4))
@example("a\u200bb")  # a zero-width space, as names that are copied may have
@example("soft\u00adhyphen")
@example("a\u2028b")
def test_a_name_that_a_folder_may_have_is_one_that_messages_may_have(name: str) -> None:
    if is_folder_name(name):
        assert pydantic.TypeAdapter(Name).validate_python(name) == name


def test_a_name_that_a_folder_may_have_need_not_be_ascii() -> None:
    assert all(map(is_folder_name, ["dür", "фото", "草图", "a b", "x\u00a0y"]))
    assert not any(map(is_folder_name, ["", ".a", "a/b", "a\\b", "a ", "a\u200bb", "soft\u00adhyphen", "\ud800"]))


def test_a_name_of_the_catalogue_is_not_taken(photos: Path) -> None:
    assert own_data(photos.rename(photos.parent / "pacs")).dataset.name == "own_pacs"


def test_the_same_images_are_split_alike_in_any_place(photos: Path, tmp_path: Path) -> None:
    dataset = own_data(photos).dataset
    here = open_domain(photos, dataset, "photo", seed=3)
    there = open_domain(Path(shutil.copytree(photos, tmp_path / "elsewhere")), dataset, "photo", seed=3)
    assert here.split_hash == there.split_hash


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


def test_brackets_in_the_name_of_a_file_to_leave_out_stand_for_themselves(photos: Path) -> None:
    for name in ("copy[1].png", "copy1.png"):
        shutil.copy(photos / "photo" / "Hund" / "bild 0.png", photos / "photo" / "Hund" / name)
    own = say(photos, 'exclude = ["photo/*/copy[1].png"]')
    assert open_domain(photos, own.dataset, "photo", seed=0).skipped == ("photo/Hund/copy[1].png",)
    watched = own.rules.watched()
    assert watched.kept(["photo/Hund/copy1.png"]) == ["photo/Hund/copy1.png"]
    assert watched.idle == ["photo/*/copy[1].png"]


def test_a_name_to_leave_out_may_encode_its_accents_in_another_way_than_the_file(photos: Path) -> None:
    composed, decomposed = (
        unicodedata.normalize("NFC", "Kopie über.png"),
        unicodedata.normalize("NFD", "Kopie über.png"),
    )
    shutil.copy(photos / "photo" / "Hund" / "bild 0.png", photos / "photo" / "Hund" / decomposed)
    own = say(photos, f'exclude = ["photo/Hund/{composed}"]')
    assert open_domain(photos, own.dataset, "photo", seed=0).skipped == (f"photo/Hund/{decomposed}",)


def test_what_a_file_says_about_files_does_not_travel(photos: Path) -> None:
    own = say(photos, 'exclude = ["photo/Hund/secret.png"]')
    assert "secret" not in dataset_text(own.dataset)


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
    with pytest.raises(DataError, match=r"holds test, train, val: name them as \[parts\] in dataset.toml"):
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
    with pytest.raises(DataError, match=r"photo.txt is not there, expected the file that dataset.toml names") as caught:
        open_domain(photos, own.dataset, "photo", seed=0)
    assert caught.value.public == "a list of images of domain 'photo' is not there."
    (photos / "photo.txt").write_text("Hund/none.jpg\n")
    with pytest.raises(DataError, match=r"photo.txt, line 1: 'Hund/none.jpg' is not an image of domain") as caught:
        open_domain(photos, own.dataset, "photo", seed=0)
    assert caught.value.public == "a list of images of domain 'photo', line 1: it names no image of the domain."


def test_a_list_that_names_an_image_twice_is_refused_whatever_the_seed(photos: Path) -> None:
    for domain in DOMAINS:
        (photos / f"{domain}.txt").write_text("Hund/bild 1.jpg\nvogel/bild 0.png\n" + f"{domain}/Hund/bild 1.jpg\n")
    own = say(photos, '[lists]\ntrain = "{domain}.txt"')
    for seed in range(3):
        with pytest.raises(DataError, match=r"line 3: '.*' is there for the second time, expected each image once"):
            open_domain(photos, own.dataset, "photo", seed=seed)


def test_a_class_with_the_name_of_its_domain_can_be_in_a_list(tmp_path: Path) -> None:
    for domain in ("cat", "drawing", "sketch"):
        for name in ("cat", "dog"):
            (tmp_path / domain / name).mkdir(parents=True)
            for number in range(3):
                Image.new("RGB", (8, 8), (80 * number, 0, 0)).save(tmp_path / domain / name / f"{number}.png")
        (tmp_path / f"{domain}.txt").write_text("cat/0.png\ncat/1.png\ndog/0.png\n" + f"{domain}/dog/1.png\n")
    own = say(tmp_path, '[lists]\ntrain = "{domain}.txt"')
    data = open_domain(tmp_path, own.dataset, "cat", seed=0)
    found = {sample.file for sample in (*data.train, *data.validation)}
    assert found == {"cat/cat/0.png", "cat/cat/1.png", "cat/dog/0.png", "cat/dog/1.png"}


def test_official_lists_may_name_what_a_file_leaves_out(photos: Path) -> None:
    for part, numbers in {"train": "0123", "crossval": "4"}.items():
        files = (
            f"photo/{name}/bild {number}{SUFFIXES[int(number)]} {label}"
            for label, name in enumerate(CLASSES, 1)
            for number in numbers
        )
        (photos / f"photo_{part}_kfold.txt").write_text("\n".join(files), encoding="utf-8")
    own = say(photos, 'exclude = ["photo/Hund/bild 1.jpg"]')
    data = open_domain(photos, own.dataset, "photo", seed=0)
    assert (data.split, len(data.train), len(data.validation)) == ("Meine_Fotos/kfold", 11, 3)
    assert data.skipped == ("photo/Hund/bild 1.jpg",)


def test_an_image_for_training_and_validation_is_refused(photos: Path) -> None:
    for domain in DOMAINS:
        (photos / f"{domain}.txt").write_text("Hund/bild 1.jpg\n")
    own = say(photos, '[lists]\ntrain = "{domain}.txt"\nvalidation = "{domain}.txt"')
    with pytest.raises(DataError, match=r"image photo/Hund/bild 1.jpg is for training and for validation"):
        open_domain(photos, own.dataset, "photo", seed=0)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("classes = 3", "classes is 3"),
        ("colour = true", "unknown field 'colour': known are format, name, title, folder, "),
        ('class = ["a"]', "unknown field 'class': did you mean 'classes'\\?"),
        ("classes = [", "is not TOML"),
        (f"format = {'1' * 5000}", "is not TOML: Exceeds the limit"),
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


def test_masks_need_the_names_of_their_classes(photos: Path, tmp_path: Path) -> None:
    root = tmp_path / "scans"
    for domain in "abc":
        for part in ("images", "masks"):
            shutil.copytree(photos / "sketch" / "Hund", root / domain / part)
    with pytest.raises(DataError, match=r'expected a dataset.toml with task = "segmentation" and classes'):
        own_data(root)
    own = say(root, 'task = "segmentation"\nclasses = ["background", "tumour"]\nmask_values = [[0], [255]]')
    spec = dataset_spec(own.dataset)
    assert (spec.task, spec.classes, spec.domains) == ("segmentation", ("background", "tumour"), ("a", "b", "c"))


@pytest.mark.parametrize(
    ("place", "hint"),
    [
        (".", "the domains seem to be one level deeper: use .*Meine Fotos"),
        ("Meine Fotos/photo", "looks like one domain: use its parent, .*Meine Fotos"),
        ("Meine Fotos/photo/Hund", "as the folder of a class does: use .*Meine Fotos"),
        ("nowhere", "is not a folder"),
    ],
)
def test_a_folder_on_the_wrong_level_is_told_where_the_domains_are(
    photos: Path, tmp_path: Path, place: str, hint: str
) -> None:
    with pytest.raises(DataError, match=hint):
        own_data(tmp_path / place)


def test_images_in_folders_of_classes_are_not_taken_for_domains_one_level_deeper(photos: Path) -> None:
    for folder in sorted(photos.glob("*/*")):
        folder.rename(folder.with_name("moved"))
        folder.mkdir()
        folder.with_name("moved").rename(folder / "monday")
    with pytest.raises(DataError, match=r"expected in the folders of classes themselves, such as .*/Hund, not in") as e:
        own_data(photos)
    assert "deeper" not in str(e.value)


def test_several_folders_of_other_domains_are_each_proposed(photos: Path, tmp_path: Path) -> None:
    for number, domain in enumerate(DOMAINS):
        folder = tmp_path / "all" / str(number // 2)
        folder.mkdir(parents=True, exist_ok=True)
        (photos / domain).rename(folder / domain)
    with pytest.raises(DataError, match=r"one level deeper: use .*/all/0 or .*/all/1"):
        own_data(tmp_path / "all")


def test_two_domains_are_too_few(photos: Path) -> None:
    for domain in DOMAINS[:2]:
        shutil.rmtree(photos / domain)
    with pytest.raises(DataError, match=r"holds 2 domains \(sketch, Öl gemälde\), expected at least 3"):
        own_data(photos)


def test_an_odd_name_around_does_not_hide_what_is_wrong(photos: Path) -> None:
    for domain in DOMAINS[:2]:
        shutil.rmtree(photos / domain)
    (photos.parent / "Old stuff ").mkdir()
    with pytest.raises(DataError, match="expected at least 3 folders"):
        own_data(photos)


def test_one_class_in_two_spellings_is_refused(photos: Path) -> None:
    (photos / "sketch" / "Hund").rename(photos / "sketch" / "hund")
    with pytest.raises(DataError, match="classes 'Hund' and 'hund', which differ in case only"):
        own_data(photos)


def test_one_class_whose_accents_are_encoded_in_two_ways_is_refused_and_not_taken_for_two(photos: Path) -> None:
    composed, decomposed = unicodedata.normalize("NFC", "Gemälde"), unicodedata.normalize("NFD", "Gemälde")
    for domain, name in zip(DOMAINS, (composed, decomposed) * 2, strict=True):
        shutil.copytree(photos / domain / "Hund", photos / domain / name)
    with pytest.raises(
        DataError, match=r"which differ in how accents are encoded only \('Gema\\u0308lde', 'Gem\\xe4lde'"
    ):
        own_data(photos)


def test_a_description_in_a_protocol_is_read_as_it_was_written() -> None:
    own = OwnDataset(name="mine", domains=("a b", "ö"), classes=("x", "y"))
    for value in (own.model_dump(mode="json"), dataset_text(own)):
        protocol = make_protocol([{"dataset": value, "target": "ö"}])
        assert protocol.dataset == own
        assert make_protocol([protocol.model_dump(mode="json")]) == protocol


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


def test_a_site_finds_its_domain_by_its_name_and_counts_an_absent_class_as_none(photos: Path) -> None:
    shutil.rmtree(photos / "Bäder & Küchen" / "vogel")
    protocol = make_protocol([{"dataset": own_data(photos).dataset, "target": "photo", "model": "convnet"}])
    reply = SiteSession("Bader_Kuchen", SiteConfig(data_root=photos, device="cpu"), protocol).census()
    assert (reply.domain, reply.dataset, reply.classes) == ("Bäder & Küchen", "Meine_Fotos", CLASSES)
    assert reply.class_counts == (5, 5, 0)
