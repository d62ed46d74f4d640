# SPDX-License-Identifier: Apache-2.0
"""Values of a swept setting chosen on source validation: never by the domain that is held out."""

from collections.abc import Sequence
from typing import Any

import pytest

from fdg_plugins.errors import DataError, FDGError, SettingsError
from fdg_plugins.lab.analysis import Run, build_table
from fdg_plugins.lab.analysis.comparable import group_runs, value_of
from fdg_plugins.lab.analysis.selection import choose
from fdg_plugins.record.round_record import Method
from tests.analysis.run_stubs import FEDAVG, FEDGA, fedomg, labels, lines, means, run


def swept(kappa: Any, target: str, seed: int, on_sources: float, on_target: float, **changes: Any) -> Run:
    """Return a run of FedOMG whose only model has these accuracies."""
    name, method = f"{kappa}-{target}-{seed}", fedomg(kappa=kappa)
    return run(name, method, target, seed, (on_target,), sources=[(on_sources,) * 3], **changes)


# On source validation 0.5 is better for photo and 0.1 for sketch; on the held-out domain it is the other way round.
SWEEP: Sequence[Run] = [
    *(swept(0.1, "photo", seed, 0.6, 0.9) for seed in (0, 1)),
    *(swept(0.5, "photo", seed, 0.7, 0.2 + 0.1 * seed) for seed in (0, 1)),
    *(swept(0.1, "sketch", seed, 0.8, 0.3) for seed in (0, 1)),
    *(swept(0.5, "sketch", seed, 0.7, 0.9) for seed in (0, 1)),
]
PLAIN = [run(f"fedavg-{target}", FEDAVG, target, 0, (0.5,)) for target in ("photo", "sketch")]


def chosen(runs: Sequence[Run], *settings: str) -> dict[str, tuple[Any, ...]]:
    """Return the values that are chosen for each held-out domain."""
    kept = [run for group in group_runs(runs, settings) for run in choose(group)[0].runs]
    return {run.target: tuple(value_of(run, name) for name in settings) for run in kept}


def test_the_best_on_source_validation_is_taken_for_each_held_out_domain() -> None:
    table = build_table([*SWEEP, *PLAIN], choosing=("kappa",))
    assert labels(table) == ["FedAvg", "FedOMG (kappa chosen)"]
    found = means(table, label="FedOMG (kappa chosen)")
    assert found["FedOMG (kappa chosen)", "photo"] == pytest.approx(0.25)
    assert found["FedOMG (kappa chosen)", "sketch"] == pytest.approx(0.3)
    (note,) = (note for note in table.notes if "chosen" in note)
    assert "photo 0.5 (0.1: 60.0 %, 0.5: 70.0 %; seeds 0, 1); sketch 0.1" in note


def test_the_held_out_domain_moves_no_choice() -> None:
    others = [
        swept(
            one.record.method.settings["kappa"], one.target, one.seed, found.source_mean or 0, 1 - (found.target or 0)
        )
        for one in SWEEP
        for found in one.record.evaluations
    ]
    for runs in (SWEEP, others):
        assert chosen(runs, "kappa") == {"photo": (0.5,), "sketch": (0.1,)}


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
    assert {(line["method"], line["rounds"]) for line in lines(table, kind="ours")} == {
        ("fedavg", "10"),
        ("fedga", "30;50"),
    }
    with pytest.raises(SettingsError) as caught:
        build_table(runs, against="fedomg", choosing=("rounds",))
    assert caught.value.value == "rounds"


@pytest.mark.parametrize(
    ("runs", "setting", "error"),
    [
        (SWEEP, "server_lr", SettingsError),
        (SWEEP, "nope", SettingsError),
        (SWEEP[:-2], "kappa", DataError),
        ([SWEEP[0], SWEEP[3]], "kappa", DataError),
        ([SWEEP[0], swept(0.5, "photo", 0, 0.5, 0.5, protocol={"rounds": 3})], "kappa", SettingsError),
    ],
    ids=["constant", "unknown", "a domain lacks a value", "no common seed", "another protocol"],
)
def test_what_cannot_be_chosen_is_refused(runs: Sequence[Run], setting: str, error: type[FDGError]) -> None:
    with pytest.raises(error):
        build_table(runs, choosing=[setting])
