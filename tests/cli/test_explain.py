# SPDX-License-Identifier: Apache-2.0
"""``fdg explain`` as a user reads it: on 80 columns, in a pipe, and after a misspelt name."""

import pytest
from rich.text import Text
from typer.testing import CliRunner

from fdg_plugins.cli.explain import run_of, settings_in
from fdg_plugins.cli.main import app
from fdg_plugins.plugins.composition import parse_method
from fdg_plugins.plugins.methods import METHODS
from tests.cli.commands import check_refusal, fdg


def test_without_a_method_every_method_has_its_line() -> None:
    first = [line.split()[:1] for line in fdg("explain").stdout.splitlines()]
    assert [[record.key] in first for record in METHODS.all()].count(False) == 0


@pytest.mark.parametrize("name", [*METHODS.names(), "fedomg+ga+dim"])
def test_a_page_has_all_settings_and_formulas_unbroken_on_80_columns(name: str) -> None:
    result = CliRunner(env={"COLUMNS": "80", "FORCE_COLOR": "1"}).invoke(app, ["explain", name, "--all"])
    assert result.exit_code == 0, result.output
    lines = [Text.from_ansi(line) for line in result.stdout.splitlines()]
    assert max(line.cell_len for line in lines) <= 80
    plain = [line.plain.rstrip() for line in lines]
    assert plain.index("What leaves a site") > 0
    composition = parse_method(name)
    run = run_of(composition, "pacs")
    for record in composition.records:
        for equation in record.equations:
            assert all(any(line.endswith(text) for line in plain) for text in equation.formula.splitlines())
        for setting in settings_in(run, record):
            assert any(line.split()[:1] == [setting] for line in plain), setting


def test_a_default_is_that_of_the_job_and_not_of_the_class() -> None:
    assert "server_lr 0.05" in fdg("explain", "fedomg").stdout
    assert '"travels": "body"' in fdg("explain", "fedbabu", "--all").stdout


def test_a_composition_fits_one_screen_and_its_page_says_what_leaves_once() -> None:
    screen = fdg("explain", "fedomg+ga").stdout
    assert len(screen.splitlines()) <= 60
    page = " ".join(fdg("explain", "omg+ga+dim", "--all").stdout.split())
    for record in parse_method("omg+ga+dim").records:
        assert page.count(f"{record.title}: {record.line}.") == 1
    assert page.count("What leaves a site") == 1
    assert "FedOMG with FedDG-GA: in the authors' code" in page
    assert "--method fedomg --method fedga --method feddim" in page


def test_a_wrong_name_ends_in_one_sentence() -> None:
    for name in ("fedmog", "fedomg+fedavg"):
        check_refusal(fdg("explain", name), f"method is {name!r}, ")
