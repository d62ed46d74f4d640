# SPDX-License-Identifier: Apache-2.0
"""Repositories at Hugging Face as sources, with an object in place of the package ``datasets``: no network."""

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fdg_plugins.data import OFFICE_HOME, PACS, dataset_spec, open_domain
from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.lab.preparation import HubSource, prepare
from tests.data.published import image

PHOTO_ROWS = [{"image": image(n), "domain": "photo", "label": n % len(PACS.classes)} for n in range(14)]


class Rows:
    """What ``datasets.load_dataset`` returns, as far as it is used."""

    def __init__(self, rows: list[dict[str, Any]], features: dict[str, Any]) -> None:
        self._rows = rows
        self.features = features
        self.decode: bool | None = None

    def cast_column(self, column: str, feature: Any) -> "Rows":
        assert column == "image"
        self.decode = feature.decode
        return self

    def __getitem__(self, number: int) -> dict[str, Any]:
        assert self.decode is False, "images are not to be decoded and encoded again"
        row = self._rows[number]
        return row | {"image": {"bytes": row["image"], "path": None}}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[number] for number in range(len(self._rows)))


def features(classes: tuple[str, ...], domains: tuple[str, ...] | None = None) -> dict[str, Any]:
    domain = SimpleNamespace(dtype="string") if domains is None else SimpleNamespace(names=list(domains))
    return {"image": SimpleNamespace(), "domain": domain, "label": SimpleNamespace(names=list(classes))}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, str], Any]:
    """What is in the repositories, by repository and split; the test fills it."""
    content: dict[tuple[str, str], Any] = {}

    def load_dataset(repository: str, split: str) -> Rows:
        found = content[repository, split]
        if isinstance(found, Exception):
            raise found
        assert isinstance(found, Rows)
        return found

    package = SimpleNamespace(load_dataset=load_dataset, Image=lambda decode: SimpleNamespace(decode=decode))
    original = importlib.import_module
    monkeypatch.setattr(importlib, "import_module", lambda name: package if name == "datasets" else original(name))
    return content


def test_pacs_from_its_repository_is_prepared_and_opened(hub: dict[tuple[str, str], Any], tmp_path: Path) -> None:
    hub["flwrlabs/pacs", "train"] = Rows(PHOTO_ROWS, features(PACS.classes))
    source = HubSource("pacs")
    assert source.name == "Hugging Face flwrlabs/pacs"
    done = prepare(PACS, source, tmp_path, any_counts=True)
    assert (done.copied.written, done.plan.left_out) == (14, ())
    data = open_domain(tmp_path, "pacs", "photo", seed=0)
    assert [sample.file for sample in data.test][:2] == ["photo/dog/train_000000.png", "photo/dog/train_000007.png"]
    assert (tmp_path / "pacs" / "photo" / "dog" / "train_000007.png").read_bytes() == image(7)
    assert prepare(PACS, HubSource("pacs"), tmp_path, any_counts=True).copied.kept == 14


def test_office_home_has_domains_with_names_of_their_own(hub: dict[tuple[str, str], Any], tmp_path: Path) -> None:
    rows = [{"image": b"\xff\xd8\xff jpeg", "domain": "Real World", "label": n} for n in range(65)]
    hub["flwrlabs/office-home", "train"] = Rows(rows, features(OFFICE_HOME.classes))
    prepare(OFFICE_HOME, HubSource("officehome"), tmp_path, any_counts=True)
    data = open_domain(tmp_path, "officehome", "real_world", seed=0)
    assert data.test[0].file == "real_world/Alarm_Clock/train_000000.jpg"
    assert len(data.test) == 65


def test_domainnet_has_two_splits_and_numbers_for_domains(hub: dict[tuple[str, str], Any], tmp_path: Path) -> None:
    spec = dataset_spec("domainnet10")
    classes, domains = ("aircraft_carrier", *spec.classes), spec.domains
    for split, start in (("train", 0), ("test", 100)):
        rows = [{"image": image(start + n), "domain": 4, "label": n} for n in range(len(classes))]
        hub["wltjr1007/DomainNet", split] = Rows(rows, features(classes, domains))
    done = prepare(spec, HubSource("domainnet10"), tmp_path)
    assert {domain: sum(numbers.values()) for domain, numbers in done.counts.items()} == {"real": 20}
    assert len(done.plan.left_out) == 2
    assert (tmp_path / "domainnet10" / "real" / "bird" / "test_000001.png").read_bytes() == image(101)


def test_a_data_set_without_a_repository_is_refused_with_those_that_have_one() -> None:
    with pytest.raises(SettingsError, match="data set vlcs is in no known repository; expected pacs, officehome, dom"):
        HubSource("vlcs")


def test_without_the_package_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(SettingsError, match=r"needs the package datasets, .*: pip install 'fdg-plugins\[hf\]'"):
        HubSource("pacs")


def test_a_repository_that_cannot_be_had_is_named_in_one_sentence(hub: dict[tuple[str, str], Any]) -> None:
    hub["flwrlabs/pacs", "train"] = ConnectionError("no\nnetwork")
    with pytest.raises(
        DataError, match=r"Hugging Face flwrlabs/pacs cannot be downloaded \(ConnectionError: no network\)\.$"
    ):
        HubSource("pacs")


def test_other_rows_than_expected_are_refused(hub: dict[tuple[str, str], Any]) -> None:
    columns = features(PACS.classes)
    hub["flwrlabs/pacs", "train"] = Rows(PHOTO_ROWS, {name: columns[name] for name in ("image", "label")})
    with pytest.raises(DataError, match="lacks the column domain; expected image, domain and label"):
        HubSource("pacs")
    hub["flwrlabs/pacs", "train"] = Rows([PHOTO_ROWS[0], PHOTO_ROWS[1] | {"image": None}], columns)
    with pytest.raises(DataError, match="flwrlabs/pacs, split train, row 1 has no bytes of an image"):
        HubSource("pacs")
    hub["flwrlabs/pacs", "train"] = Rows([PHOTO_ROWS[0] | {"image": b"<svg>"}], columns)
    with pytest.raises(DataError, match="split train, row 0: the image is no JPEG or PNG"):
        HubSource("pacs")
