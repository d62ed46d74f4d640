# SPDX-License-Identifier: Apache-2.0
"""Finding runs: where records may lie, and what is left out with which reason."""

import errno
import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fdg_plugins.errors import DataError
from fdg_plugins.lab.analysis import find_runs, runs
from fdg_plugins.record.run_record import Method
from tests.analysis.run_stubs import FEDOMG, finished, keep, run
from tests.controllers.federation_stubs import round_record


def write(folder: Path, record: Any) -> Path:
    folder.mkdir(parents=True)
    text = record if isinstance(record, str) else json.dumps(record)
    (folder / "results.json").write_text(text, encoding="utf-8")
    return folder


def as_json(**changes: Any) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(finished().model_dump_json())
    return {**value, **changes}


def test_a_run_tells_what_it_is() -> None:
    found = run("x", FEDOMG, "sketch", 3)
    assert (found.method, found.target, found.seed, found.dataset) == ("fedomg", "sketch", 3, "pacs")


def test_a_path_without_any_record_is_told_from_one_without_a_finished_run(tmp_path: Path) -> None:
    write(tmp_path / "whole", as_json())
    write(tmp_path / "begun", {**as_json(), "status": "running"})
    (tmp_path / "empty").mkdir()
    found = find_runs([tmp_path / name for name in ("whole", "begun", "empty")])
    assert (len(found.runs), found.empty) == (1, (tmp_path / "empty",))
    assert [folder for folder, _ in found.left_out] == [tmp_path / "begun"]


def test_runs_are_found_at_any_depth_in_the_order_of_their_folders(tmp_path: Path) -> None:
    places = ["sweep/runs/b", "sweep/runs/a", "workspace/server/simulate_job", "job/workspace"]
    for place in places:
        write(tmp_path / place, as_json())
    found = find_runs([tmp_path / "workspace", tmp_path / "sweep", tmp_path / "job"])
    assert [one.folder for one in found.runs] == sorted(tmp_path / place for place in places)
    assert found.left_out == ()
    assert found.runs[0].record == finished()


def test_the_file_itself_may_be_named(tmp_path: Path) -> None:
    file = keep(run("a"), tmp_path)
    assert [one.folder for one in find_runs([file]).runs] == [file.parent]


def test_several_files_of_one_folder_are_as_many_runs(tmp_path: Path) -> None:
    files = [keep(run(name), tmp_path).rename(tmp_path / f"{name}.json") for name in ("a", "b")]
    assert [one.folder for one in find_runs(files).runs] == [tmp_path, tmp_path]


def test_a_run_below_two_of_the_paths_is_found_once(tmp_path: Path) -> None:
    keep(run("a"), tmp_path)
    assert len(find_runs([tmp_path, tmp_path / "runs", tmp_path / "runs" / ".." / "runs"]).runs) == 1


def test_links_below_the_paths_are_not_followed_but_a_path_may_be_one(tmp_path: Path) -> None:
    file = keep(run("a"), tmp_path / "elsewhere")
    place = tmp_path / "here"
    place.mkdir()
    (place / "linked").symlink_to(file.parent)
    (place / "results.json").symlink_to(file)
    assert find_runs([place]).runs == ()
    assert len(find_runs([place / "linked"]).runs) == 1


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (as_json(status="running"), "the run is not finished but running."),
        (as_json(status="stopped", stopped_because="disk full."), "the run is not finished but stopped: disk full."),
        (as_json(rounds=[round_record(1, reason="too few.").model_dump()]), "no round of the run changed the model."),
        (as_json(schema_version=2), "schema_version is 2, expected 1."),
        (["a list"], "schema_version is None, expected 1."),
        ({"schema_version": 1, "stand_in": False}, "results.json: field 'data' is missing."),
        (as_json(unheard_of=1), "results.json: unknown field 'unheard_of'."),
        (as_json(census={}), "results.json has no census of site 'art_painting', expected one of each site."),
        ("{half a reco", "results.json is not valid JSON"),
    ],
)
def test_what_cannot_be_used_is_left_out_with_the_reason(tmp_path: Path, record: Any, reason: str) -> None:
    bad = write(tmp_path / "bad", record)
    good = write(tmp_path / "good", as_json())
    found = find_runs([tmp_path])
    assert [one.folder for one in found.runs] == [good]
    ((folder, said),) = found.left_out
    assert folder == bad
    assert said.startswith(reason)


def test_a_folder_that_cannot_be_listed_is_left_out_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = keep(run("a"), tmp_path)
    closed = tmp_path / "closed"
    closed.mkdir()
    scandir = os.scandir

    def refuse(path: Any) -> Any:
        if Path(path) == closed:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    found = find_runs([tmp_path])
    assert [one.folder for one in found.runs] == [file.parent]
    assert found.left_out == ((closed, "folder cannot be read: Permission denied."),)


