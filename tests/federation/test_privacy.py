# SPDX-License-Identifier: Apache-2.0
"""A site whose own files demand privacy, in a job that knows nothing of it: what leaves is noised and charged once."""

import json
import math
from pathlib import Path

import pytest

from fdg_plugins.audit.file import read_audit
from fdg_plugins.privacy.ledger import Ledger
from tests.federation.conftest import LIMITS, PROTOCOL, SCOPE, Federation, local_files


def test_private_site_releases_once(federation: Federation, job: Path, tmp_path: Path) -> None:
    """Two sites by their own files: a scope of FLARE's with the filter, and a policy alone, which no filter knows."""
    with (
        local_files(federation, "photo", {"privacy.json": json.dumps(SCOPE)}),
        local_files(federation, "cartoon", {"fdg_privacy.json": json.dumps(LIMITS)}),
    ):
        id_ = federation.session("lead").submit_job(str(job))
        record = federation.record_of(id_, tmp_path / "result")
    for site in ("photo", "cartoon"):
        ledger = Ledger(federation.folder / site / "local" / "fdg_privacy" / "ledger.json", site).read()
        assert [entry.round for entry in ledger.releases if entry.job == id_] == list(range(PROTOCOL["rounds"]))
        lines = [line for line in read_audit(federation.folder / site / "fdg_audit.jsonl") if line.job == id_]
        trained = [line for line in lines if line.task == "train" and line.return_code == "OK"]
        assert [line.stage for line in trained] == ["returned", "sent"] * PROTOCOL["rounds"]
        for line in trained:
            floats = [entry for entry in line.tensors if entry.dtype == "float32"]
            length = math.hypot(*(entry.norm for entry in floats))
            count = sum(math.prod(entry.shape) for entry in floats)
            assert length == pytest.approx(LIMITS["noise_multiplier"] * LIMITS["clip_norm"] * count**0.5, rel=0.02)
        assert [one.norm for one in trained[0].tensors] == [one.norm for one in trained[1].tensors]
        judged = [line for line in lines if line.task == "evaluate" and line.return_code == "OK"]
        assert judged == [], "such a site releases no score"
    assert all({"photo", "cartoon", "sketch"} == set(one.sites) for one in record.rounds)
