# SPDX-License-Identifier: Apache-2.0
"""The audit: everything that leaves is in a line, which ``fdg audit`` shows; what cannot be noted does not leave."""

import csv
import hashlib
import json
import math
import os
import secrets
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.event_type import EventType
from nvflare.apis.filter import FilterContextKey, FilterSource
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.utils.event import fire_event_to_components
from nvflare.app_common.abstract.fl_model import FLModel
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.filters.exclude_vars import ExcludeVars

from fdg_plugins.audit.auditor import audit_event, note_returned
from fdg_plugins.audit.contents import AT_A_TIME, contents_of
from fdg_plugins.audit.file import AUDIT_FILE, AuditLine, append_line, read_audit
from fdg_plugins.errors import DataError
from fdg_plugins.filters import GapReportFilter
from fdg_plugins.filters.wire import pack
from fdg_plugins.messages import HEADER_REASON, META_REPORT, META_SAMPLES
from tests.cli.commands import check_refusal, fdg, printed
from tests.flare_runner import site_context

JOB, OTHER_JOB = "3379af42-b0b1-4066-889e-7cf89997f720", "9c0d"
CONFIG = "885d6174732782a756a47c64fa9eeabeb82416c3236b25f5392ad678f34da264"
UPDATE = (("update", "conv.weight", (32, 3, 3, 3), 3456, 3.0), ("update", "conv.bias", (32,), 128, 4.0))
MEANS = (("method", "class_means", (7, 128), 3584, 2.5),)


def made_line(tensors: tuple[tuple[Any, ...], ...] = (), **fields: Any) -> AuditLine:
    """Return the line of an answer to ``train``, with ``fields`` in the place of what it says by default."""
    names = ("part", "name", "shape", "bytes", "norm")
    entries = [{**dict(zip(names, one, strict=True)), "dtype": "float32"} for one in tensors]
    values = {
        "id": secrets.token_hex(8),
        "time": "2026-11-21T17:48:23.558+00:00",
        "site": "photo",
        "job": JOB,
        "task": "train",
        "stage": "sent",
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
    }
    return AuditLine.model_validate({**values, **fields})


def note(place: Path, tensors: tuple[tuple[Any, ...], ...] = (), **fields: Any) -> None:
    """Append an answer to the audit file in folder ``place``."""
    place.mkdir(exist_ok=True)
    append_line(place / AUDIT_FILE, made_line(tensors, site=place.name, **fields))


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
    shown = printed("audit", site)
    assert rows_of(shown) == [
        ["-", "census", "OK", "-", "0", "0", "-", "1", "-"],
        ["0", "train", "OK", "update", "2", "3,584", "5", "0", "GapReportFilter"],
        ["1", "train", "OK", "update", "2", "3,584", "5", "2", "GapReportFilter"],
        ["method", "1", "3,584", "2.5"],
    ]
    site_and_job, sums, config = shown.splitlines()[:3]
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


def test_a_broken_line_is_named_and_hides_no_other_and_the_file_is_its_owners_alone(site: Path) -> None:
    assert stat.S_IMODE((site / AUDIT_FILE).stat().st_mode) == 0o600
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
    (site / AUDIT_FILE).write_text("")
    assert fdg("audit", site).stdout == f"{site / AUDIT_FILE}: no answer\n"
    note(site)
    fdg("audit", site, "--csv", tmp_path / "left.csv")
    assert "nothing" in (tmp_path / "left.csv").read_text()


SITE = "photo"
JOB_CONFIG = "job-1/app_photo/config/config_fed_client.json"


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("NVFL_AUDIT_ROOT", raising=False)
    (tmp_path / JOB_CONFIG).parent.mkdir(parents=True)
    (tmp_path / JOB_CONFIG).write_text("{}")
    return tmp_path


@pytest.fixture
def fl_ctx(workspace: Path) -> FLContext:
    """A site's context in the task ``train``, whose answer passed a filter of the site and one of the job."""
    own, jobs = ExcludeVars(["head"]), GapReportFilter()
    own.set_prop(FilterContextKey.SOURCE, FilterSource.SITE)
    jobs.set_prop(FilterContextKey.SOURCE, FilterSource.JOB)
    return site_context(SITE, workspace, "job-1", [own], "train", [jobs])


def audit(answer: Shareable, fl_ctx: FLContext) -> list[AuditLine]:
    """Fire the event of FLARE's client, with the answer it is about to send; return the lines of the file."""
    fl_ctx.set_prop(FLContextKey.TASK_RESULT, answer, private=True, sticky=False)
    audit_event(EventType.AFTER_TASK_RESULT_FILTER, fl_ctx)
    return read_audit(audit_file(fl_ctx))


def audit_file(fl_ctx: FLContext) -> Path:
    return Path(fl_ctx.get_engine().get_workspace().get_root_dir()) / "fdg_audit.jsonl"


