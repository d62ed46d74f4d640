# SPDX-License-Identifier: Apache-2.0
"""A site that is hostile: whatever it sends over the real wire is refused by name, and the others go on."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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


def test_every_malformed_update_is_refused_by_name_and_the_others_make_the_step(
    federation: Federation, job: Path, tmp_path: Path
) -> None:
    rounds = len(vandal.WAYS)
    change_protocol(job, rounds=rounds)
    with hostile(federation, "photo"):
        record = federation.record_of(federation.session("lead").submit_job(str(job)), tmp_path / "result")
    assert len(record.rounds) == rounds
    for finished in record.rounds:
        assert finished.failures.keys() == {"photo"}, finished.round
        assert finished.failures["photo"].endswith("."), "a sentence"
        assert finished.sites == ("cartoon", "sketch")
        assert finished.aggregation is not None
        assert finished.aggregation.weights.keys() == {"cartoon", "sketch"}
    assert len({finished.failures["photo"] for finished in record.rounds}) >= rounds // 3, "reasons that tell apart"
