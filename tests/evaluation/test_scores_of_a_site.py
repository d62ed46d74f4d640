# SPDX-License-Identifier: Apache-2.0
"""A site's answer to the task ``score``: what its operator's file lets leave, and what the audit shows of it."""

import json
from pathlib import Path

import numpy as np
import pytest
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.shareable import Shareable
from nvflare.app_common.app_constant import AppConstants

from fdg_plugins.audit.file import AUDIT_FILE, read_audit
from fdg_plugins.data import PACS
from fdg_plugins.messages import META_REQUEST, TASK_CENSUS, TASK_SCORE, ModelScores
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.plugins.reports import REPORT_EVALUATION, REPORT_SCORES
from fdg_plugins.record.evaluation import read_model
from fdg_plugins.settings.protocol import EVERY, Protocol
from fdg_plugins.tasks.counts import unpack
from tests.executors.sites import Site, census_request, reason
from tests.flare_runner import run_task

SHAPE = (7, 2, 512)


@pytest.fixture
def protocol(runs: list[Path]) -> Protocol:
    """The protocol by which sites evaluate one of three models."""
    return read_model(runs[0]).protocol("pacs", 3)


@pytest.fixture
def sketch(tmp_path: Path, data_root: Path) -> Site:
    """A site with 4 images of each of 7 classes."""
    (tmp_path / "sketch").mkdir()
    return Site("sketch", tmp_path / "sketch", data_root=str(data_root), least_count=1)


def score_task(protocol: Protocol, network: ExtractorClassifier, number: int = 0) -> Shareable:
    request = {"protocol": protocol.model_dump(mode="json"), "stand_in": False, "run": "run-1"}
    sent = DXO(DataKind.WEIGHTS, data=dict(network.state_dict()), meta={META_REQUEST: request}).to_shareable()
    sent.set_header(AppConstants.CURRENT_ROUND, number)
    return sent


def ask(site: Site, protocol: Protocol, network: ExtractorClassifier, number: int = 0) -> Shareable:
    return site.ask(TASK_SCORE, score_task(protocol, network, number))


def scores(reply: Shareable) -> ModelScores:
    return ModelScores.model_validate(from_shareable(reply).data)


def test_only_counts_leave_and_the_audit_shows_them(
    sketch: Site, protocol: Protocol, networks: list[ExtractorClassifier]
) -> None:
    assert sketch.ask(TASK_CENSUS, census_request(protocol, protocol)).get_return_code() == "OK"
    first, second = (scores(ask(sketch, protocol, one, number)) for number, one in enumerate(networks))
    assert (first.count, [*first.pairs], [*second.pairs]) == (28, [], ["0"])
    assert sum(second.pairs["0"]) == 28
    histograms = unpack(second.counts["probabilities"], SHAPE)
    assert (histograms.sum(axis=2) == [[24, 4]] * 7).all()
    sketch.restart()  # a new process has what the site has kept
    assert scores(ask(sketch, protocol, networks[0], 2)).pairs["0"][1:3] == (0, 0)  # the same model again
    lines = [line for line in read_audit(sketch.folder / AUDIT_FILE) if line.task == TASK_SCORE]
    assert len(lines) == 3
    told = [*(one.name for one in lines[0].tensors), *lines[0].values]
    assert all(any(f"counts/{name}" in one for one in told) for name in second.counts)
    assert "loss" not in json.dumps(lines[0].values)
    assert ".png" not in lines[0].model_dump_json()


def test_an_operator_may_forbid_it(sketch: Site, protocol: Protocol, networks: list[ExtractorClassifier]) -> None:
    census = census_request(protocol, protocol)
    sketch.configure(evaluates=False)
    assert "evaluates" in reason(sketch.ask(TASK_CENSUS, census))
    sketch.configure(role="source", least_count=1)
    sketch.ask(TASK_CENSUS, census)
    assert "role" in reason(ask(sketch, protocol, networks[0]))
    for allowed in ((), (REPORT_SCORES,), (REPORT_EVALUATION,)):
        sketch.configure(allowed_reports=allowed, least_count=1)
        sketch.ask(TASK_CENSUS, census)
        assert "allowed_reports" in reason(ask(sketch, protocol, networks[0]))
    sketch.configure(allowed_reports=(REPORT_SCORES, REPORT_EVALUATION), role="held_out", least_count=1)
    sketch.ask(TASK_CENSUS, census)
    assert scores(ask(sketch, protocol, networks[0])).count == 28


def test_a_site_that_trains_in_a_run_gives_no_scores_in_it(
    sketch: Site, protocol: Protocol, networks: list[ExtractorClassifier]
) -> None:
    run = protocol.model_copy(update={"target": "photo"})
    sketch.ask(TASK_CENSUS, census_request(run, run))
    assert "whose sites train" in reason(ask(sketch, run, networks[0]))
    assert protocol.target == EVERY


def test_histograms_of_few_images_stay(sketch: Site, protocol: Protocol, networks: list[ExtractorClassifier]) -> None:
    sketch.configure(least_count=5)
    sketch.ask(TASK_CENSUS, census_request(protocol, protocol))
    told = scores(ask(sketch, protocol, networks[0]))
    assert told.withheld == tuple(range(len(PACS.classes)))
    assert not unpack(told.counts["probabilities"], SHAPE).any()
    assert not np.any(unpack(told.counts["confusion"], (7, 7)))
    sketch.configure(least_count=29)
    sketch.ask(TASK_CENSUS, census_request(protocol, protocol))
    assert "least_count" in reason(ask(sketch, protocol, networks[0]))


def test_a_run_that_asks_for_histograms_of_few_images_is_refused(sketch: Site, protocol: Protocol) -> None:
    run = protocol.model_copy(update={"target": "photo", "scores": ("calibration_error",)})  # 7 images validate
    by_class = run.model_copy(update={"target": "sketch", "scores": ("f1",)})  # of 28, 4 of each class
    for asked, least in ((run, 7), (by_class, 4)):
        sketch.configure(least_count=least)
        assert sketch.ask(TASK_CENSUS, census_request(asked, asked)).get_return_code() == "OK"
        sketch.configure(least_count=least + 1)
        assert "least_count" in reason(sketch.ask(TASK_CENSUS, census_request(asked, asked)))


def test_under_differential_privacy_no_score_leaves_and_no_budget_is_spent(
    sketch: Site, protocol: Protocol, networks: list[ExtractorClassifier]
) -> None:
    limits = {"clip_norm": 1.0, "noise_multiplier": 8.0, "max_epsilon": 100.0}
    (sketch.folder / "local" / "fdg_privacy.json").write_text(json.dumps(limits))
    tasks = {TASK_CENSUS: census_request(protocol, protocol), TASK_SCORE: score_task(protocol, networks[0])}
    census, score = (run_task(sketch.executor, name, task, sketch.context()) for name, task in tasks.items())
    assert census.get_return_code() == "OK"
    assert "METRICS" in reason(score)
    assert not list(sketch.folder.rglob("*ledger*"))
