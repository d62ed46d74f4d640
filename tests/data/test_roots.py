# SPDX-License-Identifier: Apache-2.0
"""Where a site's images come from: what it names is used or refused, and only who names nothing gets a stand-in."""

from pathlib import Path

import pytest

from fdg_plugins.data import DataRoot, find_data_root, roots
from fdg_plugins.data.stand_in import MARKER
from fdg_plugins.errors import DataError

NEEDING = ("pacs", "vlcs", "rotatedmnist", "rotatedmnist_7k")


@pytest.fixture
def _nothing_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(cache: Path | None, dataset: str) -> Path:
        raise AssertionError(f"a stand-in was asked for, at {cache}")

    monkeypatch.setattr(roots, "ensure_stand_in", refuse)


@pytest.mark.parametrize("dataset", NEEDING)
def test_a_named_data_root_that_holds_the_drawings_is_a_stand_in(dataset: str, tmp_path: Path) -> None:
    (tmp_path / MARKER).touch()
    assert find_data_root(dataset, tmp_path, None) == DataRoot(tmp_path, stand_in=True)


@pytest.mark.usefixtures("_nothing_is_drawn")
@pytest.mark.parametrize("dataset", ["vlcs", "officehome", "terraincognita", "domainnet", "domainnet10"])
def test_a_data_set_that_is_not_drawn_needs_a_data_root(dataset: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"data set {dataset} has no data root and no stand-in; .*prepare {dataset}"):
        find_data_root(dataset, None, tmp_path)


@pytest.mark.usefixtures("_nothing_is_drawn")
@pytest.mark.parametrize("dataset", NEEDING)
def test_a_named_data_root_that_is_not_there_is_refused(dataset: str, tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"data root .*away is not a folder; FDG_DATA_ROOT or fdg_site\.json names it\."
    ):
        find_data_root(dataset, tmp_path / "away", tmp_path)