def update() -> DXO:
    data = {"w": torch.tensor([[3.0, 0.0], [0.0, 4.0]]), "bn.num_batches_tracked": torch.tensor(7)}
    report = {"loss": math.nan, "steps": 3, "domain": "photo", "ok": True, "none": None, "deep": {"list": [1, 2.5]}}
    return DXO(DataKind.WEIGHT_DIFF, data=data, meta={META_SAMPLES: 120, META_REPORT: report})


@pytest.mark.parametrize("by_executor", [True, False])
def test_answer_is_recorded_as_sent_once(by_executor: bool, fl_ctx: FLContext) -> None:
    fl_ctx.set_prop(FLContextKey.TASK_ID, "one", private=True, sticky=False)
    answer = update().to_shareable()
    if by_executor:
        note_returned("train", answer, fl_ctx)
    for _ in range(3):
        lines = audit(answer, fl_ctx)
    assert [line.stage for line in lines] == [*(["returned"] if by_executor else []), "sent"]
    assert len({line.id for line in lines}) == 1
    answer["more"] = 1
    assert len(audit(answer, fl_ctx)) == len(lines) + 1, "what has changed since leaves too"


def test_an_update_is_noted_by_its_arrays_values_filters_and_versions(fl_ctx: FLContext) -> None:
    answer = update().to_shareable()
    answer.set_header(AppConstants.CURRENT_ROUND, 4)
    (line,) = audit(answer, fl_ctx)
    assert (line.site, line.job, line.task, line.round, line.return_code) == (SITE, "job-1", "train", 4, "OK")
    weight, counter = line.tensors
    named = {"part": "update", "name": "w", "shape": (2, 2), "dtype": "float32", "bytes": 16, "norm": 5.0}
    assert weight.model_dump() == named
    assert (counter.shape, counter.dtype, counter.bytes, counter.norm) == ((), "int64", 8, 7.0)
    assert (line.kind, line.bytes) == ("WEIGHT_DIFF", 24)
    expected = {"NUM_STEPS_CURRENT_ROUND": 120, "fdg_report/loss": "nan", "fdg_report/deep/list/1": 2.5}
    assert line.values.items() >= {f"meta/{name}": value for name, value in expected.items()}.items()
    assert line.values["meta/fdg_report/ok"] is True
    assert line.values["context/__identity_name__"] == SITE, "FLARE sends its public properties beside every answer"
    assert line.filters is not None
    assert [(one.filter, one.source) for one in line.filters] == [
        ("nvflare.app_common.filters.exclude_vars.ExcludeVars", "site"),
        ("fdg_plugins.filters.gap.GapReportFilter", "job"),
    ]
    assert line.config_sha256 == hashlib.sha256(b"{}").hexdigest()
    assert line.versions.keys() == {"fdg-plugins", "nvflare", "torch"}
    assert line.time.endswith("+00:00")


def test_without_a_chain_of_filters_or_a_config_the_line_says_so(workspace: Path, fl_ctx: FLContext) -> None:
    fl_ctx.set_prop(FLContextKey.RUNNER, None, private=True, sticky=False)
    (workspace / JOB_CONFIG).unlink()
    (line,) = audit(make_reply(ReturnCode.TASK_ABORTED, {HEADER_REASON: "the cat"}), fl_ctx)
    assert (line.filters, line.config_sha256, line.round) == (None, None, None)
    assert (line.return_code, line.kind, line.values["headers/fdg_reason"]) == ("TASK_ABORTED", "error", "the cat")


def test_config_hash_is_of_all_but_compiled_files(workspace: Path, fl_ctx: FLContext) -> None:
    config = workspace / JOB_CONFIG
    config.rename(config.with_suffix(".conf"))
    (config.parent / "__pycache__").mkdir()
    for text, compiled in (("executors = []", b"1"), ("executors = []", b"2"), ("executors = [x]", b"2")):
        config.with_name("included.conf").write_text(text, encoding="utf-8")
        (config.parent / "__pycache__" / "own.cpython-311.pyc").write_bytes(compiled)
        lines = audit(Shareable({"of": [text, compiled]}), fl_ctx)
    first, second, third = (line.config_sha256 for line in lines)
    assert first == second != third is not None


def test_values_whose_places_read_alike_are_all_recorded(fl_ctx: FLContext) -> None:
    long = "k" * 300
    data = {"a/b": 1, "a": {"b": 2}, 1: 3, "1": 4, f"{long}x": 5, f"{long}y": 6}
    (line,) = audit(DXO(DataKind.METRICS, data=data).to_shareable(), fl_ctx)
    assert {value for place, value in line.values.items() if place.startswith("metrics/")} == {1, 2, 3, 4, 5, 6}
    assert (line.values["metrics/a/b"], line.values["metrics/a/b#2"]) == (1, 2)


