# SPDX-License-Identifier: Apache-2.0
"""Two finished runs, of which the second is right more often, and no ``FDG_*`` variable."""

from pathlib import Path

import pytest

from fdg_plugins.models import ExtractorClassifier
from tests.evaluation.finished import finished_run, fitted


@pytest.fixture(autouse=True)
def _own_environment(no_fdg_variables: None, wire: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test of this folder: sites work in the process of the test."""
    monkeypatch.setenv("FDG_ISOLATE", "no")


@pytest.fixture(scope="session")
def networks(data_root: Path) -> list[ExtractorClassifier]:
    return [fitted(data_root, 0), fitted(data_root, 1)]


@pytest.fixture(scope="session")
def runs(networks: list[ExtractorClassifier], tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Their folders, not to be written to."""
    folder = tmp_path_factory.mktemp("runs")
    return [finished_run(folder / name, one) for name, one in zip(("fedavg", "fedomg"), networks, strict=True)]