def test_a_path_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"path .*nowhere does not exist; expected a folder of runs"):
        find_runs([tmp_path, tmp_path / "nowhere"])


# --- compressed records ---


def compressed(file: Path) -> Path:
    """Do what ``gzip`` does: replace ``file`` by its compressed content under the name with .gz."""
    packed = file.with_name(f"{file.name}.gz")
    packed.write_bytes(gzip.compress(file.read_bytes()))
    file.unlink()
    return packed


def test_a_compressed_record_is_the_record(tmp_path: Path) -> None:
    keep(run("a"), tmp_path)
    (plain,) = find_runs([tmp_path]).runs
    assert plain.file is not None
    packed = compressed(plain.file)
    for named in (tmp_path, packed):
        (found,) = find_runs([named]).runs
        assert (found.folder, found.record, found.file) == (plain.folder, plain.record, packed)


def test_beside_the_record_a_compressed_one_is_not_read(tmp_path: Path) -> None:
    file = keep(run("a"), tmp_path)
    file.with_name("results.json.gz").write_bytes(b"not gzip's")
    found = find_runs([tmp_path])
    assert [one.file for one in found.runs] == [file]
    assert found.left_out == ()


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda content: content[:-20], "results.json.gz is not a whole file of gzip: "),
        (lambda content: b"{}", "results.json.gz is not a whole file of gzip: "),
        (lambda content: content[:20] + bytes(9) + content[29:], "results.json.gz is not a whole file of gzip: "),
        (lambda content: gzip.compress(b"{half a reco"), "results.json.gz is not valid JSON"),
    ],
    ids=["cut", "not packed", "damaged", "not JSON"],
)
def test_a_damaged_compressed_record_is_left_out_with_the_reason(
    tmp_path: Path, damage: Callable[[bytes], bytes], reason: str
) -> None:
    packed = compressed(keep(run("a"), tmp_path))
    packed.write_bytes(damage(packed.read_bytes()))
    found = find_runs([tmp_path])
    assert found.runs == ()
    ((folder, said),) = found.left_out
    assert folder == packed.parent
    assert said.startswith(reason)


def test_a_compressed_file_too_large_for_a_record_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = keep(run("a"), tmp_path)
    size = file.stat().st_size
    compressed(file)
    monkeypatch.setattr(runs, "LARGEST", size)
    assert len(find_runs([tmp_path]).runs) == 1
    monkeypatch.setattr(runs, "LARGEST", size - 1)
    ((_, said),) = find_runs([tmp_path]).left_out
    assert said == f"results.json.gz holds more than {size - 1} bytes, expected a record."


# --- runs as they were after some of their rounds ---


def test_a_run_that_goes_on_is_taken_as_it_was_after_the_rounds_asked_for(tmp_path: Path) -> None:
    sources = [(0.2,) * 3, (0.5,) * 3, (0.4,) * 3, (0.9,) * 3]
    whole = finished(FEDOMG, accuracies=(0.1, 0.3, 0.4, 0.2), sources=sources)
    write(tmp_path / "run", json.loads(whole.model_dump_json()) | {"status": "running", "choices": []})
    (found,) = find_runs([tmp_path], 2).runs
    assert (found.planned, found.record.protocol.rounds) == (whole.protocol.rounds, 2)
    assert found.record.evaluations == whole.evaluations[:3]
    chosen = {choice.rule: choice.after_round for choice in found.record.choices}
    assert chosen == {"last": 2, "source_validation": 1, "oracle": 2}


def test_all_rounds_of_a_finished_run_are_the_run(tmp_path: Path) -> None:
    one = run("a", accuracies=(0.1, 0.3, 0.2), protocol={"rounds": 2})
    keep(one, tmp_path)
    (found,) = find_runs([tmp_path], 2).runs
    (whole,) = find_runs([tmp_path]).runs
    assert found.planned is None
    for name in ("evaluations", "rounds", "protocol", "status"):
        assert getattr(found.record, name) == getattr(whole.record, name)
    assert [(one.rule, one.after_round) for one in found.record.choices] == [
        (one.rule, one.after_round) for one in whole.record.choices
    ]


def test_a_run_that_has_not_come_so_far_is_left_out_with_its_rounds(tmp_path: Path) -> None:
    keep(run("a", accuracies=(0.1, 0.3)), tmp_path)
    found = find_runs([tmp_path], 2)
    assert (found.runs, [reason for _, reason in found.left_out]) == ((), ["the run has 1 round, expected at least 2."])


def test_a_centralised_reference_has_steps_and_stays_as_it_is(tmp_path: Path) -> None:
    reference = run("erm", Method(aggregator="erm", settings={}))
    keep(reference, tmp_path)
    (found,) = find_runs([tmp_path], 50).runs
    assert found.record == reference.record
