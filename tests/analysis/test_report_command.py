# SPDX-License-Identifier: Apache-2.0
"""``fdg report`` on files: what it prints and writes, what it leaves out, and its answers to a user's mistakes."""

from functools import partial
from pathlib import Path
from typing import get_args

import pytest

from fdg_plugins.cli.report import Against, RuleOrAll
from fdg_plugins.lab.analysis import RULES
from fdg_plugins.lab.analysis.papers import ALL_PAPERS, papers
from fdg_plugins.models import InitialWeights
from tests.analysis.run_stubs import FEDAVG, FEDOMG, keep, run, runs_of
from tests.analysis.test_sites import skewed
from tests.cli.commands import fdg

command = partial(fdg, "report")
VALUES = {"photo": (0.5, 0.6, 0.7)}


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """A sweep's folder with three seeds of two methods on one domain."""
    for method in (FEDAVG, FEDOMG):
        for made in runs_of(method, VALUES):
            keep(made, tmp_path / "sweep")
    return tmp_path / "sweep"


def test_a_sweep_becomes_a_table(sweep: Path) -> None:
    result = command(sweep)
    assert (result.exit_code, result.stderr) == (0, "")
    assert [line.split()[0] for line in result.stdout.splitlines() if "60.0 ± 10.0" in line] == ["FedAvg", "FedOMG"]
    rules = command(sweep, "--selection", "all").stdout.partition(" paired with ")[0]
    assert all(sum(f"  {title}  " in line for line in rules.splitlines()) == 2 for title in RULES.values())
    assert "FedIIR paper, tables 1, 6, resnet18" in command(sweep, "--against", "paper").stdout


@pytest.mark.parametrize(
    ("suffix", "start"),
    [
        (".md", "Accuracy on"),
        (".tex", r"% needs \usepackage{booktabs}"),
        (".csv", "kind,method,label"),
        (".txt", "Accuracy on"),
    ],
)
def test_a_file_gets_what_its_suffix_says(sweep: Path, tmp_path: Path, suffix: str, start: str) -> None:
    first = tmp_path / f"new/table{suffix}"
    result = command(sweep, "--to", first)
    assert (result.exit_code, result.stdout) == (0, f"{first}: written\n")
    assert first.read_text(encoding="utf-8").startswith(start)


def test_what_is_left_out_is_named_on_stderr_and_the_rest_is_shown(sweep: Path, tmp_path: Path) -> None:
    whole = command(sweep).stdout
    file = keep(run("broken"), sweep)
    file.write_text("{", encoding="utf-8")
    (tmp_path / "none yet").mkdir()
    result = command(sweep, tmp_path / "none yet")
    assert (result.exit_code, result.stdout) == (0, whole)
    assert f"{file.parent} is left out" in result.stderr
    assert f"{tmp_path / 'none yet'} holds no results.json" in result.stderr
    nothing = command(file.parent)
    assert (nothing.exit_code, nothing.stdout) == (2, "")
    assert "there is no finished run below" in nothing.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--to", "table.doc"], "'.doc'"),
        (["--selection", "best"], "best"),
        (["--against", "fedprox"], "fedprox"),
        (["nowhere"], "path nowhere does not exist"),
        (["--choose", "strength"], "'strength'"),
    ],
)
def test_a_users_mistake_ends_with_2(sweep: Path, arguments: list[str], words: str) -> None:
    result = command(sweep, *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("arguments", [["--choose", "kappa"], ["--selection", "oracle"], ["--selection", "all"]])
def test_where_sites_validate_on_their_test_images_nothing_is_chosen(tmp_path: Path, arguments: list[str]) -> None:
    keep(skewed(), tmp_path)
    assert command(tmp_path, "--selection", "last").exit_code == 0
    assert command(tmp_path, *arguments).exit_code == 2


def test_the_command_offers_every_rule_and_every_paper() -> None:
    assert set(get_args(RuleOrAll)) == {*RULES, "all"}
    assert set(get_args(Against)) == {ALL_PAPERS, *papers()}


HOSTILE = '=HYPERLINK("x")\x1b]0;owned\x07\n# ok'


def test_no_text_of_a_strangers_record_is_obeyed_by_a_terminal_a_page_or_a_spreadsheet(tmp_path: Path) -> None:
    for made in runs_of(FEDAVG, VALUES):
        made.record.data, made.record.initial_weights = HOSTILE, InitialWeights(HOSTILE)
        keep(made, tmp_path / "sweep")
    unfinished = run("stopped")
    unfinished.record.status, unfinished.record.stopped_because = "stopped", HOSTILE
    keep(unfinished, tmp_path / "sweep")
    printed = command(tmp_path / "sweep")
    assert printed.exit_code == 0, printed.output
    texts = [printed.stdout, printed.stderr]
    for suffix in (".md", ".tex", ".csv", ".txt"):
        command(tmp_path / "sweep", "--to", file := tmp_path / f"table{suffix}")
        texts.append(file.read_text("utf-8"))
    for text in texts:
        lines = text.splitlines()
        assert "owned" in text
        assert all(line.isprintable() and not line.startswith(("# ", "=")) for line in lines), text
    assert "'=HYPERLINK" in texts[4]
