# SPDX-License-Identifier: Apache-2.0
"""Finding runs: where records may lie, and what is left out with which reason."""

import gzip
import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fdg_plugins.lab.analysis import RULES, build_table, find_runs
from fdg_plugins.lab.analysis.figures import make_pictures
from fdg_plugins.record.round_record import Method
from tests.analysis.run_stubs import FEDAVG, FEDOMG, finished, keep, run
from tests.controllers.federation_stubs import round_record
from tests.figures.figure_stubs import Site, figure_run, judged, one_round
from tests.scripts import load_script


def write(folder: Path, record: Any) -> Path:
    folder.mkdir(parents=True)
    text = record if isinstance(record, str) else json.dumps(record)
    (folder / "results.json").write_text(text, encoding="utf-8")
    return folder


def as_json(**changes: Any) -> dict[str, Any]:
    return {**finished().model_dump(mode="json"), **changes}


def test_find_runs_at_any_depth_in_the_order_of_folders_and_by_links(tmp_path: Path) -> None:
    places = ["sweep/runs/b", "sweep/runs/a", "workspace/server/simulate_job", "job/workspace"]
    for place in places:
        write(tmp_path / place, as_json())
    found = find_runs([tmp_path / "workspace", tmp_path / "sweep", tmp_path / "job", tmp_path / "job" / ".." / "job"])
    assert [one.folder for one in found.runs] == sorted(tmp_path / place for place in places)
    assert (found.left_out, found.runs[0].record) == ((), finished())
    files = [keep(run(name), tmp_path / "x").rename(tmp_path / f"{name}.json") for name in ("a", "b")]
    assert [one.folder for one in find_runs(files).runs] == [tmp_path, tmp_path]
    file = keep(run("a"), tmp_path / "elsewhere")
    here = tmp_path / "here"
    here.mkdir()
    (here / "linked").symlink_to(file.parent)
    (here / "results.json").symlink_to(file)
    assert find_runs([here]).runs == ()
    assert len(find_runs([here / "linked"]).runs) == 1


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (as_json(status="stopped", stopped_because="disk full."), "stopped: disk full."),
        (as_json(rounds=[round_record(1, reason="too few.").model_dump()]), "no round of the run changed the model."),
        (as_json(schema_version=2), "schema_version is 2"),
        (["a list"], "schema_version is None"),
        (as_json(unheard_of=1), "'unheard_of'"),
        (as_json(census={}), "census of site 'art_painting'"),
        ("{half a reco", "results.json is not valid JSON"),
    ],
)
def test_find_runs_leaves_out_what_cannot_be_used(tmp_path: Path, record: Any, reason: str) -> None:
    bad, good = write(tmp_path / "bad", record), write(tmp_path / "good", as_json())
    found = find_runs([tmp_path])
    assert [one.folder for one in found.runs] == [good]
    ((folder, said),) = found.left_out
    assert (folder, reason in said) == (bad, True)


def test_find_runs_leaves_out_a_damaged_compressed_record(tmp_path: Path) -> None:
    file = keep(run("a"), tmp_path)
    packed = file.with_name(f"{file.name}.gz")
    whole = gzip.compress(file.read_bytes())
    file.unlink()
    for content in (whole[:-20], b"{}", gzip.compress(b"{half a reco")):
        packed.write_bytes(content)
        found = find_runs([tmp_path])
        assert (found.runs, [folder for folder, _ in found.left_out]) == ((), [packed.parent])


def test_find_runs_after_some_rounds_keeps_a_reference_that_has_steps(tmp_path: Path) -> None:
    sources = [(0.2,) * 3, (0.5,) * 3, (0.4,) * 3, (0.9,) * 3]
    whole = finished(FEDOMG, accuracies=(0.1, 0.3, 0.4, 0.2), sources=sources)
    write(tmp_path / "run", whole.model_dump(mode="json") | {"status": "running", "choices": []})
    (found,) = find_runs([tmp_path], 2).runs
    assert (found.planned, found.record.protocol.rounds) == (whole.protocol.rounds, 2)
    assert found.record.evaluations == whole.evaluations[:3]
    chosen = {choice.rule: choice.after_round for choice in found.record.choices}
    assert chosen == {"last": 2, "source_validation": 1, "oracle": 2}
    assert find_runs([tmp_path], 4).runs == ()
    reference = run("erm", Method(aggregator="erm", settings={}))
    keep(reference, tmp_path)
    assert [one.record for one in find_runs([tmp_path], 50).runs] == [reference.record]


def test_find_runs_reads_a_packed_study_as_its_records(tmp_path: Path) -> None:
    """The CSV files give the table and the figures of the records; the manifest names these."""
    sites = {"cartoon": Site(weight=0.25), "art_painting": Site(own_loss=None, with_mean=0.7)}
    rounds = [one_round(1, sites), one_round(2, sites, moved=False), one_round(3, sites)]
    scores = [{name: judged(accuracy=one / 8) for name in ("photo", "sketch", *sites)} for one in (1, 7, 2, 4)]
    for seed in range(2):
        one = figure_run(FEDAVG, "photo", seed, scores[seed:], rounds[: 3 - seed], protocol={"rounds": 3})
        keep(replace(one, folder=Path(f"seed{seed}")), tmp_path / "full" / "study")
    script = load_script(Path(__file__).parents[2] / "docs" / "pack_records.py")
    script.main(tmp_path / "full", tmp_path / "packed", tmp_path / "records.tar")
    full, packed = (find_runs([tmp_path / form / "study"]).runs for form in ("full", "packed"))
    with_folders = [replace(one, folder=other.folder) for one, other in zip(packed, full, strict=True)]
    assert build_table(with_folders, tuple(RULES)).text("csv") == build_table(full, tuple(RULES)).text("csv")
    for kind in ("convergence", "weights", "cosines"):
        for picture, same in zip(make_pictures(kind, with_folders), make_pictures(kind, full), strict=True):
            assert (picture.caption, picture.frame.equals(same.frame)) == (same.caption, True)
    manifest = json.loads((tmp_path / "packed" / "MANIFEST.json").read_text(encoding="utf-8"))
    content = (tmp_path / "full/study/seed0/results.json").read_bytes()
    named = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    assert manifest["records"]["study/seed0/results.json"] == named
    (tmp_path / "packed" / "study" / "sites.csv.gz").write_bytes(gzip.compress(b"run,round\n")[:-9])
    assert len(find_runs([tmp_path / "packed"]).left_out) == 1
