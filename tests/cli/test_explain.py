# SPDX-License-Identifier: Apache-2.0
"""``fdg explain`` as a user reads it: on 80 columns, in a pipe, and after a misspelt name."""

import json
import subprocess
import sys

import pytest
import typer
from rich.text import Text
from typer.testing import CliRunner, Result

from fdg_plugins.cli.console import OneLineErrors
from fdg_plugins.cli.explain import explain
from fdg_plugins.explained import compose, method_names, read_explanation
from fdg_plugins.explained.in_code import settings_of

app = typer.Typer(cls=OneLineErrors, pretty_exceptions_enable=False)
app.command("explain")(explain)
app.callback()(lambda: None)

SECTIONS = ("In a job", "Formulas", "Settings", "Where they differ", "Exact cases", "What leaves a site")


def run(*arguments: str, **environment: str) -> Result:
    return CliRunner(env=environment).invoke(app, ["explain", *arguments])


def words(text: str) -> str:
    """Return ``text`` with every run of spaces and line ends as one space."""
    return " ".join(text.split())


def test_without_a_method_every_method_has_its_line() -> None:
    result = run()
    assert result.exit_code == 0, result.output
    first = [line.split()[:2] for line in result.stdout.splitlines()]
    for name in method_names():
        assert [name, ", ".join(read_explanation(name).acts)] in first


@pytest.mark.parametrize("name", method_names())
def test_a_page_has_every_section_and_every_formula_unbroken(name: str) -> None:
    result = run(name)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    places = [next(index for index, line in enumerate(lines) if line.startswith(section)) for section in SECTIONS]
    assert places == sorted(places)
    for equation in read_explanation(name).equations:
        for formula in equation.formula.splitlines():
            assert [line for line in lines if line.endswith(formula)], formula


@pytest.mark.parametrize("name", method_names())
def test_every_setting_stands_beside_the_default_of_the_code(name: str) -> None:
    lines = run(name).stdout.splitlines()
    sources = {source.name: source for source in read_explanation(name).settings}
    for setting in settings_of(read_explanation(name).components):
        symbol = sources[setting.name].symbol
        shown = [setting.name, *([f"({symbol})"] if symbol else [])]
        default = setting.default if isinstance(setting.default, str) else json.dumps(setting.default)
        assert [line for line in lines if line.split()[: len(shown) + 1] == [*shown, default]], setting


def test_brackets_in_formulas_are_no_markup() -> None:
    assert "I[d, y] = W[y, d] z[d]" in run("feddim").stdout
    assert "Wᵤ[y, d] z̄ᵤ,ₖ[d]" in words(run("feddim").stdout)


@pytest.mark.parametrize("text", [*method_names(), "fedomg+ga+dim", "fedomg+iir"])
def test_a_page_fits_80_columns_in_a_pipe_and_in_a_terminal(text: str) -> None:
    for environment in ({}, {"COLUMNS": "80", "FORCE_COLOR": "1"}):
        lines = [Text.from_ansi(line) for line in run(text, **environment).stdout.splitlines()]
        assert lines
        assert max(line.cell_len for line in lines) <= 80
        assert not [line for line in lines if "…" in line]
    assert not [line for line in run(text).stdout.splitlines() if line != line.rstrip()]


def test_a_composition_shows_its_parts_once_and_what_leaves_once() -> None:
    text = words(run("omg+ga+dim").stdout)
    for explanation in compose("omg+ga+dim").methods.values():
        assert text.count(f"{explanation.title}: {explanation.line}.") == 1
    assert text.count("What leaves a site") == 1
    for leaving in compose("omg+ga+dim").leaves():
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


def test_the_list_of_methods_loads_neither_torch_nor_flare() -> None:
    code = (
        "import sys\n"
        "from fdg_plugins.cli.explain import explain\n"
        "explain(None)\n"
        "print([name for name in ('torch', 'nvflare') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]"
    assert "fedomg" in done.stdout
