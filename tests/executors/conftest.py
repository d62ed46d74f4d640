# SPDX-License-Identifier: Apache-2.0
"""The tests of a site see no ``FDG_*`` variable but their own, and one that keeps the work in their process."""

from pathlib import Path

import pytest

from tests.executors.sites import Site


@pytest.fixture(autouse=True)
def _own_environment(no_fdg_variables: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test of this folder: sites work in the process of the test."""
    monkeypatch.setenv("FDG_ISOLATE", "no")


@pytest.fixture
def photo(tmp_path: Path, data_root: Path) -> Site:
    (tmp_path / "photo").mkdir()
    return Site("photo", tmp_path / "photo", data_root=str(data_root), device="cpu")
