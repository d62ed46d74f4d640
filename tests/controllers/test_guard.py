# SPDX-License-Identifier: Apache-2.0
"""One site's message ruins no run: what cannot be true or stands out is refused, and a ruinous step is taken back."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from nvflare.app_common.abstract.fl_model import FLModel

from fdg_plugins.controllers.reception import expectations
from fdg_plugins.errors import FDGError
from fdg_plugins.messages import TASK_TRAIN
from fdg_plugins.methods.fedavg import FedAvgAggregator
from fdg_plugins.methods.fednova import FedNovaAggregator
from fdg_plugins.testing.inputs import same_bits
from tests.controllers.federation_stubs import SOURCES, evaluation
from tests.controllers.rounds_stubs import (
    MODEL_BYTES,
    SAMPLES,
    Answer,
    all_well,
    judged,
    make_rounds,
    report_of,
    run,
    spoiled,
    trained,
    update,
)

LIAR = "photo-1"
HONEST = ("cartoon", "photo-2")


def of_liar(params: dict[str, Any] | None = None, **changes: Any) -> Callable[[FLModel], FLModel]:
    """Return what makes the liar's answer of the honest one: other parameters, another report."""

    def lie(answer: FLModel) -> FLModel:
        report = {**report_of(LIAR).model_dump(), **changes}
        return trained(LIAR, {**answer.params, **(params or {})}, samples=SAMPLES[LIAR], report=report)

    return lie


@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        (of_liar({"w": torch.tensor([3e38, 3e38])}), "its update is"),
        (of_liar({"w": torch.tensor([0.0, 4e3])}), "its update is"),
        (of_liar({"bn.running_mean": torch.tensor([3e38])}), "its buffers are"),
        (of_liar({"bn.num_batches_tracked": torch.tensor(2**62)}), "counter 'bn.num_batches_tracked'"),
        (of_liar({"bn.num_batches_tracked": torch.tensor(-1)}), "counter 'bn.num_batches_tracked'"),
        (of_liar(effective_steps=1e300), "its effective_steps is"),
        (of_liar(steps=10**12, effective_steps=1e12), "its steps is"),
        (of_liar(learning_rate=1e-300), "its learning_rate is"),
        (of_liar(seconds=math.inf), "report: seconds is inf"),
        (of_liar(epoch_losses=(1.0,) * 6), "its number of epoch_losses is"),
        (of_liar(domain="cartoon"), "its domain is"),
        (of_liar(received=evaluation(1.0, count=10**9).model_dump()), "its count of an evaluation is"),
        (of_liar(received=evaluation(1.0, split="test").model_dump()), "its split of an evaluation is"),
        (of_liar(local={**evaluation(1.0).model_dump(), "loss": -1e300}), "report: local.loss is"),
        (of_liar(training_split=(evaluation(1.0).model_dump(),) * 2), "sent training_split"),
        (of_liar(personal=evaluation(1.0).model_dump()), "sent the score of a personal model"),
        (of_liar(secret=1), "report: unknown field 'secret'"),
        (lambda answer: trained(LIAR, answer.params, samples=2, report="good"), "report: value is 'good'"),
    ],
)
def test_guard_refuses_a_lie_by_name(tmp_path: Path, lie: Callable[[FLModel], FLModel], reason: str) -> None:
    rounds, _ = make_rounds(tmp_path, spoiled(LIAR, lie), FedNovaAggregator())
    without, _ = make_rounds(tmp_path / "without", spoiled(LIAR, lambda answer: None), FedNovaAggregator())
    finished, _ = rounds.run_round(1)
    assert list(finished.failures) == [LIAR]
    assert reason in finished.failures[LIAR]
    assert len(finished.failures[LIAR]) < 400
    assert finished.sites == HONEST
    assert finished.bytes_up > 2 * MODEL_BYTES, "what is refused counts too"
    without.run_round(1)
    assert same_bits(rounds.run.model.state, without.run.model.state)


@pytest.mark.parametrize(("times", "length", "refused"), [(500, 300.0, []), (2**46, 1e9, [LIAR])])
def test_guard_allows_more_steps_within_limits(tmp_path: Path, times: int, length: float, refused: list[str]) -> None:
    def script(task: str, site: str, number: int, sent: FLModel) -> Answer:
        if task != TASK_TRAIN:
            return judged(0.5)
        known = expectations(rounds.run.record.protocol, rounds.run.record.census, 0)[site]
        facts = {"steps": known.facts.steps, "effective_steps": known.facts.effective_steps}
        w = [length if site == LIAR else 1.0, 0.0]
        report = report_of(site, **facts).model_dump()
        return trained(site, update(w, batches=0), samples=known.reply.num_train, report=report)

    rounds, _ = make_rounds(tmp_path, script)
    census = rounds.run.record.census
    for site in SOURCES:
        census[site] = census[site].model_copy(update={"num_train": 16 * (times if site == LIAR else 1)})
    assert list(rounds.run_round(1)[0].failures) == refused


