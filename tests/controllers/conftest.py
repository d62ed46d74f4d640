# SPDX-License-Identifier: Apache-2.0
"""The tests of the server see no ``FDG_*`` variable but their own, and what keeps a site's work in their process."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _own_environment(no_fdg_variables: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test of this folder: sites work in the process of the test."""
    monkeypatch.setenv("FDG_ISOLATE", "no")


@pytest.fixture
def images_at_sites(_own_environment: None, data_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sites read the photographs of ``data_root``."""
    monkeypatch.setenv("FDG_DATA_ROOT", str(data_root))
    monkeypatch.setenv("FDG_DEVICE", "cpu")
