# SPDX-License-Identifier: Apache-2.0
"""``fdg plot`` on files: what it writes and prints, and its answers to a user's mistakes."""

import csv
import os
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from fdg_plugins.cli.console import OneLineErrors
from fdg_plugins.cli.plot import plot
from fdg_plugins.lab.analysis.figures import KINDS
from tests.figures.figure_stubs import FEDAVG, FEDGA, Site, fedomg, figure_run, judged, keep, one_round

app = typer.Typer(cls=OneLineErrors)
app.command("plot")(plot)
app.command("other")(lambda: None)  # with one command alone, typer would take its name for an argument

pytestmark = pytest.mark.usefixtures("no_fdg_variables")


def command(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["plot", *(str(argument) for argument in arguments)])


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """A sweep's folder with one run of each of two methods, over two rounds."""
    rounds = [one_round(number, {site: Site() for site in ("art_painting", "cartoon", "sketch")}) for number in (1, 2)]
    scores = [{"cartoon": judged(2.0, 0.4), "sketch": judged(), "photo": judged(1.0, 0.3)}] * 3
    for number, method in enumerate((FEDAVG, FEDGA)):
        keep(figure_run(method, scores=scores, rounds=rounds), tmp_path / "sweep" / str(number))
    return tmp_path / "sweep"


def test_a_figure_is_written_as_png_svg_and_csv_into_a_new_folder(sweep: Path, tmp_path: Path) -> None:
    to = tmp_path / "new" / "figures"
    result = command("convergence", sweep, "--to", to)
    files = [to / f"convergence.{suffix}" for suffix in ("png", "svg", "csv")]
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [f"{to / 'convergence'}: png, svg, csv"]
    assert sorted(to.iterdir()) == sorted(files)
    assert files[0].read_bytes().startswith(b"\x89PNG")
    rows = list(csv.DictReader(files[2].open(encoding="utf-8")))
    targets = [row for row in rows if row["quantity"] == "held-out domain"]
    assert [(row["line"], row["round"], row["mean"]) for row in targets[:2]] == [
        ("FedAvg", "0", "0.3"),
        ("FedAvg", "1", "0.3"),
    ]


def test_all_makes_what_the_runs_allow_and_says_why_not_the_rest(sweep: Path, tmp_path: Path) -> None:
    result = command("all", sweep / "0", "--to", tmp_path / "figures")
    assert result.exit_code == 0
    names = {file.stem for file in (tmp_path / "figures").iterdir()}
    assert names == {"convergence", "cosines-fedavg", "gaps", "time"}
    note, *others = result.stderr.splitlines()
    assert note == "Note: the weights of FedAvg are the same in all rounds, so there is no figure of them."
    left_out = dict(line.split(" is left out: ") for line in others)
    assert list(left_out) == ["sensitivity", "partition", "overlays"]
    assert left_out["sensitivity"].startswith("no setting of a method varies")
    assert left_out["partition"].startswith("no run divides a domain by its classes")
    assert left_out["overlays"].startswith(f"run {sweep / '0'} learned the task 'classification', expected")


def test_a_figure_takes_the_place_of_nothing_that_is_no_file(sweep: Path, tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "convergence.svg")
    result = command("convergence", sweep, "--to", tmp_path)
    assert result.exit_code == 2
    assert "convergence.svg', no regular file, expected" in result.stderr
    assert pipe.is_fifo()


def test_constant_weights_are_one_line_and_no_error(sweep: Path, tmp_path: Path) -> None:
    result = command("weights", sweep, "--to", tmp_path / "figures")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "FedAvg, FedDG-GA are the same in all rounds" in result.stderr
    assert not (tmp_path / "figures").exists()


def test_a_headline_is_replaced_and_the_caption_is_not(sweep: Path, tmp_path: Path) -> None:
    command("time", sweep, "--to", tmp_path, "--title", "My own headline")
    text = (tmp_path / "time.svg").read_text(encoding="utf-8")
    assert ">My own headline</text>" in text
    assert ">Seconds per round</text>" not in text
    assert ">PACS, ImageNet weights, resnet18" in text


def test_a_setting_is_chosen_and_its_name_is_in_the_files(tmp_path: Path) -> None:
    for kappa in (0.1, 0.5):
        for rate in (0.5, 1.0):
            keep(figure_run(fedomg(kappa, server_lr=rate)), tmp_path / "sweep" / f"{kappa}-{rate}")
    assert command("sensitivity", tmp_path / "sweep", "--setting", "server_lr", "--to", tmp_path).exit_code == 0
    assert (tmp_path / "sensitivity-server_lr.png").exists()


def test_copies_and_unfinished_runs_are_named(sweep: Path, tmp_path: Path) -> None:
    copy = tmp_path / "sweep" / "copy"
    copy.mkdir()
    (copy / "results.json").write_bytes((sweep / "0" / "results.json").read_bytes())
    (sweep / "1" / "results.json").write_text("{", encoding="utf-8")
    result = command("time", sweep, "--to", tmp_path / "figures")
    assert result.exit_code == 0
    assert f"Warning: {sweep / '1'} is left out: results.json is not valid JSON" in result.stderr
    assert f"Note: {copy} repeats {sweep / '0'} and is counted once." in result.stderr


def test_a_site_whose_updates_a_run_lacked_is_named_once(tmp_path: Path) -> None:
    rounds = [one_round(1, {"art_painting": Site(), "cartoon": Site()}), one_round(2, {"cartoon": Site()})]
    run = keep(figure_run(rounds=rounds, scores=[{"cartoon": judged(), "photo": judged()}] * 3), tmp_path / "run")
    result = command("all", run.folder, "--to", tmp_path / "figures")
    notes = [line for line in result.stderr.splitlines() if line.startswith("Note: ") and "went on without" in line]
    missing = "sketch in 2 of 2 rounds, art_painting in 1 of 2 rounds"
    assert notes == [f"Note: {run.folder} went on without the updates of {missing}."]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("convergance", "."), "there is no kind of figure 'convergance'; did you mean 'convergence'?"),
        (("pie", "."), f"there is no kind of figure 'pie'; expected one of {', '.join(KINDS)}, or all."),
        (("time", "nowhere"), "path nowhere does not exist; expected a folder of runs or a results.json."),
        (("time", "."), "there is no finished run below .; expected at least one results.json."),
        (("all", "."), "there is no finished run below .; expected at least one results.json."),
    ],
)
def test_a_mistake_is_answered_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = command(*arguments)
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", f"Error: {reason}\n")
    assert list(tmp_path.iterdir()) == []


def test_runs_that_allow_nothing_end_with_exit_code_2(tmp_path: Path) -> None:
    for epochs in (1, 5):
        for size in (32, 64):
            protocol = {"local_epochs": epochs, "image_size": size}
            keep(figure_run(protocol=protocol), tmp_path / "sweep" / f"{epochs}-{size}")
    result = command("all", tmp_path / "sweep", "--to", tmp_path / "figures")
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == len(KINDS) + 1
    assert result.stderr.splitlines()[-1] == (f"Error: these runs allow no figure of the kinds {', '.join(KINDS)}.")
    assert not (tmp_path / "figures").exists()


def test_a_folder_that_cannot_be_written_is_named(sweep: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    result = command("time", sweep, "--to", tmp_path / "file")
    assert result.exit_code == 2
    assert "file/time.png cannot be written" in result.stderr
