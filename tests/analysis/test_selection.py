# SPDX-License-Identifier: Apache-2.0
"""Selection: rules report the model that their own number chose; values of settings are chosen on source validation."""

from collections.abc import Sequence
from typing import Any

import pytest

from fdg_plugins.controllers import RunRecord
from fdg_plugins.errors import DataError, FDGError, SettingsError
from fdg_plugins.lab.analysis import RULES, Run, build_table, target_score
from fdg_plugins.lab.analysis.comparable import group_runs, value_of
from fdg_plugins.lab.analysis.selection import choose, source_score
from fdg_plugins.record.round_record import Method
from tests.analysis.run_stubs import FEDAVG, FEDGA, evaluation, fedomg, finished, labels, lines, means, run

# Three models: mean over sources 0.4, 0.6, 0.5; worst source 0.4, 0.1, 0.2; held-out domain 0.7, 0.5, 0.6.
SOURCES = [(0.4, 0.4, 0.4), (0.1, 0.8, 0.9), (0.2, 0.6, 0.7)]
TARGETS = (0.7, 0.5, 0.6)


def accuracies(record: RunRecord) -> dict[str, float | None]:
    return {rule: target_score(record, rule) for rule in RULES}


def test_target_score_of_each_rule() -> None:
    found = accuracies(finished(accuracies=TARGETS, sources=SOURCES))
    assert found == {"last": 0.6, "source_validation": 0.5, "source_worst": 0.7, "oracle": 0.7}
    other = accuracies(finished(accuracies=(0.1, 0.2, 0.9), sources=SOURCES))  # the held-out domain moves the oracle
    assert other == {"last": 0.9, "source_validation": 0.2, "source_worst": 0.1, "oracle": 0.9}
    missing = accuracies(finished(accuracies=(0.7, 0.5, None), sources=SOURCES))
    assert missing == {"last": None, "source_validation": 0.5, "source_worst": 0.7, "oracle": 0.7}
    assert set(accuracies(finished(accuracies=())).values()) == {None}


def test_source_worst_takes_the_earliest_of_equal_models_that_every_source_judged() -> None:
    record = finished(accuracies=TARGETS, sources=[(0.1, 0.9, 0.9), (0.2, 0.3, 0.4), (0.2, 0.8, 0.8)])
    assert target_score(record, "source_worst") == 0.5
    record = finished(accuracies=(0.1, 0.2), sources=[(0.2, 0.6, 0.6), (0.3, 0.6, 0.6)])
    drawn = dict.fromkeys(record.sources[1:], evaluation(0.7))  # without the source on which all models are worst
    record.add_evaluation(2, {**drawn, "photo": evaluation(0.9)}, expected=drawn)
    assert record.evaluations[-1].source_worst == 0.7
    assert target_score(record, "source_worst") == 0.2


def test_a_model_that_was_undone_is_chosen_by_no_rule() -> None:
    record = finished(accuracies=(0.7, 0.9, 0.6), sources=[(0.4, 0.4, 0.4), (0.9, 0.9, 0.9), (0.5, 0.5, 0.5)])
    record.evaluations[1].undone = True
    record.choices = record.choose({})
    assert accuracies(record) == {"last": 0.6, "source_validation": 0.6, "source_worst": 0.6, "oracle": 0.7}


def test_source_score_counts_the_last_known_one_of_an_absent_source() -> None:
    record = finished(accuracies=TARGETS, sources=[(0.75, 0.75, 0.3), (0.76, 0.76, 0.2), (0.1, 0.1, 0.1)])
    second = record.evaluations[1]
    answered = {site: second.sites[site] for site in second.sites if site != record.sources[-1]}
    record.evaluations[1] = second.model_copy(update={"sites": answered})
    record.choices = record.choose({})
    assert source_score(record) == pytest.approx((0.76 + 0.76 + 0.3) / 3)


def swept(kappa: Any, target: str, seed: int, on_sources: float, on_target: float, **changes: Any) -> Run:
    """Return a run of FedOMG whose only model has these accuracies."""
    name, method = f"{kappa}-{target}-{seed}", fedomg(kappa=kappa)
    return run(name, method, target, seed, (on_target,), sources=[(on_sources,) * 3], **changes)


# On source validation 0.5 is better for photo and 0.1 for sketch; on the held-out domain, which chooses nothing, it is
# the other way round.
SWEEP: Sequence[Run] = [
    *(swept(0.1, "photo", seed, 0.6, 0.9) for seed in (0, 1)),
    *(swept(0.5, "photo", seed, 0.7, 0.2 + 0.1 * seed) for seed in (0, 1)),
    *(swept(0.1, "sketch", seed, 0.8, 0.3) for seed in (0, 1)),
    *(swept(0.5, "sketch", seed, 0.7, 0.9) for seed in (0, 1)),
]