def test_tensors_are_found_wherever_they_hide() -> None:
    hidden = torch.full((4,), 2.0)
    answer = pack(update(), {"class_means": hidden}, 0, Shareable())
    answer["DXO"]["note"] = hidden
    answer["extra"] = {"a": (hidden, FLModel(params={"w": hidden}))}
    answer["dxo"] = DXO(DataKind.WEIGHTS, data={"v": hidden}, meta={"deep": [hidden]})
    answer.set_header("own", hidden)
    found = contents_of(answer, {"property": hidden})
    assert found.kind == "COLLECTION"
    assert {f"{entry.part}|{entry.name}" for entry in found.tensors if entry.norm == 4.0} == {
        "method|class_means",
        "extra|DXO/note",
        "extra|extra/a/0",
        "extra|extra/a/1/params/w",
        "extra/dxo|v",
        "meta of extra/dxo|deep/0",
        "headers|own",
        "context|property",
    }
    answer["dxo"] = DXO(DataKind.COLLECTION, data={"own": {"w": hidden}})
    assert "extra/dxo/own/w" in {entry.name for entry in contents_of(answer, {}).tensors}
    assert found.values["meta of fdg_tensors/fdg_round"] == 0
    assert found.values["meta/NUM_STEPS_CURRENT_ROUND"] == 120


@pytest.mark.parametrize(
    ("value", "dtype", "norm"),
    [
        (torch.tensor([3.0, 4.0], dtype=torch.bfloat16), "bfloat16", 5.0),
        (torch.tensor([3 + 4j]), "complex64", 5.0),
        (torch.tensor([[0.0, 5.0]]).to_sparse(), "float32", 5.0),
        (torch.ones(2 * AT_A_TIME + 1), "float32", (2 * AT_A_TIME + 1) ** 0.5),
        (torch.tensor([math.nan, 1.0]), "float32", math.nan),
        (np.array([3.0, 4.0], dtype=">f4"), ">f4", 5.0),
        (np.array([None]), "object", math.nan),
        ([1.0] * 100, "list", 10.0),
        ([10**400] * 17, "list", 1e300 * 17**0.5),
    ],
    ids=lambda value: str(getattr(value, "dtype", ""))[:12],
)
def test_arrays_of_every_kind_have_a_length_or_none(value: Any, dtype: str, norm: float) -> None:
    (entry,) = contents_of(Shareable({"x": value}), {}).tensors
    assert entry.dtype == dtype
    assert entry.norm == pytest.approx(norm, rel=1e-3, nan_ok=True)


def test_what_cannot_be_looked_into_is_noted_by_its_type() -> None:
    deep: Any = "bottom"
    for _ in range(50):
        deep = [deep]
    content = {"raw": b"1234", "odd": object(), "text": "x" * 10_000, "deep": deep, "none": [], "few": [1] * 16}
    found = contents_of(Shareable({**content, "one": np.float32(0.5)}), {})
    assert found.values["extra/one"] == 0.5
    assert found.others["extra/raw"] == "builtins.bytes of 4 bytes"
    assert found.others["extra/odd"] == "builtins.object"
    assert found.others["extra/none"] == "empty"
    assert found.values["extra/text"] == f"{'x' * 200}... (10000 characters)"
    assert found.values["extra/few/15"] == 1
    assert any("too deep" in what for what in found.others.values())


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=5) | st.integers(), inner, max_size=3)
    ),
    max_leaves=10,
)


@settings(deadline=None, max_examples=50)
@given(content=st.dictionaries(st.text(max_size=8), junk, max_size=4), dxo=junk)
def test_whatever_an_answer_holds_its_line_is_json_and_reads_back(content: dict[str, Any], dxo: Any) -> None:
    answer = Shareable({**content, "DXO": dxo})
    answer["__headers__"] = {"__content_type__": "DXO"}
    found = contents_of(answer, {})
    line = made_line(values=found.values, others=found.others).model_copy(update={"tensors": tuple(found.tensors)})
    text = line.model_dump_json()
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    back = AuditLine.model_validate_json(text)
    assert (back.values, back.others) == (line.values, line.others)


def test_flare_sends_what_the_audit_left_of_an_answer(fl_ctx: FLContext) -> None:
    class Site(FLComponent):
        def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
            audit_event(event_type, fl_ctx)

    fl_ctx.get_engine().fire_event = lambda event, context: fire_event_to_components(event, [Site()], context)
    audit_file(fl_ctx).symlink_to("/dev/full")
    answer = update().to_shareable()
    # As FLARE's client does, which goes on to send the same object.
    Site().fire_event_with_data(EventType.AFTER_TASK_RESULT_FILTER, fl_ctx, FLContextKey.TASK_RESULT, answer)
    for left in (answer, note_returned("train", update().to_shareable(), fl_ctx)):
        assert set(left) == {"__headers__"}
        assert left.get_return_code() == ReturnCode.EXECUTION_EXCEPTION
        told = "site photo: its answer was withheld: the audit cannot be written: No space left on device (details in "
        assert left.get_header(HEADER_REASON).startswith(told)


def test_full_disk_takes_back_a_part_of_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "audit.jsonl"
    append_line(path, made_line(round=0))
    before = path.read_bytes()

    def full(handle: int) -> None:
        assert os.fstat(handle).st_size > len(before)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataError) as caught:
        append_line(path, made_line(round=1))
    assert (str(path) in str(caught.value), str(path) in caught.value.public) == (True, False)
    assert path.read_bytes() == before
