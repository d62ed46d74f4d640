# SPDX-License-Identifier: Apache-2.0
"""A site that is hostile: whatever it sends over the real wire is refused by name, and the others go on."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from . import vandal
from .conftest import Federation, change_protocol

POLICY = {
    "scopes": [{"name": "hostile", "task_result_filters": [{"path": "vandal.Vandal", "args": {}}]}],
    "default_scope": "hostile",
}


@contextmanager
def hostile(federation: Federation, site: str) -> Iterator[None]:
    """Let a site spoil its answers for a while."""
    local = federation.folder / site / "local"
    (local / "custom").mkdir(exist_ok=True)
    shutil.copy(vandal.__file__, local / "custom")
    (local / "privacy.json").write_text(json.dumps(POLICY), encoding="utf-8")
    yield
    (local / "privacy.json").unlink()
    shutil.rmtree(local / "custom")


SPOILT_TENSORS = 14  # the first ways, which are of tensors: where these lie makes no difference to the others


@pytest.mark.parametrize(
    ("in_files", "rounds"),
    [
        pytest.param(False, len(vandal.WAYS), id="in memory"),
        pytest.param(True, SPOILT_TENSORS, id="in files", marks=pytest.mark.nightly),
    ],
)
def test_every_malformed_update_is_refused_by_name_and_the_others_make_the_step(
    federation: Federation, job: Path, tmp_path: Path, in_files: bool, rounds: int
) -> None:
    change_protocol(job, rounds=rounds, enable_tensor_disk_offload=in_files)
    with hostile(federation, "photo"):
        record = federation.record_of(federation.session("lead").submit_job(str(job)), tmp_path / "result")
    assert len(record.rounds) == rounds
    for finished in record.rounds:
        assert finished.failures.keys() == {"photo"}, finished.round
        assert finished.failures["photo"].endswith("."), "a sentence"
        assert finished.sites == ("cartoon", "sketch")
        assert finished.aggregation is not None
        assert finished.aggregation.weights.keys() == {"cartoon", "sketch"}
        assert (finished.bytes_in_files > 0) is in_files
    assert len({finished.failures["photo"] for finished in record.rounds}) >= rounds // 3, "reasons that tell apart"


def test_a_round_with_too_few_usable_updates_leaves_the_model_and_a_run_of_such_rounds_has_not_finished(
    federation: Federation, job: Path, tmp_path: Path
) -> None:
    change_protocol(job, rounds=2, min_sites=3)
    with hostile(federation, "photo"):
        submitted = federation.session("lead").submit_job(str(job))
        record = federation.record_of(submitted, tmp_path / "result", "FINISHED:EXECUTION_EXCEPTION")
    reason = "2 usable updates came, fewer than min_sites 3."
    assert record.status == "stopped"
    assert str(record.stopped_because).startswith(
        f"2 rounds in a row left the model as it was; the last because {reason[:-1]}; photo: "
    )
    assert [(finished.aggregation, finished.reason) for finished in record.rounds] == [(None, reason)] * 2
    for site in ("art_painting", "cartoon", "sketch"):
        scores = [evaluation.sites[site] for evaluation in record.evaluations]
        assert scores == scores[:1] * 2, "the same model after every round"
    (log,) = (tmp_path / "result").rglob("log.txt")
    assert f"The model stays as it was: {reason}" in log.read_text(encoding="utf-8")
