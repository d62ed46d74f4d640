# SPDX-License-Identifier: Apache-2.0
"""One site's message ruins no run: what cannot be true or stands out is refused, and a ruinous step is taken back."""

import json
import math
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from nvflare.app_common.abstract.fl_model import FLModel

from fdg_plugins.aggregators import UpdateAggregator
from fdg_plugins.controllers.expectations import expectations
from fdg_plugins.controllers.guard import Behind
from fdg_plugins.controllers.rounds import Rounds
from fdg_plugins.controllers.undo import BEFORE_FILE, NEXT_FILE
from fdg_plugins.core.outliers import length_ratios, usual_length
from fdg_plugins.errors import FDGError
from fdg_plugins.lab.analysis import find_runs
from fdg_plugins.messages import TASK_TRAIN
from fdg_plugins.methods.fedavg import FedAvgAggregator
from fdg_plugins.methods.fednova import FedNovaAggregator
from fdg_plugins.methods.fedomg import FedOMGAggregator
from fdg_plugins.record.checkpoint import CHECKPOINT_FILE
from fdg_plugins.record.run_files import SELECTED_FILE
from fdg_plugins.storage import load_tensors
from fdg_plugins.testing.inputs import same_bits
from tests.controllers.federation_stubs import SOURCES, evaluation
from tests.controllers.rounds_stubs import (
    SAMPLES,
    Answer,
    all_well,
    description,
    judged,
    make_rounds,
    report_of,
    run,
    spoiled,
    trained,
    update,
)

RUNS = Path(__file__).parents[2] / "docs" / "results" / "records"
LIAR = "photo-1"
HONEST = ("cartoon", "photo-2")


def of_liar(params: dict[str, Any] | None = None, **changes: Any) -> Callable[[FLModel], FLModel]:
    """Return what makes the liar's answer of the honest one: other parameters, another report."""

    def lie(answer: FLModel) -> FLModel:
        report = {**report_of(LIAR).model_dump(), **changes}
        return trained(LIAR, {**answer.params, **(params or {})}, samples=SAMPLES[LIAR], report=report)

    return lie


@pytest.mark.parametrize("aggregator", [FedAvgAggregator, FedOMGAggregator, FedNovaAggregator])
@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        (of_liar({"w": torch.tensor([3e38, 0.0])}), "its update is .* times as long as is usual in this round"),
        (of_liar({"w": torch.tensor([3e38, 3e38])}), "its update is .* times as long"),
        (of_liar({"w": torch.tensor([0.0, 4e3])}), "its update is .* times as long"),
        (of_liar({"bn.running_mean": torch.tensor([3e38])}), "its buffers are .* times as large as is usual"),
        (of_liar({"bn.num_batches_tracked": torch.tensor(2**62)}), "counter 'bn.num_batches_tracked' .* is outside 0"),
        (of_liar({"bn.num_batches_tracked": torch.tensor(-1)}), "counter 'bn.num_batches_tracked' .* is outside 0"),
        (of_liar(effective_steps=1e6), "its effective_steps is 1e.06, expected .* under this protocol"),
        (of_liar(effective_steps=1e300), "its effective_steps is 1e.300"),
        (of_liar(steps=10**12, effective_steps=1e12), "its steps is 1000000000000, expected 5"),
        (of_liar(learning_rate=1e-300), "its learning_rate is 1e-300, expected 0.001"),
        (of_liar(seconds=math.inf), "report: seconds is inf"),
        (of_liar(epoch_losses=(1.0,) * 6), "its number of epoch_losses is 6, expected 5"),
        (of_liar(epoch_losses=(1.0,) * 3_000_000), "report: epoch_losses is a tuple of 3000000, but"),
        (of_liar(domain="cartoon"), "its domain is 'cartoon', expected 'photo' as told in the census"),
        (of_liar(domain="x" * 10**6), "report: domain is"),
        (of_liar(received=evaluation(1.0, count=10**9).model_dump()), "its count of an evaluation is 1000000000"),
        (of_liar(received=evaluation(1.0, split="test").model_dump()), "its split of an evaluation is 'test'"),
        (of_liar(local={**evaluation(1.0).model_dump(), "loss": -1e300}), "report: local.loss is -1e.300, but a loss"),
        (
            of_liar(training_split=(evaluation(1.0).model_dump(),) * 2),
            "sent training_split, which this protocol does not ask for",
        ),
        (lambda answer: trained(LIAR, answer.params, samples=10**9), "its number of samples is 1000000000, expected 2"),
        (lambda answer: trained(LIAR, answer.params, samples=True), "its number of samples is True"),
        (lambda answer: trained(LIAR, answer.params, samples=np.array([20, 20])), "its number of samples is array"),
        (
            lambda answer: trained(LIAR, answer.params, samples=torch.eye(2).to_sparse()),
            "its number of samples is tens",
        ),
    ],
)
def test_what_cannot_be_true_or_stands_out_is_refused_by_name_and_the_others_count(
    tmp_path: Path, aggregator: type[UpdateAggregator], lie: Callable[[FLModel], FLModel], reason: str
) -> None:
    rounds, _ = make_rounds(tmp_path, spoiled(LIAR, lie), aggregator())
    without, _ = make_rounds(tmp_path / "without", spoiled(LIAR, lambda answer: None), aggregator())
    (tmp_path / "without").mkdir()
    finished, _ = rounds.run_round(1)
    assert list(finished.failures) == [LIAR]
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(finished.failures[LIAR])
    assert len(finished.failures[LIAR]) < 400
    assert finished.sites == HONEST
    without.run_round(1)
    assert same_bits(rounds.model.state, without.model.state)


def test_no_update_of_the_kept_runs_on_real_images_comes_near_to_standing_out() -> None:
    """On PACS, by 24 methods: none has an update three times as long as was usual; the default ratio is ten."""
    records = [one.record for one in find_runs(sorted(RUNS.glob("pacs_*"))).runs]
    count = 0
    for record in records:
        earlier: list[float] = []
        for finished in record.rounds:
            assert finished.aggregation is not None
            norms = finished.aggregation.update_norms
            assert max(length_ratios(norms, earlier[-5:]).values()) < 3
            assert finished.aggregation.direction_norm < 2 * max(norms.values())
            earlier.append(usual_length(list(norms.values())))
            count += 1
    assert count >= 1900


def test_the_reason_of_a_refusal_says_that_sites_with_and_without_noise_differ(tmp_path: Path) -> None:
    noisy = of_liar({"w": torch.tensor([0.0, 4e3])}, received=None, local=None, epoch_losses=None)
    script = spoiled(LIAR, noisy)
    rounds, _ = make_rounds(tmp_path, script)
    finished, _ = rounds.run_round(1)
    assert list(finished.failures) == [LIAR]
    assert "Some sites withhold their losses, as those with differential privacy do" in finished.failures[LIAR]
    assert len(finished.failures[LIAR]) < 400
    both, _ = make_rounds(tmp_path / "both", script, outlier_ratio=0.0)
    (tmp_path / "both").mkdir()
    assert both.run_round(1)[0].failures == {}


def test_a_ratio_of_zero_switches_the_guard_off(tmp_path: Path) -> None:
    rounds, _ = make_rounds(tmp_path, spoiled(LIAR, of_liar({"w": torch.tensor([0.0, 4e3])})), outlier_ratio=0.0)
    assert rounds.run_round(1)[0].failures == {}
    assert rounds.model.state["w"][1] > 1e3


