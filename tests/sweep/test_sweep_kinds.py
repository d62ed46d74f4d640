# SPDX-License-Identifier: Apache-2.0
"""A run that was interrupted goes on if its job is still the same, and begins again if not."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fdg_plugins.data import PACS
from fdg_plugins.lab.sweep import kinds
from fdg_plugins.lab.sweep.kinds import launcher
from fdg_plugins.lab.sweep.machine import Machine
from fdg_plugins.lab.sweep.plan import PlannedRun
from fdg_plugins.lab.sweep.request import DataFound
from fdg_plugins.storage import read_json

DATA = DataFound(stand_in=True, images=dict.fromkeys(PACS.domains, 1))


def planned(**settings: Any) -> PlannedRun:
    return PlannedRun("a", "pacs", "paper", "fedavg", "photo", 0, settings)


@pytest.mark.parametrize(("rounds", "goes_on"), [(5, True), (6, False)])
def test_the_state_of_an_interrupted_run_belongs_to_its_job(
    rounds: int, goes_on: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environments: list[Mapping[str, str]] = []
    monkeypatch.setattr(kinds, "RunProcess", lambda *arguments: environments.append(arguments[-1]))
    start = launcher(Machine(2, (None,)), DATA, {}, in_one_process=False)
    start(planned(rounds=5), tmp_path, None)
    (tmp_path / "state" / "server").mkdir(parents=True)
    start(planned(rounds=rounds), tmp_path, None)
    assert (tmp_path / "state").exists() == goes_on
    config = read_json(tmp_path / "job" / "app_server" / "config" / "config_fed_server.json")
    assert config["workflows"][0]["args"]["protocol"]["rounds"] == rounds
    assert [environment["FDG_STATE"] for environment in environments] == [str(tmp_path / "state")] * 2
