# SPDX-License-Identifier: Apache-2.0
"""``fdg audit`` on files that sites write: what it shows, what it names as broken, and what it refuses."""

import csv
import secrets
from pathlib import Path
from typing import Any

import pytest

from fdg_plugins.audit.file import AUDIT_FILE, AuditLine, append_line
from tests.cli.commands import check_refusal, fdg

JOB, OTHER_JOB = "3379af42-b0b1-4066-889e-7cf89997f720", "9c0d"
CONFIG = "885d6174732782a756a47c64fa9eeabeb82416c3236b25f5392ad678f34da264"
UPDATE = (("update", "conv.weight", (32, 3, 3, 3), 3456, 3.0), ("update", "conv.bias", (32,), 128, 4.0))
MEANS = (("method", "class_means", (7, 128), 3584, 2.5),)


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
    result = fdg("audit", site)
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


def test_the_kit_of_a_provisioned_site_shows_what_has_left_it(site: Path) -> None:
    """A site that FLARE has provisioned runs in the folder of its kit, which a site's administrator names."""
    for part in ("startup", "local", JOB):
        (site / part).mkdir()
    shown = fdg("audit", site)
    assert f"site photo, job {JOB}" in shown.stdout
    assert fdg("audit", site / AUDIT_FILE).stdout == fdg("audit", site.parent).stdout == shown.stdout
    as_before = fdg("audit", "--kit", site)
    assert (as_before.exit_code, as_before.stdout) == (0, shown.stdout)
    note(site.with_name("art_painting"), UPDATE)
    headings = [line for line in fdg("audit", site.parent).stdout.splitlines() if line.startswith("site ")]
    assert headings == [f"site art_painting, job {JOB}", f"site photo, job {JOB}"]


def test_jobs_and_versions_have_tables_of_their_own(site: Path) -> None:
    note(site, UPDATE, job=OTHER_JOB)
    note(site, UPDATE, job=OTHER_JOB, versions={"nvflare": "2.9.1"})
    headings = [line for line in fdg("audit", site).stdout.splitlines() if line.startswith("site ")]
    assert headings == [f"site photo, job {JOB}", *[f"site photo, job {OTHER_JOB}"] * 2]
    only = fdg("audit", site, "--job", OTHER_JOB[:2]).stdout
    assert (JOB in only, only.count(OTHER_JOB)) == (False, 2)


def test_the_csv_file_has_a_row_for_every_tensor_and_value_and_none_is_a_formula(site: Path) -> None:
    note(site, values={"=1+1": "=cmd"}, round=2)
    file = site.parent / "left.csv"
    result = fdg("audit", site, "--csv", file)
    assert result.stdout == f"{file}: 4 answers\n"
    rows = list(csv.DictReader(file.read_text(encoding="utf-8").splitlines()))
    assert len(rows) == 1 + 2 + 3 + 2 + 1
    cells = [cell for row in rows for cell in row.values()]
    assert not [cell for cell in cells if cell.startswith(("=", "+", "@"))]
    check_refusal(fdg("audit", site, "--csv", site / AUDIT_FILE), "another file than those that are read")


def test_a_broken_line_is_named_and_hides_no_other(site: Path) -> None:
    with (site / AUDIT_FILE).open("a", encoding="utf-8") as file:
        file.write('{"cut off')
    note(site, UPDATE, round=2)
    result = fdg("audit", site)
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert "line 4 is left out" in result.stderr
    assert [row[0] for row in rows_of(result.stdout)][-2:] == ["method", "2"]


def test_an_answer_that_was_not_sent_says_so_once_and_names_are_escaped(tmp_path: Path) -> None:
    note(tmp_path / "photo", UPDATE, stage="returned", id="a", filters=())
    note(tmp_path / "photo", UPDATE, stage="returned", id="b", filters=())
    note(tmp_path / "photo", UPDATE, id="b")
    note(tmp_path / "photo", UPDATE, job="\x1b[2J\nsite evil", task="train\x1b[31m")
    shown = fdg("audit", tmp_path / "photo").stdout
    assert "2 answers, 1 of them not sent" in shown
    assert shown.count("OK, not sent") == 1
    assert "\x1b" not in shown, "what a job names cannot steer the terminal"
    assert "\nsite evil" not in shown


def test_what_is_not_there_ends_in_one_sentence(site: Path, tmp_path: Path) -> None:
    check_refusal(fdg("audit", site, "--job", "77"), "nothing of job 77 is in")
    check_refusal(fdg("audit", tmp_path / "nowhere"), f"holds no {AUDIT_FILE}")
