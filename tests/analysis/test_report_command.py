# SPDX-License-Identifier: Apache-2.0
"""``fdg report`` on files: what it prints and writes, what it leaves out, and its answers to a user's mistakes."""

import csv
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from fdg_plugins.cli.console import OneLineErrors
from fdg_plugins.cli.report import Against, Selection, report
from fdg_plugins.lab.analysis import RULES
from fdg_plugins.lab.analysis.papers import ALL_PAPERS, papers
from tests.analysis.run_stubs import FEDAVG, FEDOMG, fedomg, keep, run, runs_of
from tests.analysis.test_sites_table import skewed

app = typer.Typer(cls=OneLineErrors)
app.command("report")(report)
app.command("other")(lambda: None)  # with one command alone, typer would take its name for an argument

VALUES = {"photo": (0.5, 0.6, 0.7)}


def command(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["report", *(str(argument) for argument in arguments)])


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
    assert result.stdout.startswith("Accuracy on the held-out domain, percent, mean ± standard deviation over 3 seeds")
    assert [line.split()[0] for line in result.stdout.splitlines() if "60.0 ± 10.0" in line] == ["FedAvg", "FedOMG"]
    assert "selection: source validation, mean" in result.stdout


def test_the_paired_difference_to_fedavg_follows_unless_it_is_not_wanted(sweep: Path) -> None:
    with_it, without = command(sweep).stdout, command(sweep, "--no-paired").stdout
    assert with_it.startswith(without.rstrip())
    assert "paired with FedAvg" in with_it
    assert "FedOMG" in with_it.splitlines()[-2]
    assert with_it.splitlines()[-2].split()[1:] == ["1.50", "+0.0", "0.0", "3"]


def test_a_swept_setting_is_chosen_on_source_validation(tmp_path: Path) -> None:
    for kappa, score in ((0.1, 0.6), (0.5, 0.7)):
        method, sources = fedomg(kappa=kappa), [(score,) * 3]
        keep(run(f"{kappa}", method, "photo", 0, (1 - score,), sources=sources), tmp_path)
    result = command(tmp_path, "--choose", "kappa")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "FedOMG (kappa chosen)   30.0" in result.stdout
    assert "photo 0.5 (0.1: 60.0 %, 0.5: 70.0 %)." in result.stdout
    refused = command(tmp_path, "--choose", "strength")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert (
        "setting 'strength' (--choose) is not a setting of these runs; expected one that varies: kappa"
        in refused.stderr
    )


def test_all_rules_stand_side_by_side(sweep: Path) -> None:
    result = command(sweep, "--selection", "all", "--no-paired")
    assert result.exit_code == 0
    for title in RULES.values():
        assert sum(title in line for line in result.stdout.splitlines() if line.startswith("Fed")) == 2


def test_printed_numbers_stand_beside_ours(sweep: Path) -> None:
    result = command(sweep, "--against", "paper")
    assert result.exit_code == 0
    assert "FedIIR paper, tables 1, 6, resnet18" in result.stdout
    assert "ours minus FedOMG paper, within 2 SE" in result.stdout


@pytest.mark.parametrize(
    ("suffix", "form", "start"),
    [
        (".md", "markdown", "Accuracy on"),
        (".tex", "latex", r"% needs \usepackage{booktabs}"),
        (".csv", "csv", "kind,method,label"),
        (".txt", "terminal", "Accuracy on"),
    ],
)
def test_a_file_gets_what_its_suffix_or_format_says_and_it_is_what_is_printed(
    sweep: Path, tmp_path: Path, suffix: str, form: str, start: str
) -> None:
    first, second = tmp_path / f"new/table{suffix}", tmp_path / "table.other"
    result = command(sweep, "--to", first)
    assert (result.exit_code, result.stdout) == (0, f"{first}: written\n")
    text = first.read_text(encoding="utf-8")
    assert text.startswith(start)
    assert command(sweep, "--to", second, "--format", form).exit_code == 0
    assert second.read_text(encoding="utf-8") == text
    assert command(sweep, "--format", form).stdout == text


def test_digits_are_of_percentages_and_change_no_csv(sweep: Path) -> None:
    assert "60.000 ± 10.000" in command(sweep, "--digits", 3).stdout
    lines = list(csv.DictReader(command(sweep, "--digits", 0, "--format", "csv").stdout.splitlines()))
    assert [float(line["mean"]) for line in lines if line["target"] == "photo"] == pytest.approx([0.6, 0.6])


def test_what_is_left_out_is_named_on_stderr_and_the_rest_is_shown(sweep: Path) -> None:
    file = keep(run("broken"), sweep)
    file.write_text("{", encoding="utf-8")
    result = command(sweep)
    assert result.exit_code == 0
    assert result.stderr.startswith(f"Warning: {file.parent} is left out: results.json is not valid JSON")
    assert "Warning" not in result.stdout


