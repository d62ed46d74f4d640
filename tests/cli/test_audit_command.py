# SPDX-License-Identifier: Apache-2.0
"""``fdg audit`` on files that sites write: what it shows, what it names as broken, and what it refuses."""

import csv
import json
import secrets
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from fdg_plugins.audit.file import AUDIT_FILE, AuditLine, append_line
from fdg_plugins.cli.audit import audit
from fdg_plugins.cli.console import OneLineErrors

JOB, OTHER_JOB = "3379af42-b0b1-4066-889e-7cf89997f720", "9c0d"
CONFIG = "885d6174732782a756a47c64fa9eeabeb82416c3236b25f5392ad678f34da264"
UPDATE = (("update", "conv.weight", (32, 3, 3, 3), 3456, 3.0), ("update", "conv.bias", (32,), 128, 4.0))
MEANS = (("method", "class_means", (7, 128), 3584, 2.5),)

app = typer.Typer(cls=OneLineErrors, pretty_exceptions_enable=False)
app.command("audit")(audit)
app.callback()(lambda: None)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["audit", *(str(argument) for argument in arguments)])


def note(place: Path, tensors: tuple[tuple[Any, ...], ...] = (), **fields: Any) -> None:
    """Append an answer to the audit file in folder ``place``."""
    names = ("part", "name", "shape", "bytes", "norm")
    entries = [{**dict(zip(names, one, strict=True)), "dtype": "float32"} for one in tensors]
    values = {
        "stage": "sent",
        "id": secrets.token_hex(8),
        "time": "2026-11-21T17:48:23.558+00:00",
        "site": place.name,
        "job": JOB,
        "task": "train",
        "round": 0,
        "return_code": "OK",
        "kind": "WEIGHT_DIFF",
        "bytes": sum(one["bytes"] for one in entries),
        "tensors": entries,
        "values": {},
        "others": {},
        "filters": ({"filter": "fdg_plugins.filters.gap.GapReportFilter", "source": "job"},),
        "config_sha256": CONFIG,
        "versions": {"fdg-plugins": "0.1.0", "nvflare": "2.9.0"},
        **fields,
    }
    place.mkdir(exist_ok=True)
    append_line(place / AUDIT_FILE, AuditLine.model_validate(values))


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The workspace of site photo, from which a census, an update and an update with class means have left."""
    folder = tmp_path / "photo"
    note(folder, task="census", round=None, kind="METRICS", values={"metrics/domain": "photo"}, filters=())
    note(folder, UPDATE)
    note(folder, (*UPDATE, *MEANS), round=1, values={"headers/current_round": 1}, others={"extra/x": "empty"})
    return folder


def rows_of(text: str) -> list[list[str]]:
    """Return the cells of a table's rows, without the lines above it."""
    lines = text.splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith("round "))
    return [line.split() for line in lines[start + 1 :] if line.strip()]


def test_a_row_for_every_part_of_every_answer(site: Path) -> None:
    result = run(site)
    assert result.exit_code == 0, result.output
    assert rows_of(result.stdout) == [
        ["-", "census", "OK", "-", "0", "0", "-", "1", "-"],
        ["0", "train", "OK", "update", "2", "3,584", "5", "0", "GapReportFilter"],
        ["1", "train", "OK", "update", "2", "3,584", "5", "2", "GapReportFilter"],
        ["method", "1", "3,584", "2.5"],
    ]
    site_and_job, sums, config = result.stdout.splitlines()[:3]
    assert site_and_job == f"site photo, job {JOB}"
    assert sums.startswith("3 answers, 10,752 bytes, 2026-11-21T17:48:23.558+00:00 to ")
    assert config == f"config {CONFIG[:12]}, fdg-plugins 0.1.0, nvflare 2.9.0"


def test_file_workspace_and_folder_of_workspaces_show_the_same(site: Path) -> None:
    outputs = [run(place).stdout for place in (site / AUDIT_FILE, site, site.parent)]
    assert outputs[0] == outputs[1] == outputs[2] != ""


def test_a_folder_of_workspaces_shows_every_site_once(site: Path) -> None:
    note(site.with_name("art_painting"), UPDATE)
    headings = [line for line in run(site.parent).stdout.splitlines() if line.startswith("site ")]
    assert headings == [f"site art_painting, job {JOB}", f"site photo, job {JOB}"]


