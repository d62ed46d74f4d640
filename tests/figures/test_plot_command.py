# SPDX-License-Identifier: Apache-2.0
"""``fdg plot`` on files: what it writes and prints, and its answers to a user's mistakes."""

import csv
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.analysis.run_stubs import FEDAVG, FEDGA, keep
from tests.cli.commands import fdg
from tests.figures.figure_stubs import Site, figure_run, judged, one_round

command = partial(fdg, "plot")


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    rounds = [one_round(number, {site: Site() for site in ("art_painting", "cartoon", "sketch")}) for number in (1, 2)]
    scores = [{"cartoon": judged(), "sketch": judged(), "photo": judged(accuracy=0.3)}] * 3
    for number, method in enumerate((FEDAVG, FEDGA)):
        keep(replace(figure_run(method, scores=scores, rounds=rounds), folder=Path(str(number))), tmp_path / "sweep")
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
    assert {row["mean"] for row in rows if row["quantity"] == "held-out domain"} == {"0.3"}


def test_all_makes_what_the_runs_allow_and_says_why_not_the_rest(sweep: Path, tmp_path: Path) -> None:
    result = command("all", sweep / "0", "--to", tmp_path / "figures")
    assert result.exit_code == 0
    names = {file.stem for file in (tmp_path / "figures").iterdir()}
    assert names == {"convergence", "cosines-fedavg", "weights-fedavg"}
    left_out = [line.split(" is left out: ")[0] for line in result.stderr.splitlines()]
    assert left_out == ["measures", "sensitivity", "partition", "reliability"]


def test_absences_and_unreadable_runs_are_named(sweep: Path, tmp_path: Path) -> None:
    (sweep / "1" / "results.json").write_text("{", encoding="utf-8")
    result = command("convergence", sweep, "--to", tmp_path / "figures")
    assert result.exit_code == 0
    assert f"Warning: {sweep / '1'} is left out" in result.stderr
    rounds = [one_round(1, {"art_painting": Site(), "cartoon": Site()}), one_round(2, {"cartoon": Site()})]
    keep(figure_run(rounds=rounds, scores=[{"cartoon": judged(), "photo": judged()}] * 3), tmp_path / "run")
    result = command("all", tmp_path / "run", "--to", tmp_path / "figures")
    assert result.stderr.count("went on without the updates of sketch in 2 of 2 rounds, art_painting in 1 of 2") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(("pie", "sweep"), "'pie'"), (("weights", "nowhere"), "nowhere"), (("all", "empty"), "no finished run")],
)
def test_a_mistake_ends_with_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], words: str
) -> None:
    keep(figure_run(), tmp_path / "sweep")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    result = command(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr
