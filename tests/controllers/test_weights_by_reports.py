# SPDX-License-Identifier: Apache-2.0
"""Weights that follow from the objective's reports (FedAS), in whole runs: refusals, sites drawn, resume."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from nvflare.apis.dxo import from_shareable
from nvflare.apis.shareable import Shareable

from fdg_plugins.filters import ExchangeReportFilter
from fdg_plugins.messages import META_SITE_REPORT, TASK_TRAIN
from fdg_plugins.methods.fedas import REPORT_FISHER_TRACE
from tests.controllers.test_methods_in_rounds import ANGLES, FILTERS, MethodJob, forging, same
from tests.controllers.test_resume import ServerKilled, dying

pytestmark = pytest.mark.usefixtures("wire")

SOURCES = [angle for angle in ANGLES if angle != "angle_0"]
FEDAS: dict[str, Any] = {"objective": "as", "aggregator": {"name": "fedavg", "weighting": "as"}}
DRAWN = {"rounds": 3, "sites_per_round": 2, "validate_all": True, "momentum": 0.0}


def traces_of(folder: Path, **arguments: Any) -> tuple[MethodJob, list[dict[str, float]]]:
    """Run a job; return it with the traces that its sites sent, by round."""
    sent: list[dict[str, float]] = []

    def listen(site: str, task: str, answer: Shareable) -> None:
        if task == TASK_TRAIN:
            if not sent or site in sent[-1]:
                sent.append({})
            sent[-1][site] = float(from_shareable(answer).meta[META_SITE_REPORT][REPORT_FISHER_TRACE])

    return MethodJob(folder, **{**FEDAS, "forge": listen, **arguments}).finished(), sent


def test_the_weights_of_a_round_are_the_traces_that_came_with_its_updates(tmp_path: Path) -> None:
    job, sent = traces_of(tmp_path / "job", settings={"rounds": 1})
    for finished, traces in zip(job.record.rounds, sent, strict=True):
        assert finished.aggregation is not None
        total = sum(traces.values())
        assert finished.aggregation.weights == pytest.approx({site: traces[site] / total for site in SOURCES})
        assert len(set(traces.values())) == len(SOURCES)
    assert not any(finished.refused_reports for finished in job.record.rounds)
    for evaluation in job.record.evaluations:
        assert evaluation.personal is not None
        assert list(evaluation.personal.sites) == SOURCES


@pytest.mark.slow
def test_without_weighting_the_objective_is_weighted_by_samples(tmp_path: Path) -> None:
    job = MethodJob(tmp_path / "job", "as").finished()
    for finished in job.record.rounds:
        assert finished.aggregation is not None
        assert set(finished.aggregation.weights.values()) == {1 / len(SOURCES)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda report: report.update({REPORT_FISHER_TRACE: torch.tensor([-1.0])}), "is -1, expected at least 0"),
        (lambda report: report.pop(REPORT_FISHER_TRACE), "'fisher_trace' is missing"),
    ],
    ids=["negative", "missing"],
)
def test_a_refused_trace_takes_the_update_with_it(
    tmp_path: Path, change: Callable[[dict[str, torch.Tensor]], Any], reason: str
) -> None:
    settings = {"rounds": 1}
    job = MethodJob(tmp_path / "job", **FEDAS, forge=forging("angle_30", change), settings=settings).finished()
    without = MethodJob(tmp_path / "without", **FEDAS, settings=settings)
    without.meddle = lambda site, task, count: Shareable() if (site, task) == ("angle_30", TASK_TRAIN) else None
    without.finished()
    for finished in job.record.rounds:
        assert reason in finished.refused_reports["angle_30"]
        assert finished.failures.keys() == {"angle_30"}
        assert "its weight follows" in finished.failures["angle_30"]
        assert "angle_30" not in finished.sites
    assert same(job, without)


def test_a_job_without_the_filter_that_checks_the_traces_is_told_so(tmp_path: Path) -> None:
    job = MethodJob(tmp_path / "job", **FEDAS, filters={**FILTERS, "up": ([ExchangeReportFilter()], [])})
    job.run()
    assert "the job's server config needs ExchangeCheckFilter for the task 'train'." in job.panics[0]


def test_weights_from_a_report_that_the_objective_does_not_send_are_refused_before_any_site_is_asked(
    tmp_path: Path,
) -> None:
    job = MethodJob(tmp_path / "job", "dim", aggregator=FEDAS["aggregator"])
    job.run()
    assert job.asked == []
    assert (
        "objective is 'dim', which does not send the report 'fisher_trace' from which the weights follow: "
        "expected the objective of the same method." in job.panics[0]
    )


@pytest.mark.slow
def test_own_models_survive_rounds_without_their_site_and_torn_down_processes(tmp_path: Path) -> None:
    stays = MethodJob(tmp_path / "stays", **FEDAS, settings=DRAWN).finished()
    torn = MethodJob(tmp_path / "torn", **FEDAS, settings=DRAWN)
    torn.new_processes = True
    torn.finished()
    assert same(stays, torn)
    assert stays.record.evaluations == torn.record.evaluations
    seen: set[str] = set()
    for number, evaluation in enumerate(torn.record.evaluations):
        assert evaluation.personal is not None
        own = evaluation.personal.sites
        assert all(own[site] == evaluation.sites[site] for site in set(SOURCES) - seen), "the received model"
        assert all(own[site].loss != evaluation.sites[site].loss for site in seen)
        if number:
            before = torn.record.evaluations[number - 1].personal
            assert before is not None
            away = seen - set(torn.record.rounds[number - 1].sites)
            assert all(own[site] == before.sites[site] for site in away), "a site that was away has its own model"
        if number < len(torn.record.rounds):
            seen |= set(torn.record.rounds[number].sites)


@pytest.mark.slow
def test_a_run_that_is_resumed_has_the_bits_of_an_unbroken_one(tmp_path: Path) -> None:
    broken = MethodJob(tmp_path / "broken", **FEDAS, settings=DRAWN)
    broken.meddle = dying(TASK_TRAIN, 4)
    with pytest.raises(ServerKilled):
        broken.run()
    resumed = MethodJob(tmp_path / "broken", **FEDAS, settings=DRAWN, resume="job").finished()
    unbroken = MethodJob(tmp_path / "unbroken", **FEDAS, settings=DRAWN).finished()
    assert same(resumed, unbroken)
    assert resumed.record.evaluations == unbroken.record.evaluations


@pytest.mark.slow
def test_without_alignment_and_with_equal_weights_the_extractor_is_that_of_personal_heads(tmp_path: Path) -> None:
    settings = {"rounds": 3, "momentum": 0.0}
    plain = {"name": "fedavg", "weighting": "uniform"}
    not_aligned = {"name": "as", "align_epochs": 0}
    one = MethodJob(tmp_path / "one", not_aligned, aggregator=plain, settings=settings).finished()
    heads = {**settings, "travels": "extractor"}  # the head is personal
    other = MethodJob(tmp_path / "other", "erm", aggregator=plain, settings=heads).finished()
    extractor = {name: value for name, value in one.model.items() if name.startswith("extractor.")}
    assert extractor
    assert all(torch.equal(value, other.model[name]) for name, value in extractor.items())