def test_jobs_and_versions_have_tables_of_their_own(site: Path) -> None:
    note(site, UPDATE, job=OTHER_JOB)
    note(site, UPDATE, job=OTHER_JOB, versions={"nvflare": "2.9.1"})
    headings = [line for line in run(site).stdout.splitlines() if line.startswith("site ")]
    assert headings == [f"site photo, job {JOB}", *[f"site photo, job {OTHER_JOB}"] * 2]
    only = run(site, "--job", OTHER_JOB[:2]).stdout
    assert JOB not in only
    assert only.count(OTHER_JOB) == 2


def test_one_round_alone(site: Path) -> None:
    assert [row[0] for row in rows_of(run(site, "--round", 0).stdout)] == ["0"]


def test_details_list_every_tensor_every_value_and_whole_filters(site: Path) -> None:
    text = run(site, "--details").stdout
    for name, shape in (
        ("conv.weight", "[32, 3, 3, 3]"),
        ("class_means", "[7, 128]"),
        ("metrics/domain", '"photo"'),
        ("extra/x", "empty"),
    ):
        assert [line for line in text.splitlines() if name in line and shape in line]
    assert "fdg_plugins.filters.gap.GapReportFilter (job's)" in text
    assert "no filters" in text


def test_json_holds_everything_and_is_read_back(site: Path) -> None:
    (read,) = json.loads(run(site, "--json").stdout)
    assert read["file"] == str(site / AUDIT_FILE)
    assert read["broken"] == []
    written = [json.loads(line) for line in (site / AUDIT_FILE).read_text(encoding="utf-8").splitlines()]
    assert read["answers"] == written


def exported(place: Path, *options: object) -> list[dict[str, str]]:
    """Return the rows of the CSV file that the command writes."""
    path = place.parent / "left.csv"
    result = run(place, *options, "--csv", path)
    assert result.exit_code == 0, result.output
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_the_csv_file_has_a_row_for_every_tensor_and_value_and_one_for_an_empty_answer(site: Path) -> None:
    note(site, round=2, return_code="EXECUTION_EXCEPTION", kind="", id="0" * 16)
    rows = exported(site)
    assert [(row["round"], row["what"], row["name"]) for row in rows] == [
        ("", "value", "metrics/domain"),
        ("0", "tensor", "conv.weight"),
        ("0", "tensor", "conv.bias"),
        ("1", "tensor", "conv.weight"),
        ("1", "tensor", "conv.bias"),
        ("1", "tensor", "class_means"),
        ("1", "value", "headers/current_round"),
        ("1", "object", "extra/x"),
        ("2", "nothing", ""),
    ]
    weight = rows[1]
    assert [weight[name] for name in ("site", "job", "state", "shape", "bytes", "l2_norm", "versions")] == [
        "photo",
        JOB,
        "sent",
        "32 x 3 x 3 x 3",
        "3456",
        "3.0",
        "fdg-plugins 0.1.0; nvflare 2.9.0",
    ]
    assert [row["value"] for row in rows if row["value"]] == ["photo", "1", "empty"]
    assert rows[1]["filters"] == "fdg_plugins.filters.gap.GapReportFilter (job)"
    assert len({row["id"] for row in rows}) == 4


def test_the_csv_file_holds_what_was_asked_for_and_says_what_was_not_sent(site: Path) -> None:
    note(site, UPDATE, round=1, stage="returned", id="f" * 16)
    rows = exported(site, "--round", 1)
    assert {row["round"] for row in rows} == {"1"}
    assert {row["state"] for row in rows if row["id"] == "f" * 16} == {"not sent"}


@pytest.mark.parametrize("begins", ["=", "+", "-", "@", " =", "\uff1d", "\t=", "\r@"])
def test_no_cell_of_the_csv_file_is_a_formula_or_a_second_row(tmp_path: Path, begins: str) -> None:
    text = f'{begins}cmd|"/C calc"!A0\n=1,2'
    tensors = ((text, text, (1,), 4, 1.0),)
    note(tmp_path / "photo", tensors, values={text: text, "loss": -0.5}, task=text, others={text: text}, kind=text)
    rows = exported(tmp_path / "photo")
    assert len(rows) == 4
    cells = [cell for row in rows for cell in row.values()]
    assert [cell for cell in cells if cell.lstrip().startswith(("=", "+", "@", "\uff1d"))] == []
    assert [cell for cell in cells if cell.startswith("-")] == ["-0.5"], "a number that was measured stays one"
    assert not [cell for cell in cells if not cell.isprintable()]


