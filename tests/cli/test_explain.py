# SPDX-License-Identifier: Apache-2.0
"""``fdg explain`` as a user reads it: on 80 columns, in a pipe, and after a misspelt name."""

import json
from functools import cache

import pytest
import typer
from rich.text import Text
from typer.testing import CliRunner, Result

from fdg_plugins.cli.console import OneLineErrors
from fdg_plugins.cli.explain import explain
from fdg_plugins.cli.method_settings import run_of, settings_in
from fdg_plugins.plugins.composition import parse_method
from fdg_plugins.plugins.methods import METHODS

app = typer.Typer(cls=OneLineErrors, pretty_exceptions_enable=False)
app.command("explain")(explain)
app.callback()(lambda: None)

SECTIONS = ("In a job", "Formulas", "Settings", "Where they differ", "What leaves a site")


@cache  # a page is the same each time, and takes a second
def run(*arguments: str, **environment: str) -> Result:
    everything = ["--all"] if arguments else []
    return CliRunner(env=environment).invoke(app, ["explain", *arguments, *everything])


def words(text: str) -> str:
    """Return ``text`` with every run of spaces and line ends as one space."""
    return " ".join(text.split())


def test_without_a_method_every_method_has_its_line() -> None:
    result = run()
    assert result.exit_code == 0, result.output
    first = [line.split()[:2] for line in result.stdout.splitlines()]
    for record in METHODS.all():
        assert [record.key, f"{record.acts[0]}{',' * (len(record.acts) > 1)}"] in first


@pytest.mark.parametrize("name", METHODS.names())
def test_a_page_has_every_section_and_every_formula_unbroken(name: str) -> None:
    result = run(name)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    empty = set() if settings_in(run_of(parse_method(name), "pacs"), METHODS.get(name)) else {"Settings"}
    sections = [section for section in SECTIONS if section not in empty]
    places = [next(index for index, line in enumerate(lines) if line.startswith(section)) for section in sections]
    assert places == sorted(places)
    for equation in METHODS.get(name).equations:
        for formula in equation.formula.splitlines():
            assert [line for line in lines if line.endswith(formula)], formula


@pytest.mark.parametrize("dataset", ["pacs", "rotatedmnist"])
@pytest.mark.parametrize("name", METHODS.names())
def test_every_setting_stands_beside_what_a_job_on_the_data_set_runs(name: str, dataset: str) -> None:
    lines = run(name, "--dataset", dataset).stdout.splitlines()
    record = METHODS.get(name)
    symbols = {source.name: source.symbol for source in record.settings}
    settings = settings_in(run_of(parse_method(name), dataset), record)
    assert bool(settings) == bool(record.settings)
    for setting, value in settings.items():
        shown = [setting, *([f"({symbols[setting]})"] if symbols[setting] else [])]
        default = value if isinstance(value, str) else json.dumps(value)
        assert [line for line in lines if line.split()[: len(shown) + 1] == [*shown, default]], setting


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("fedbabu", '"travels": "body"'),
        ("fedomg+babu", '"travels": "body"'),
        ("arfl", '"gap_split": "train"'),
        ("fediir", '"batch_norm": "frozen"'),
    ],
)
def test_the_part_of_a_job_has_the_settings_of_the_protocol_that_make_the_method(name: str, setting: str) -> None:
    said = words(run(name).stdout).partition('"protocol": ')[2].partition(" in the server's environment")[0]
    assert setting in said


def test_a_default_is_that_of_the_job_and_not_of_the_class() -> None:
    assert "server_lr (η)  0.05" in run("fedomg").stdout
    assert "server_lr (η)  1.0" in run("fedomg", "--dataset", "rotatedmnist").stdout
    assert "strength (μ)  0.1" in run("fedprox").stdout
    assert '"strength": 0.1' in run("fedprox").stdout


@pytest.mark.parametrize("text", [*METHODS.names(), "fedomg+ga+dim", "fedomg+iir"])
def test_a_page_fits_80_columns_in_a_pipe_and_in_a_terminal(text: str) -> None:
    for environment in ({}, {"COLUMNS": "80", "FORCE_COLOR": "1"}):
        lines = [Text.from_ansi(line) for line in run(text, **environment).stdout.splitlines()]
        assert lines
        assert max(line.cell_len for line in lines) <= 80
        assert not [line for line in lines if "…" in line]
    assert not [line for line in run(text).stdout.splitlines() if line != line.rstrip()]


def test_a_composition_shows_its_parts_once_and_what_leaves_once() -> None:
    text = words(run("omg+ga+dim").stdout)
    for record in parse_method("omg+ga+dim").records:
        assert text.count(f"{record.title}: {record.line}.") == 1
    assert text.count("What leaves a site") == 1
    for leaving in parse_method("omg+ga+dim").leaves():
        assert leaving.report is None or leaving.report in text
    assert "FedOMG with FedDG-GA: in the authors' code" in text
    assert "--method fedomg --method fedga --method feddim" in text


@pytest.mark.parametrize("name", ["fedmog", "fedomg+fedavg", "nothing"])
def test_a_wrong_name_ends_in_one_sentence(name: str) -> None:
    result = run(name)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"Error: method is {name!r}, ")
    assert len(result.stderr.strip().splitlines()) == 1
    assert result.stdout == ""


def test_a_composition_fits_one_screen_with_its_formulas_and_settings() -> None:
    printed = CliRunner().invoke(app, ["explain", "fedomg+ga"]).stdout
    assert len(printed.splitlines()) <= 60
    assert "kappa 0.5" in printed
    for record in parse_method("fedomg+ga").records:
        assert all(formula in printed for equation in record.equations for formula in equation.formula.splitlines())
