# SPDX-License-Identifier: Apache-2.0
"""A site whose own files demand privacy, in a job that knows nothing of it: what leaves is noised and charged once."""

import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from fdg_plugins.audit.file import read_audit

from .conftest import PROTOCOL, Federation

LIMITS = {"clip_norm": 0.5, "noise_multiplier": 8.0, "max_epsilon": 1000.0}
FILTER = {"path": "fdg_plugins.filters.DifferentialPrivacyFilter", "args": LIMITS}
SCOPE = {"scopes": [{"name": "private", "task_result_filters": [FILTER]}], "default_scope": "private"}


@pytest.fixture
def private_sites(federation: Federation) -> Iterator[dict[str, Path]]:
    """Two sites by their own files: a scope of FLARE's with the filter, and a policy alone, which no filter knows."""
    local = {site: federation.folder / site / "local" for site in ("photo", "cartoon")}
    written = [local["photo"] / "privacy.json", local["cartoon"] / "fdg_privacy.json"]
    for path, content in zip(written, (SCOPE, LIMITS), strict=True):
        assert not path.exists()
        path.write_text(json.dumps(content), encoding="utf-8")
    yield local
    for path in written:
        path.unlink()


def test_a_site_that_demands_privacy_releases_each_round_once_with_filter_and_without(
    federation: Federation, job: Path, tmp_path: Path, private_sites: dict[str, Path]
) -> None:
    id_ = federation.session("lead").submit_job(str(job))
    record = federation.record_of(id_, tmp_path / "result")
    for site, local in private_sites.items():
        ledger = json.loads((local / "fdg_privacy" / "ledger.json").read_text(encoding="utf-8"))
        mine = [entry for entry in ledger["releases"] if entry["job"] == id_]
        assert [entry["round"] for entry in mine] == list(range(PROTOCOL["rounds"]))
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