def test_a_folder_without_results_beside_others_is_named(sweep: Path, tmp_path: Path) -> None:
    (tmp_path / "none yet").mkdir()
    result = command(sweep, tmp_path / "none yet")
    assert (result.exit_code, result.stderr) == (0, f"Warning: {tmp_path / 'none yet'} holds no results.json.\n")
    assert result.stdout == command(sweep).stdout


def test_if_nothing_is_left_the_command_fails(tmp_path: Path) -> None:
    keep(run("broken"), tmp_path).write_text("{", encoding="utf-8")
    result = command(tmp_path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"Error: there is no finished run below {tmp_path}" in result.stderr
    assert "Warning" in result.stderr


def test_runs_that_do_not_fit_are_refused_in_one_line(sweep: Path) -> None:
    keep(run("other", fedomg(kappa=0.1), protocol={"rounds": 9}), sweep)
    result = command(sweep)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("Error: these runs cannot stand in one table: rounds of the protocol is 100 in ")
    assert result.stderr.count("\n") == 1


def test_the_stand_in_beside_papers_is_refused(tmp_path: Path) -> None:
    keep(run("drawn", stand_in=True, data="STAND-IN for PACS"), tmp_path)
    assert "STAND-IN for PACS" in command(tmp_path).stdout
    result = command(tmp_path, "--against", "fedomg")
    assert result.exit_code == 2
    assert "Error: the runs used STAND-IN for PACS" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--to", "table.doc"], "has the suffix '.doc', expected one of .txt, .md, .csv, .tex"),
        (["--selection", "best"], "best"),
        (["--against", "fedprox"], "fedprox"),
        (["--digits", "9"], "digits"),
        (["nowhere"], "path nowhere does not exist"),
    ],
)
def test_a_users_mistake_is_said_and_ends_with_2(sweep: Path, arguments: list[str], words: str) -> None:
    result = command(sweep, *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("arguments", [["--choose", "kappa"], ["--selection", "oracle"], ["--selection", "all"]])
def test_where_sites_validate_on_their_test_images_nothing_is_chosen(tmp_path: Path, arguments: list[str]) -> None:
    keep(skewed(), tmp_path)
    assert command(tmp_path, "--selection", "last").exit_code == 0
    result = command(tmp_path, *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert arguments[1] in result.stderr
    assert "only the last model is reported" in result.stderr


def test_a_file_that_cannot_be_written_is_named(sweep: Path, tmp_path: Path) -> None:
    (tmp_path / "table.md").mkdir()
    result = command(sweep, "--to", tmp_path / "table.md")
    assert result.exit_code == 2
    assert "table.md', a folder, expected a file" in result.stderr
    (tmp_path / "file").touch()
    result = command(sweep, "--to", tmp_path / "file" / "table.md")
    assert result.exit_code == 2
    assert "table.md cannot be written" in result.stderr


def test_a_table_takes_the_place_of_no_record_that_is_in_it(sweep: Path) -> None:
    record = next(sweep.rglob("results.json"))
    before = record.read_bytes()
    result = command(sweep, "--to", record, "--format", "csv")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "one of the files that are read" in result.stderr
    assert record.read_bytes() == before


def test_records_under_other_names_do_not_hinder_a_table(sweep: Path, tmp_path: Path) -> None:
    record = next(sweep.rglob("results.json"))
    named = record.rename(record.with_name("first.json"))
    table = tmp_path / "table.md"
    table.write_text("an earlier table", encoding="utf-8")
    assert command(named, "--to", table).exit_code == 0
    assert table.read_text(encoding="utf-8") != "an earlier table"
    assert command(named, "--to", named, "--format", "csv").exit_code == 2


def test_the_command_offers_every_rule_and_every_paper() -> None:
    assert {choice.value for choice in Selection} == {*RULES, "all"}
    assert {choice.value for choice in Against} == {ALL_PAPERS, *papers()}


def test_help_teaches_by_example() -> None:
    result = command("--help")
    assert result.exit_code == 0
    assert "fdg report" in result.stdout


def test_runs_are_judged_as_after_some_of_their_rounds_and_a_note_says_so(tmp_path: Path) -> None:
    for seed, accuracies in enumerate([(0.1, 0.2, 0.9), (0.1, 0.4, 0.9), (0.1,)]):
        keep(run(f"{seed}", FEDAVG, "photo", seed, accuracies), tmp_path)
    result = command(tmp_path, "--rounds", "1", "--no-paired")
    assert result.exit_code == 0
    assert "30.0 ± 14.1" in result.stdout
    assert "1 round" in result.stdout.splitlines()[0]
    assert "Later rounds are left out: the runs are of 100 rounds." in result.stdout
    assert "2 is left out: the run has 0 rounds, expected at least 1." in " ".join(result.stderr.split())
    nothing = command(tmp_path, "--rounds", "3")
    assert (nothing.exit_code, nothing.stdout) == (2, "")
    assert "there is no run of 3 rounds below" in " ".join(nothing.stderr.split())
