# SPDX-License-Identifier: Apache-2.0
"""Repositories at Hugging Face as sources, with an object in place of the package ``datasets``: no network."""

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fdg_plugins import extras
from fdg_plugins.data import PACS, open_domain
from fdg_plugins.errors import DataError
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
    monkeypatch.setattr(extras, "import_module", lambda name: package if name == "datasets" else original(name))
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


def test_other_rows_than_expected_are_refused(hub: dict[tuple[str, str], Any]) -> None:
    columns = features(PACS.classes)
    hub["flwrlabs/pacs", "train"] = Rows(PHOTO_ROWS, {name: columns[name] for name in ("image", "label")})
    with pytest.raises(DataError, match="lacks the column domain; expected image, domain and label"):
        HubSource("pacs")
    hub["flwrlabs/pacs", "train"] = Rows([PHOTO_ROWS[0], PHOTO_ROWS[1] | {"image": None}], columns)
    with pytest.raises(DataError, match="flwrlabs/pacs, split train, row 1"):
        HubSource("pacs")
    hub["flwrlabs/pacs", "train"] = Rows([PHOTO_ROWS[0] | {"image": b"<svg>"}], columns)
    with pytest.raises(DataError, match="split train, row 0: the image is no JPEG or PNG"):
        HubSource("pacs")