def test_a_site_with_many_more_steps_may_go_farther(tmp_path: Path) -> None:
    far = {"cartoon": 1.0, "photo-1": 1.0, "photo-2": 300.0}
    counts = {"cartoon": 16, "photo-1": 16, "photo-2": 16 * 500}

    def script(task: str, site: str, number: int, sent: FLModel) -> Answer:
        if task != TASK_TRAIN:
            return judged(0.5)
        report = report_of(site, steps=5 * counts[site] // 16, effective_steps=rates[site].facts.effective_steps)
        return trained(site, update([far[site], 0.0]), samples=counts[site], report=report.model_dump())

    rounds, _ = make_rounds(tmp_path, script)
    census = rounds.record.census
    for site in SOURCES:
        census[site] = census[site].model_copy(update={"num_train": counts[site]})
    rates = expectations(rounds.record, 0)
    assert rounds.run_round(1)[0].failures == {}


def test_steps_that_a_site_claims_excuse_no_ruin(tmp_path: Path) -> None:
    def script(task: str, site: str, number: int, sent: FLModel) -> Answer:
        if task != TASK_TRAIN:
            return judged(0.5)
        known = expectations(rounds.record, 0)[site]
        steps, effective = known.facts.steps, known.facts.effective_steps
        report = report_of(site, steps=steps, effective_steps=effective).model_dump()
        w = [1e9, 0.0] if site == LIAR else [1.0, 0.0]
        return trained(site, update(w, batches=0), samples=known.num_train, report=report)

    rounds, _ = make_rounds(tmp_path, script)
    rounds.record.census[LIAR] = rounds.record.census[LIAR].model_copy(update={"num_train": 2**50})
    assert list(rounds.run_round(1)[0].failures) == [LIAR]


def test_the_buffers_of_one_of_two_sites_that_are_far_from_the_model_s_are_refused(tmp_path: Path) -> None:
    lie = of_liar({"bn.running_mean": torch.tensor([3e38])})

    def script(task: str, site: str, number: int, sent: FLModel) -> Answer:
        return None if task == TASK_TRAIN and site == "photo-2" else spoiled(LIAR, lie)(task, site, number, sent)

    rounds, _ = make_rounds(tmp_path, script, min_sites=1)
    finished, _ = rounds.run_round(1)
    assert list(finished.failures) == [LIAR, "photo-2"]
    assert "its buffers are" in finished.failures[LIAR]


def test_a_site_whose_update_and_buffers_both_stand_out_is_told_of_its_update(tmp_path: Path) -> None:
    lie = of_liar({"w": torch.tensor([0.0, 4e3]), "bn.running_mean": torch.tensor([3e38])})
    rounds, _ = make_rounds(tmp_path, spoiled(LIAR, lie))
    assert rounds.run_round(1)[0].failures[LIAR].startswith("its update is")


def test_what_is_usual_follows_from_the_last_rounds_and_not_from_the_first(tmp_path: Path) -> None:
    def script(task: str, site: str, number: int, sent: FLModel) -> Answer:
        if task != TASK_TRAIN:
            return judged(0.5)
        length = 1.0 if number <= 5 else 8.0 if number <= 10 else 60.0
        return None if site == "photo-2" else trained(site, update([length, 0.0]), samples=SAMPLES[site])

    rounds, _ = make_rounds(tmp_path, script, rounds=11)
    failures = [list(rounds.run_round(number)[0].failures) for number in range(1, 12)]
    assert failures == [["photo-2"]] * 11


def test_once_rounds_say_what_is_usual_a_tenth_of_the_model_is_not_harmless(tmp_path: Path) -> None:
    def script(task: str, site: str, number: int, sent: FLModel) -> Answer:
        if task != TASK_TRAIN:
            return judged(0.5)
        length = 2.0 if site == LIAR and number == 2 else 0.01
        return None if site == "photo-2" else trained(site, update([length, 0.0]), samples=SAMPLES[site])

    rounds, _ = make_rounds(tmp_path, script, rounds=2)
    rounds.model.state["w"] = torch.tensor([30.0, 40.0])
    assert list(rounds.run_round(1)[0].failures) == ["photo-2"]
    assert list(rounds.run_round(2)[0].failures) == [LIAR, "photo-2"]


def test_buffers_are_measured_as_they_are_after_the_update(tmp_path: Path) -> None:
    def reached_by_liar(mean: float) -> dict[str, str]:
        lie = of_liar({"bn.running_mean": torch.tensor([mean - 1000.0])})
        rounds, _ = make_rounds(tmp_path, spoiled(LIAR, lie))
        rounds.model.state["bn.running_mean"] = torch.tensor([1000.0])
        return dict(rounds.run_round(1)[0].failures)

    assert reached_by_liar(9.9e3) == {}
    assert list(reached_by_liar(10.5e3)) == [LIAR]


def test_a_step_that_is_no_number_is_not_taken(tmp_path: Path) -> None:
    rounds, _ = make_rounds(tmp_path, all_well())
    with pytest.raises(FDGError, match="the step, over server_lr, would be infinitely many times as long"):
        rounds.guard.step({"w": torch.tensor([math.nan, 0.0])}, 1.0, Behind(longest=1.0))


@pytest.mark.parametrize(("length", "named"), [(1.9, None), (2.1, LIAR)])
def test_who_stands_out_is_clear_only_beyond_twice_the_second(tmp_path: Path, length: float, named: str | None) -> None:
    rounds, _ = make_rounds(tmp_path, all_well())
    (taken,) = (rounds.run_round(1)[0],)
    assert taken.aggregation is not None
    norms = {**dict.fromkeys(HONEST, 1.0), LIAR: length}
    told = taken.aggregation.model_copy(update={"update_norms": norms})
    rounds.record.rounds[0] = taken.model_copy(update={"aggregation": told})
    assert rounds.guard.standing_out() == named


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
    rounds.model.state["w"] = torch.tensor([30.0, 40.0])
    first, second = rounds.run_round(1)[0], rounds.run_round(2)[0]
    assert list(first.failures) == ["photo-2"]  # the honest one is not blamed for being longer than a lie
    assert list(second.failures) == ["photo-1", "photo-2"]


@pytest.mark.parametrize(("times", "server_lr"), [(1e4, 1.0), (100.0, 0.05)])  # the second step is short as it is
def test_a_step_far_longer_than_every_update_is_not_taken_and_the_weights_stay(
    times: float, server_lr: float, tmp_path: Path
) -> None:
    class Runaway(FedAvgAggregator):
        def direction(self, weights: torch.Tensor, contributions: Any) -> Any:
            found = super().direction(weights, contributions)
            return found._replace(coefficients=found.coefficients * times)

    rounds, _ = make_rounds(tmp_path, all_well(), Runaway(server_lr=server_lr))
    finished, _ = rounds.run_round(1)
    assert finished.reason is not None
    assert "the step, over server_lr, would be" in finished.reason
    assert rounds.model.state["w"].tolist() == [0.0, 0.0]


@pytest.mark.parametrize(("images", "named"), [(10, None), (100_000, LIAR)])
def test_who_claims_so_many_images_that_no_step_is_taken_is_named(
    images: int, named: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SAMPLES, LIAR, images)
    rounds, sites = make_rounds(tmp_path, all_well(), FedNovaAggregator(weighting="uniform"))
    reason = rounds.run_round(1)[0].reason
    if named is None:
        assert reason is None
        return
    assert reason is not None
    assert reason.endswith(f"images in its census, site {named} takes 2.38e+04 times as many effective steps as usual.")
    assert sum(site in reason for site in SOURCES) == 1
    assert any(named in warning for warning in sites.warnings)


# --- a step that ruined the model -------------------------------------------------------------------


def ruined(after: float, **lie: Any) -> Any:
    """Return the script of sites for which the model is ruined once the liar's update of round 1 is in it."""

    def script(task: str, site: str, number: int, sent: FLModel) -> Answer:
        sick = bool(sent.params["w"].abs().max() > after)
        loss = math.nan if sick else 1.0
        if task != TASK_TRAIN:
            split = "validation" if site in SOURCES else "test"
            return FLModel(metrics=evaluation(0.9 if sick else 0.5, split=split, loss=loss).model_dump())
        w = [math.nan, 0.0] if sick else [30.0, 0.0] if site == LIAR and number == 1 else [1.0, 0.0]
        report = report_of(site, received=evaluation(0.9 if sick else 0.5, loss=loss))
        return trained(site, update(w), samples=SAMPLES[site], report=report.model_dump())

    return script


@pytest.mark.parametrize("ratio", [0.0, 100.0])
def test_a_step_after_which_sites_cannot_train_is_taken_back_and_who_stood_out_is_left_out(
    tmp_path: Path, ratio: float
) -> None:
    rounds, sites = make_rounds(tmp_path, ruined(after=5), outlier_ratio=ratio, rounds=4)
    run(rounds, 4)
    first, second, third, _ = rounds.record.rounds
    assert (first.undone, second.aggregation) == (True, None)
    assert second.reason is not None
    assert "sites could not train on the model after round 1, whose step was taken back" in second.reason
    assert list(rounds.record.left_out) == [LIAR]
    assert third.drawn == HONEST
    assert rounds.model.state["w"].tolist() == [2.0, 0.0]  # of rounds 3 and 4
    assert rounds.record.evaluations[1].undone
    assert chosen(rounds) == {
        "last": 4,
        "source_validation": 0,
        "oracle": 0,
    }  # not the ruined one, whose accuracy is best
    assert any("photo-1, which stood out in it, is left out" in text for text in sites.warnings)


def test_sites_whose_updates_could_not_even_be_rounded_count_as_unable_to_train(tmp_path: Path) -> None:
    def script(task: str, site: str, number: int, sent: FLModel) -> Answer:
        if task == TASK_TRAIN and sent.params["w"].abs().max() > 5:
            sites.not_finite.add(site)
            return "its update has values that are NaN."
        return ruined(after=1e9)(task, site, number, sent)

    rounds, sites = make_rounds(tmp_path, script, outlier_ratio=0.0, rounds=3)
    run(rounds, 2)
    assert rounds.record.rounds[0].undone
    assert rounds.model.state["w"].tolist() == [0.0, 0.0]


def test_a_ruin_in_the_last_round_is_taken_back_too(tmp_path: Path) -> None:
    rounds, _ = make_rounds(tmp_path, ruined(after=5), outlier_ratio=0.0, rounds=1)
    rounds.run_round(1)
    restored = rounds.evaluate_last()
    assert rounds.record.rounds[0].undone
    assert rounds.model.state["w"].tolist() == [0.0, 0.0]
    assert (restored.after_round, restored.undone) == (0, False)
    assert [one.undone for one in rounds.record.evaluations] == [False, True]
    assert chosen(rounds) == {"last": 0, "source_validation": 0, "oracle": 0}


def chosen(rounds: Rounds) -> dict[str, int]:
    return {choice.rule: choice.after_round for choice in rounds.record.choices}


def seen_late(task: str, site: str, number: int, sent: FLModel) -> Answer:
    """The step of round 1 ruins the model, which only cartoon judges in round 2, with the best score of all."""
    answer = ruined(after=5)(task, site, number, sent)
    if number != 2:
        return answer
    if task != TASK_TRAIN:
        return judged(1.0)
    report = report_of(site, received=evaluation(1.0)).model_dump()
    return trained(site, update([1.0, 0.0]), samples=SAMPLES[site], report=report) if site == "cartoon" else None


def with_state(rounds: Rounds, folder: Path) -> Rounds:
    """Return the same rounds with a folder for going on."""
    parts = (rounds.messenger, rounds.aggregator, rounds.model, rounds.record)
    return Rounds(*parts, rounds.files.folder, state=folder)


@pytest.mark.parametrize("kind", ["no state", "state", "resumed"])
@pytest.mark.parametrize("last", [2, 3])
def test_a_step_that_is_taken_back_after_a_round_without_one_withdraws_every_evaluation_since(
    tmp_path: Path, kind: str, last: int
) -> None:
    rounds, _ = make_rounds(tmp_path, seen_late, outlier_ratio=0.0, rounds=last)
    rounds = rounds if kind == "no state" else with_state(rounds, tmp_path / "state")
    rounds.run_round(1)
    second, _ = rounds.run_round(2)
    assert second.aggregation is None
    assert chosen(rounds) == {"last": 1, "source_validation": 1, "oracle": 1}
    if kind == "resumed":
        other, sites = make_rounds(tmp_path / "other", seen_late, outlier_ratio=0.0, rounds=last)
        rounds = with_state(other, tmp_path / "state")
        rounds.go_on()
        sites.asked += [[], []]  # those of the rounds before
    if last == 3:
        rounds.run_round(3)
    judged_last = rounds.evaluate_last()
    rounds.files.save()
    assert [one.undone for one in rounds.record.evaluations] == [False, True, True, False][: last + 1]
    assert judged_last.after_round == {2: 0, 3: 3}[last]
    assert chosen(rounds) == {"last": judged_last.after_round, "source_validation": 0, "oracle": 0}
    assert description(rounds.files.folder / SELECTED_FILE)["after_round"] == "0"
    assert load_tensors(rounds.files.folder / SELECTED_FILE)["w"].tolist() == [0.0, 0.0]


def test_a_model_that_is_withdrawn_leaves_no_selected_one_where_none_was_before(tmp_path: Path) -> None:
    def script(task: str, site: str, number: int, sent: FLModel) -> Answer:
        answer = seen_late(task, site, number, sent)
        if task != TASK_TRAIN or number > 1 or not isinstance(answer, FLModel):
            return answer
        report = report_of(site, received=None, local=None, epoch_losses=None).model_dump()
        return trained(site, answer.params, samples=SAMPLES[site], report=report)

    rounds, _ = make_rounds(tmp_path, script, outlier_ratio=0.0, rounds=2)
    rounds.run_round(1)
    rounds.run_round(2)
    assert (tmp_path / SELECTED_FILE).exists()
    rounds.evaluate_last()
    assert chosen(rounds) == {"last": 0, "oracle": 0}
    assert not (tmp_path / SELECTED_FILE).exists()


def test_one_site_s_word_takes_no_step_back(tmp_path: Path) -> None:
    nothing = {"received": evaluation(0.5, loss=math.nan).model_dump()}
    rounds, _ = make_rounds(tmp_path, spoiled(LIAR, of_liar(**nothing)), rounds=3)
    run(rounds, 3)
    assert not any(finished.undone for finished in rounds.record.rounds)
    assert rounds.record.left_out == {}


def test_a_ruin_takes_the_word_of_more_than_half_of_the_sites_that_were_sent_the_model(tmp_path: Path) -> None:
    rounds, _ = make_rounds(tmp_path, all_well(), rounds=2)
    rounds.run_round(1)
    finds_ruined, (first, second, third) = rounds.guard.finds_ruined, SOURCES
    assert finds_ruined((first, second, third), {first, second})
    assert not finds_ruined((first, second, third, "sketch"), {first, second}), "half is not enough"
    assert not finds_ruined((first, second), {second, third}), "the third was not sent it"
    assert not finds_ruined((first, "sketch"), {first, "sketch"}), "one of two sources"
    rounds.record.rounds[0] = rounds.record.rounds[0].model_copy(update={"not_finite": (second,)})
    assert not finds_ruined((first,), {first}), "the second found it of the model before the step"


def test_one_site_s_word_takes_no_step_back_if_one_site_is_drawn_for_a_round(tmp_path: Path) -> None:
    nothing = {"received": evaluation(0.5, loss=math.nan).model_dump()}
    script = spoiled(LIAR, of_liar(**nothing))
    rounds, _ = make_rounds(tmp_path, script, outlier_ratio=0.0, rounds=9, sites_per_round=1, min_sites=1)
    run(rounds, 9)
    told = [finished.not_finite for finished in rounds.record.rounds]
    assert told == [(LIAR,) if finished.drawn == (LIAR,) else () for finished in rounds.record.rounds]
    assert 0 < told.count((LIAR,)) < 9
    assert not any(finished.undone for finished in rounds.record.rounds)


@pytest.mark.parametrize("is_resumed", [False, True])
def test_a_ruin_is_taken_back_once_two_sites_have_found_it_if_one_site_is_drawn_for_a_round(
    tmp_path: Path, is_resumed: bool
) -> None:
    def script(task: str, site: str, number: int, sent: FLModel) -> Answer:
        sick = bool(sent.params["w"].abs().max() > 5)
        if task != TASK_TRAIN:
            return judged(0.5)
        w = [math.nan if sick else 30.0 if sent.current_round == 0 else 1.0, 0.0]
        report = report_of(site, received=evaluation(0.5, loss=math.nan if sick else 1.0)).model_dump()
        return trained(site, update(w), samples=SAMPLES[site], report=report)

    def rounds_in(folder: Path) -> Rounds:
        made, _ = make_rounds(folder, script, outlier_ratio=0.0, rounds=9, sites_per_round=1, min_sites=1)
        return with_state(made, tmp_path / "state")

    rounds, found = rounds_in(tmp_path / "first"), set[str]()
    rounds.run_round(1)
    for number in range(2, 10):
        if is_resumed:
            rounds = rounds_in(tmp_path / str(number))
            rounds.go_on()
        finished, _ = rounds.run_round(number)
        found |= {*finished.drawn}
        assert finished.aggregation is None
        assert rounds.record.rounds[0].undone == (len(found) == 2)
        if len(found) == 2:
            break
    assert rounds.model.state["w"].tolist() == [0.0, 0.0]
    assert rounds.run_round(len(rounds.record.rounds) + 1)[0].aggregation is not None


def test_the_word_of_the_only_source_that_is_left_takes_a_step_back(tmp_path: Path) -> None:
    rounds, _ = make_rounds(tmp_path, ruined(after=5), outlier_ratio=0.0, rounds=2, min_sites=1)
    rounds.run_round(1)
    rounds.record.left_out = dict.fromkeys(HONEST, "has left.")
    rounds.run_round(2)
    assert rounds.record.rounds[0].undone


def test_ruin_that_nobody_stands_out_in_is_taken_back_and_counts_as_rounds_without_a_step(tmp_path: Path) -> None:
    def script(task: str, site: str, number: int, sent: FLModel) -> Answer:
        sick = bool(sent.params["w"].abs().max() > 5)
        received = evaluation(0.5, loss=math.nan if sick else 1.0)
        if task != TASK_TRAIN:
            return judged(0.5)
        report = report_of(site, received=received).model_dump()
        return trained(site, update([10.0, 0.0]), samples=SAMPLES[site], report=report)

    rounds, _ = make_rounds(tmp_path, script, rounds=4)
    for number in range(1, 5):
        rounds.run_round(number)
    assert [one.undone for one in rounds.record.rounds] == [True, False, True, False]
    assert rounds.record.left_out == {}
    assert len(rounds.record.idle_rounds()) == 4


class Crash(BaseException):
    """The server's process is gone."""


def crash_in_round_2(rounds: Rounds, when: str) -> None:
    """Run two rounds; the server dies after the second, or just before or after it has replaced the checkpoint."""
    save = rounds.files.save
    rounds.run_round(1)

    def save_and_crash() -> None:
        if when == "checkpoint replaced":
            save()
        raise Crash

    if when != "round complete":
        rounds.files.save = save_and_crash  # type: ignore[method-assign]
    with suppress(Crash):
        rounds.run_round(2)


@pytest.mark.parametrize("when", ["checkpoint not replaced", "checkpoint replaced", "round complete"])
def test_a_run_that_goes_on_after_a_crash_takes_back_what_an_unbroken_one_does(when: str, tmp_path: Path) -> None:
    def rounds_in(folder: Path) -> Rounds:
        folder.mkdir(exist_ok=True)
        rounds, _ = make_rounds(folder, late_ruin, outlier_ratio=0.0, rounds=5)
        return with_state(rounds, tmp_path / "state" / folder.name)

    def late_ruin(task: str, site: str, number: int, sent: FLModel) -> Answer:
        return ruined(after=10)(task, site, 1 if sent.current_round == 1 else 2, sent)

    unbroken = rounds_in(tmp_path / "unbroken")
    for number in range(1, 4):
        unbroken.run_round(number)
    broken = rounds_in(tmp_path / "broken")
    crash_in_round_2(broken, when)
    kept = {BEFORE_FILE, NEXT_FILE}.intersection(path.name for path in (tmp_path / "state" / "broken").iterdir())
    assert kept == {BEFORE_FILE if when == "round complete" else NEXT_FILE}
    resumed = rounds_in(tmp_path / "broken")
    for number in range(len(resumed.go_on().rounds) + 1, 4):
        resumed.run_round(number)
    assert resumed.record.rounds[1].undone
    assert list(resumed.record.left_out) == list(unbroken.record.left_out) == [LIAR]
    assert torch.equal(resumed.model.state["w"], unbroken.model.state["w"])
    assert resumed.model.state["w"].tolist() == [1.0, 0.0]
    assert (tmp_path / "state" / "broken" / CHECKPOINT_FILE).exists()
    assert not kept.intersection(path.name for path in (tmp_path / "state" / "broken").iterdir())


def test_too_few_sites_that_are_left_end_the_run_with_their_reasons(tmp_path: Path) -> None:
    rounds, _ = make_rounds(tmp_path, all_well())
    rounds.record.left_out = {"cartoon": "has left.", "photo-1": "has left."}
    with pytest.raises(
        FDGError, match=r"^1 sites are left to train, fewer than min_sites 2: cartoon has left\.; photo-1"
    ):
        rounds.run_round(1)


# --- shortened updates ------------------------------------------------------------------------------


@pytest.mark.parametrize("aggregator", [FedAvgAggregator, FedOMGAggregator, FedNovaAggregator])
def test_with_clipping_no_site_drags_any_direction_farther_than_some_medians(
    tmp_path: Path, aggregator: type[UpdateAggregator]
) -> None:
    steps = {}
    for name, script in (("honest", all_well()), ("lie", spoiled(LIAR, of_liar({"w": torch.tensor([0.0, 30.0])})))):
        rule = aggregator()
        rule.begin_run(rule.facts._replace(clip_to_median=1.0))
        rounds, _ = make_rounds(tmp_path, script, rule)
        finished, _ = rounds.run_round(1)
        assert finished.aggregation is not None
        assert finished.aggregation.clip_factors is not None
        steps[name] = float(torch.linalg.norm(rounds.model.state["w"]))
        assert max(finished.aggregation.update_norms.values()) <= 4.0 * math.sqrt(2)
    assert steps["lie"] <= 2 * steps["honest"]


def test_without_clipping_no_bit_changes_and_the_record_has_no_factors(tmp_path: Path) -> None:
    plain, _ = make_rounds(tmp_path, all_well(), FedOMGAggregator())
    rule = FedOMGAggregator()
    rule.begin_run(rule.facts._replace(clip_to_median=1e9))
    generous, _ = make_rounds(tmp_path, all_well(), rule)
    finished = [one.run_round(1)[0] for one in (plain, generous)]
    assert torch.equal(plain.model.state["w"], generous.model.state["w"])
    assert finished[0].aggregation is not None
    assert finished[0].aggregation.clip_factors is None
    assert "clip_factors" in json.loads(finished[0].model_dump_json())["aggregation"]


# --- selection --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("selection", "selected"), [("mean", 1), ("median", 2)])
def test_a_lying_score_moves_the_mean_and_not_the_median(tmp_path: Path, selection: str, selected: int) -> None:
    """The liar says 1.0 of the model after round 1 and 0.0 of the others; the honest say 0.4, 0.5, 0.6."""

    def script(task: str, site: str, number: int, sent: FLModel) -> Answer:
        honest = {1: 0.4, 2: 0.5, 3: 0.6}[number]
        told = (1.0 if number == 2 else 0.0) if site == "cartoon" else honest
        if task == TASK_TRAIN:
            report = report_of(site, received=evaluation(told)).model_dump()
            return trained(site, update([1.0, 0.0]), samples=SAMPLES[site], report=report)
        return judged(told, "validation" if site in SOURCES else "test")

    rounds, _ = make_rounds(tmp_path, script, selection=selection)
    run(rounds, 2)
    (choice,) = [one for one in rounds.record.choices if one.rule == "source_validation"]
    assert choice.after_round == selected
