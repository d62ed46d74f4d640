# SPDX-License-Identifier: Apache-2.0
"""The studies of docs/results: each is a sweep that ``fdg sweep`` would run, with every method in one of them."""

import shlex
from pathlib import Path

import pytest
from studies import EXCEPT_FIVE, FIVE, STUDIES
from typer.testing import CliRunner

from fdg_plugins.cli.main import app
from fdg_plugins.plugins.methods import METHODS


def test_the_five_and_the_others_are_all_methods() -> None:
    assert sorted([*FIVE.split(","), *EXCEPT_FIVE.split(",")]) == sorted(METHODS.own())


@pytest.mark.slow
@pytest.mark.parametrize("study", STUDIES)
def test_every_study_has_a_plan(study: str, tmp_path: Path) -> None:
    for call in STUDIES[study]:
        planned = CliRunner().invoke(app, ["sweep", "--to", str(tmp_path / "sweep"), *shlex.split(call), "--dry-run"])
        assert planned.exit_code == 0, planned.output
        assert "to do:" in planned.output