def chosen(runs: Sequence[Run], *settings: str) -> dict[str, tuple[Any, ...]]:
    """Return the values that are chosen for each held-out domain."""
    kept = [run for group in group_runs(runs, settings) for run in choose(group)[0].runs]
    return {run.target: tuple(value_of(run, name) for name in settings) for run in kept}


def test_the_best_on_source_validation_is_taken_for_each_held_out_domain() -> None:
    plain = [run(f"fedavg-{target}", FEDAVG, target, 0, (0.5,)) for target in ("photo", "sketch")]
    table = build_table([*SWEEP, *plain], choosing=("kappa",))
    assert labels(table) == ["FedAvg", "FedOMG (kappa chosen)"]
    found = means(table, label="FedOMG (kappa chosen)")
    assert found["FedOMG (kappa chosen)", "photo"] == pytest.approx(0.25)
    assert found["FedOMG (kappa chosen)", "sketch"] == pytest.approx(0.3)
    (note,) = (note for note in table.notes if "chosen" in note)
    assert "photo 0.5 (0.1: 60.0 %, 0.5: 70.0 %; seeds 0, 1); sketch 0.1" in note


def test_the_mean_is_over_the_seeds_that_all_values_have_and_of_equal_ones_the_smallest_is_taken() -> None:
    extra = swept(0.1, "photo", 2, 1.0, 0.0)  # 0.5 has no run with this seed
    (group,) = group_runs([*SWEEP[:4], extra], ("kappa",))
    best, note = choose(group)
    assert ({value_of(run, "kappa") for run in best.runs}, "seeds 0, 1)" in note) == ({0.5}, True)
    assert chosen([swept(kappa, "photo", 0, 0.5, 0.5) for kappa in (10, 2, 0.5)], "kappa") == {"photo": (0.5,)}
    scores = {0.9: (0.9, 0.8), 0.1: (0.85, 0.85)}
    assert sum(scores[0.9]) / 2 > sum(scores[0.1]) / 2, "by a rounding error"
    runs = [swept(kappa, "photo", seed, own, 0.5) for kappa, of in scores.items() for seed, own in enumerate(of)]
    assert chosen(runs, "kappa") == {"photo": (0.1,)}


def test_settings_are_chosen_together_and_by_each_method() -> None:
    def of(kappa: float, server_lr: float, score: float) -> Run:
        method = fedomg(kappa=kappa, server_lr=server_lr)
        return run(f"{kappa} {server_lr}", method, "photo", 0, (0.1,), sources=[(score,) * 3])

    runs = [of(0.1, 1.0, 0.5), of(0.1, 0.05, 0.6), of(0.5, 1.0, 0.7), of(0.5, 0.05, 0.6)]
    assert chosen(runs, "kappa", "server_lr") == {"photo": (0.5, 1.0)}
    expected = ["FedOMG (server_lr 0.05, kappa chosen)", "FedOMG (server_lr 1.0, kappa chosen)"]
    assert labels(build_table(runs, choosing=("kappa",))) == expected


def test_a_setting_of_the_protocol_is_chosen_and_told_in_caption_and_numbers() -> None:
    def of(method: Method, target: str, rounds: int, score: float) -> Run:
        name = f"{method.aggregator}-{target}-{rounds}"
        return run(name, method, target, 0, (0.5,), sources=[(score,) * 3], protocol={"rounds": rounds})

    best = [(FEDAVG, "photo", 10), (FEDAVG, "sketch", 10), (FEDGA, "photo", 50), (FEDGA, "sketch", 30)]
    runs = [of(*one[:2], rounds, 0.7 if rounds == one[2] else 0.6) for one in best for rounds in (10, 30, 50, 70)]
    table = build_table(runs, choosing=("rounds",))
    assert "10 to 50 rounds" in table.caption
    told = {(line["method"], line["rounds"]) for line in lines(table, kind="ours")}
    assert told == {("fedavg", "10"), ("fedga", "30;50")}
    with pytest.raises(SettingsError) as caught:
        build_table(runs, against="fedomg", choosing=("rounds",))
    assert caught.value.value == "rounds"


@pytest.mark.parametrize(
    ("runs", "setting", "error"),
    [
        (SWEEP, "server_lr", SettingsError),
        (SWEEP, "nope", SettingsError),
        (SWEEP[:-2], "kappa", DataError),  # a domain lacks a value
        ([SWEEP[0], SWEEP[3]], "kappa", DataError),  # no common seed
        ([SWEEP[0], swept(0.5, "photo", 0, 0.5, 0.5, protocol={"rounds": 3})], "kappa", SettingsError),
    ],
)
def test_what_cannot_be_chosen_is_refused(runs: Sequence[Run], setting: str, error: type[FDGError]) -> None:
    with pytest.raises(error):
        build_table(runs, choosing=[setting])
