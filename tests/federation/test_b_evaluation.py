# SPDX-License-Identifier: Apache-2.0
"""Finished models at the sites of a provisioned federation: the same counts as on one machine."""

from pathlib import Path

import pytest

from fdg_plugins.audit.file import AUDIT_FILE, read_audit
from fdg_plugins.lab.engine.evaluation import read_result
from fdg_plugins.messages import TASK_SCORE
from fdg_plugins.record.run_files import EVALUATION_FILE
from tests.cli.commands import fdg
from tests.evaluation.finished import finished_run, fitted

from .conftest import Federation


@pytest.mark.usefixtures("no_fdg_variables")
def test_sites_that_never_trained_count_the_same_and_those_that_did_are_left_out(
    federation: Federation, data_root: Path, tmp_path: Path
) -> None:
    runs = [finished_run(tmp_path / name, fitted(data_root, seed)) for seed, name in enumerate(("fedavg", "fedomg"))]
    assert fdg("evaluate", *runs, "--sites", "art_painting,cartoon,sketch", "--to", tmp_path).exit_code == 0
    job = federation.session("lead").submit_job(str(tmp_path / "evaluate"))
    ended = federation.wait_for(job)
    assert (ended.status, ended.meta.get("byoc")) == ("FINISHED:COMPLETED", None), ended.log[-3000:]
    downloaded = federation.nvflare("lead", "download", job, "-o", str(tmp_path / "results"))
    assert downloaded.returncode == 0, downloaded.output
    (file,) = (tmp_path / "results").rglob(EVALUATION_FILE)
    there = read_result(file)
    assert fdg("evaluate", *runs, "--data", data_root, "--to", tmp_path / "here").exit_code == 0
    here = read_result(tmp_path / "here" / EVALUATION_FILE)
    assert list(there.sites) == list(here.sites) == ["art_painting", "sketch"]
    assert there.left_out.keys() == {"cartoon"}
    for site, own in there.sites.items():
        for name, scores in own.models.items():
            same = here.sites[site].models[name]
            assert (scores.sums, scores.pairs, scores.counts["confidence"]) == (
                same.sums,
                same.pairs,
                same.counts["confidence"],
            )
            assert scores.withheld == tuple(range(7))  # of classes of 4 images
    lines = [line for line in read_audit(federation.folder / "sketch" / AUDIT_FILE) if line.job == job]
    assert [line.stage for line in lines if line.task == TASK_SCORE] == ["returned", "sent"] * 2