def test_what_is_usual_follows_from_the_last_rounds_and_not_from_the_first(tmp_path: Path) -> None:
    def script(task: str, site: str, number: int, sent: FLModel) -> Answer:
        if task != TASK_TRAIN:
            return judged(0.5)
        length = 1.0 if number <= 5 else 8.0 if number <= 10 else 60.0
        return None if site == "photo-2" else trained(site, update([length, 0.0]), samples=SAMPLES[site])

    rounds, _ = make_rounds(tmp_path, script, rounds=11)
    failures = [list(rounds.run_round(number)[0].failures) for number in range(1, 12)]
    assert failures == [["photo-2"]] * 11


def test_buffers_are_measured_as_they_are_after_the_update(tmp_path: Path) -> None:
    def reached_by_liar(mean: float) -> dict[str, str]:
        lie = of_liar({"bn.running_mean": torch.tensor([mean - 1000.0])})
        rounds, _ = make_rounds(tmp_path, spoiled(LIAR, lie))
        rounds.run.model.state["bn.running_mean"] = torch.tensor([1000.0])
        return dict(rounds.run_round(1)[0].failures)

    assert reached_by_liar(9.9e3) == {}
    assert list(reached_by_liar(10.5e3)) == [LIAR]


def test_a_step_that_is_no_number_is_not_taken(tmp_path: Path) -> None:
    rounds, _ = make_rounds(tmp_path, all_well())
    with pytest.raises(FDGError, match="infinitely many times as long"):
        rounds.guard.step({"w": torch.tensor([math.nan, 0.0])}, 1.0)


def test_of_two_sites_the_model_s_own_length_is_the_measure_until_rounds_say_what_is_usual(tmp_path: Path) -> None:
    def script(task: str, site: str, number: int, sent: FLModel) -> Answer:
        if task != TASK_TRAIN:
            return judged(0.5)
        if site == "photo-2":
            return None
        tiny_or_huge = 1e-6 if number == 1 else 1e6
        w = [tiny_or_huge, 0.0] if site == LIAR else [1.0, 0.0]
        return trained(site, update(w), samples=SAMPLES[site], report=report_of(site).model_dump())

    rounds, _ = make_rounds(tmp_path, script)
    rounds.run.model.state["w"] = torch.tensor([30.0, 40.0])
    first, second = rounds.run_round(1)[0], rounds.run_round(2)[0]
    assert list(first.failures) == ["photo-2"]  # the honest one is not blamed for being longer than a lie
    assert list(second.failures) == ["photo-1", "photo-2"]


@pytest.mark.parametrize(("times", "server_lr"), [(1e4, 1.0), (100.0, 0.05)])  # the second step is short as it is
def test_guard_takes_no_step_far_longer_than_updates(times: float, server_lr: float, tmp_path: Path) -> None:
    class Runaway(FedAvgAggregator):
        def direction(self, weights: torch.Tensor, contributions: Any) -> Any:
            found = super().direction(weights, contributions)
            return found._replace(coefficients=found.coefficients * times)

    rounds, _ = make_rounds(tmp_path, all_well(), Runaway(server_lr=server_lr))
    finished, _ = rounds.run_round(1)
    assert finished.reason is not None
    assert "the step, over server_lr, would be" in finished.reason
    assert rounds.run.model.state["w"].tolist() == [0.0, 0.0]


def test_sites_that_cannot_train_on_the_model_end_the_run(tmp_path: Path) -> None:
    def script(task: str, site: str, number: int, sent: FLModel) -> Answer:
        sick = bool(sent.params["w"].abs().max() > 5)
        if task != TASK_TRAIN:
            return judged(0.5)
        report = report_of(site, received=evaluation(0.5, loss=math.nan if sick else 1.0)).model_dump()
        return trained(site, update([math.nan if sick else 10.0, 0.0]), samples=SAMPLES[site], report=report)

    rounds, _ = make_rounds(tmp_path, script, rounds=5)
    with pytest.raises(FDGError, match="3 rounds in a row left the model as it was"):
        run(rounds, 5)
    assert [one.not_finite for one in rounds.run.record.rounds] == [(), SOURCES, SOURCES, SOURCES]