def test_json_and_csv_exclude_each_other_and_a_csv_file_that_cannot_be_written_is_named(site: Path) -> None:
    check_refusal(run(site, "--json", "--csv", site / "left.csv"), "--json and --csv exclude each other")
    (site.parent / "file").touch()
    path = site.parent / "file" / "left.csv"
    check_refusal(run(site, "--csv", path), f"{path} cannot be written")


def test_a_broken_line_is_named_and_hides_no_other(site: Path) -> None:
    with (site / AUDIT_FILE).open("a", encoding="utf-8") as file:
        file.write('{"version":1,"time":"2026-11-')
    note(site, UPDATE, round=2)
    with (site / AUDIT_FILE).open("a", encoding="utf-8") as file:
        file.write('{"version": 3}\n')
    result = run(site)
    assert result.exit_code == 1
    assert [row[0] for row in rows_of(result.stdout)] == ["-", "0", "1", "method", "2"]
    first, second = result.stderr.splitlines()
    assert f"{site / AUDIT_FILE}: line 4 is left out: it is not valid JSON: cut off by a crash" in first
    assert "line 6 is left out: version is 3, but input should be 2." in second
    as_json = run(site, "--json")
    assert as_json.exit_code == 1
    assert [line["number"] for line in json.loads(as_json.stdout)[0]["broken"]] == [4, 6]


def test_an_answer_has_one_row_and_one_that_was_not_sent_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "photo"
    for round_number, stages in enumerate((("returned", "sent"), ("returned",), ("returned", "sent"))):
        for stage in stages:
            # A filter has made the last answer an error reply, which names no round.
            made_error = round_number == 2 and stage == "sent"
            fields = {"round": None, "return_code": "EXECUTION_EXCEPTION"} if made_error else {"round": round_number}
            note(folder, () if made_error else UPDATE, stage=stage, id=f"{round_number:016x}", **fields)
    text = run(folder).stdout
    assert "\n3 answers, 1 of them not sent, 3,584 bytes, " in text
    assert [row[:5] for row in rows_of(text)] == [
        ["0", "train", "OK", "update", "2"],
        ["1", "train", "OK,", "not", "sent"],
        ["-", "train", "EXECUTION_EXCEPTION", "-", "0"],
    ]
    assert "round 1, train: OK, not sent, WEIGHT_DIFF" in run(folder, "--details").stdout
    assert run(folder, "--round", 2).exit_code == 2, "its answer was sent, as an error"
    (read,) = json.loads(run(folder, "--json").stdout)
    assert [one["round"] for one in read["answers"]] == [0, None]
    assert [one["round"] for one in read["not_sent"]] == [1]


@pytest.mark.parametrize("option", [(), ("--details",)])
def test_what_a_job_names_cannot_steer_the_terminal(tmp_path: Path, option: tuple[str, ...]) -> None:
    hidden = "\x1b[2J\x1b[31m\u202e"
    note(
        tmp_path / "photo",
        ((f"part{hidden}", f"name{hidden}[red]", (1,), 4, 1.0),),
        values={f"key{hidden}": f"text{hidden}"},
        task=f"train{hidden}",
        kind=hidden,
    )
    text = run(tmp_path, *option).stdout
    assert not [character for character in text if not character.isprintable() and character != "\n"]
    assert "train\\x1b[2J" in text


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--job", ""], "--job is '', expected the id of a job, or how it begins."),
        (["--job", "abc"], f"nothing of job abc is in {{file}}; it holds the jobs {JOB}, rounds 0 to 1."),
        (["--round", 9], "nothing of round 9 is in"),
        (["--job", "x", "--round", 1], "nothing of job x and round 1 is in"),
    ],
)
def test_what_is_not_in_the_file_ends_in_one_sentence(site: Path, options: list[object], sentence: str) -> None:
    check_refusal(run(site, *options), sentence.format(file=site / AUDIT_FILE))


def test_a_place_without_an_audit_ends_in_one_sentence(tmp_path: Path) -> None:
    check_refusal(run(tmp_path / "nowhere"), "nowhere is not there, expected a site's workspace or its fdg_audit.jsonl")
    check_refusal(run(tmp_path), f"folder {tmp_path} holds no fdg_audit.jsonl, and no folder right below it does")
    (tmp_path / AUDIT_FILE).mkdir()
    check_refusal(run(tmp_path), f"{AUDIT_FILE} cannot be read: Is a directory")


def check_refusal(result: Result, sentence: str) -> None:
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: ")
    assert sentence in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert result.stdout == ""
