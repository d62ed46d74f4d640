# SPDX-License-Identifier: Apache-2.0
"""Values of a swept setting chosen on source validation: never by the domain that is held out."""

import csv
from collections.abc import Sequence
from typing import Any

import pytest

from fdg_plugins.errors import DataError, FDGError, SettingsError
from fdg_plugins.lab.analysis import Run, build_table
from fdg_plugins.lab.analysis.choosing import choose
from fdg_plugins.lab.analysis.grid import to_grid
from fdg_plugins.lab.analysis.render_csv import render_csv
from fdg_plugins.record.run_record import Method
from tests.analysis.run_stubs import FEDAVG, FEDGA, fedomg, run


def swept(kappa: Any, target: str, seed: int, on_sources: float, on_target: float, **changes: Any) -> Run:
    """Return a run of FedOMG whose only model has these accuracies."""
    return run(
        f"{kappa}-{target}-{seed}",
        fedomg(kappa=kappa),
        target,
        seed,
        (on_target,),
        sources=[(on_sources,) * 3],
        **changes,
    )


# On source validation 0.5 is better for photo and 0.1 for sketch; on the held-out domain it is the other way round.
SWEEP: Sequence[Run] = [
    *(swept(0.1, "photo", seed, 0.6, 0.9) for seed in (0, 1)),
    *(swept(0.5, "photo", seed, 0.7, 0.2 + 0.1 * seed) for seed in (0, 1)),
    *(swept(0.1, "sketch", seed, 0.8, 0.3) for seed in (0, 1)),
    *(swept(0.5, "sketch", seed, 0.7, 0.9) for seed in (0, 1)),
]
PLAIN = [run(f"fedavg-{target}", FEDAVG, target, 0, (0.5,)) for target in ("photo", "sketch")]


def test_the_best_on_source_validation_is_taken_for_each_held_out_domain() -> None:
    table = build_table([*SWEEP, *PLAIN], choosing=("kappa",))
    assert [rows.label for rows in table.methods] == ["FedAvg", "FedOMG (kappa chosen)"]
    cells = table.methods[1].results[0].cells
    assert (cells["photo"].by_seed, cells["sketch"].mean) == ({0: 0.2, 1: pytest.approx(0.3)}, 0.3)
    assert table.notes == (
        "FedOMG: kappa chosen for each held-out domain by accuracy on source validation, mean over seeds 0, 1, never "
        "by the held-out domain: photo 0.5 (0.1: 60.0 %, 0.5: 70.0 %); sketch 0.1 (0.1: 80.0 %, 0.5: 70.0 %).",
    )


def test_the_seeds_of_each_held_out_domain_are_named_where_they_differ() -> None:
    (note,) = build_table(SWEEP[:-1], choosing=("kappa",)).notes
    assert "mean over seeds 0, 1 (photo), 0 (sketch), never by the held-out domain" in note


def test_of_means_that_are_equal_but_for_rounding_the_smallest_value_is_taken() -> None:
    means = {0.9: (0.9, 0.8), 0.1: (0.85, 0.85)}
    assert sum(means[0.9]) / 2 > sum(means[0.1]) / 2, "by a rounding error"
    runs = [swept(kappa, "photo", seed, own, 0.5) for kappa, scores in means.items() for seed, own in enumerate(scores)]
    assert [one.value for one in choose(runs, ["kappa"]).chosen] == [(0.1,)]


def test_the_held_out_domain_moves_no_choice() -> None:
    others = [swept(one.record.method.settings["kappa"], one.target, one.seed, *scores(one)) for one in SWEEP]
    assert [one.value for one in choose(SWEEP, ["kappa"]).chosen] == [(0.5,), (0.1,)]
    assert [one.value for one in choose(others, ["kappa"]).chosen] == [(0.5,), (0.1,)]


def scores(one: Run) -> tuple[float, float]:
    """Return a run's score on its sources, and the opposite of that on its held-out domain."""
    (evaluation,) = one.record.evaluations
    assert evaluation.source_mean is not None
    assert evaluation.target is not None
    return evaluation.source_mean, 1 - evaluation.target


def test_it_is_the_mean_over_the_seeds_that_all_values_have_and_of_equal_ones_the_smallest() -> None:
    extra = swept(0.1, "photo", 2, 1.0, 0.0)  # 0.5 has no run with this seed
    (found,) = choose([*SWEEP[:4], extra], ["kappa"]).chosen
    assert (found.value, found.seeds) == ((0.5,), (0, 1))
    equal = [swept(kappa, "photo", 0, 0.5, 0.5) for kappa in (10, 2, 0.5)]
    assert choose(equal, ["kappa"]).chosen[0].value == (0.5,)


def test_two_settings_are_chosen_together() -> None:
    def of(kappa: float, server_lr: float, score: float) -> Run:
        method = fedomg(kappa=kappa, server_lr=server_lr)
        return run(f"{kappa} {server_lr}", method, "photo", 0, (0.1,), sources=[(score,) * 3])

    runs = [of(0.1, 1.0, 0.5), of(0.1, 0.05, 0.6), of(0.5, 1.0, 0.7), of(0.5, 0.05, 0.6)]
    found = choose(runs, ["kappa", "server_lr"])
    assert [one.folder.name for one in found.runs] == ["0.5 1.0"]
    labels = [rows.label for rows in build_table(runs, choosing=("kappa",)).methods]
    assert labels == ["FedOMG (server_lr 0.05, kappa chosen)", "FedOMG (server_lr 1.0, kappa chosen)"]


def test_each_method_has_a_choice_of_its_own_settings_alone() -> None:
    def of(step_size: float, score: float) -> Run:
        method = Method(aggregator=FEDGA.aggregator, settings={**FEDGA.settings, "step_size": step_size})
        return run(f"fedga {step_size}", method, "photo", 0, (0.1,), sources=[(score,) * 3])

    table = build_table([of(0.05, 0.5), of(0.1, 0.6), *SWEEP[:4]], choosing=("kappa", "step_size"))
    assert [rows.label for rows in table.methods] == ["FedDG-GA (step_size chosen)", "FedOMG (kappa chosen)"]
    said = {note.partition(" chosen")[0]: note.rpartition("domain: ")[2] for note in table.notes}
    assert said == {
        "FedDG-GA: step_size": "photo 0.1 (0.05: 50.0 %, 0.1: 60.0 %).",
        "FedOMG: kappa": "photo 0.5 (0.1: 60.0 %, 0.5: 70.0 %).",
    }


def test_of_one_method_with_two_other_settings_each_has_a_choice_and_a_note_of_its_own() -> None:
    other = [
        run(
            f"samples-{kappa}-{one.target}-{one.seed}",
            fedomg(kappa=kappa, weighting="samples"),
            one.target,
            one.seed,
            (0.65,),
            sources=[(0.5 + kappa / 10,) * 3],
        )
        for one in PLAIN
        for kappa in (0.1, 0.3)
    ]
    table = build_table([*SWEEP, *other], choosing=("kappa",))
    assert [rows.label for rows in table.methods] == [
        "FedOMG (weighting samples, kappa chosen)",
        "FedOMG (weighting uniform, kappa chosen)",
    ]
    uniform, samples = table.notes
    assert uniform.startswith("FedOMG (weighting uniform): kappa chosen")
    assert uniform.endswith("photo 0.5 (0.1: 60.0 %, 0.5: 70.0 %); sketch 0.1 (0.1: 80.0 %, 0.5: 70.0 %).")
    assert samples.endswith("photo 0.3 (0.1: 51.0 %, 0.3: 53.0 %); sketch 0.3 (0.1: 51.0 %, 0.3: 53.0 %).")
    fixed = build_table(
        [*SWEEP, *(one for one in other if one.record.method.settings["kappa"] == 0.3)], choosing=["kappa"]
    )
    assert [rows.label for rows in fixed.methods] == [
        "FedOMG (kappa 0.3, weighting samples)",
        "FedOMG (weighting uniform, kappa chosen)",
    ]
    assert len(fixed.notes) == 1


def test_a_setting_of_the_protocol_can_be_chosen_but_not_beside_printed_numbers() -> None:
    runs = [
        run(f"{rate}", FEDAVG, "photo", 0, (0.5,), sources=[(score,) * 3], protocol={"learning_rate": rate})
        for rate, score in ((0.1, 0.7), (0.01, 0.6))
    ]
    table = build_table(runs, choosing=("learning_rate",))
    assert [rows.label for rows in table.methods] == ["FedAvg (learning_rate chosen)"]
    with pytest.raises(SettingsError, match=r"^learning_rate \(--choose\) is a setting of the protocol, and papers"):
        build_table(runs, against="fedomg", choosing=("learning_rate",))


def test_caption_and_csv_tell_all_values_of_a_chosen_setting() -> None:
    def of(method: Method, target: str, rounds: int, score: float) -> Run:
        protocol = {"rounds": rounds, "image_size": 32}
        name = f"{method.aggregator}-{target}-{rounds}"
        return run(name, method, target, 0, (0.5,), sources=[(score,) * 3], protocol=protocol)

    best = [(FEDAVG, "photo", 10), (FEDAVG, "sketch", 10), (FEDGA, "photo", 50), (FEDGA, "sketch", 30)]
    runs = [
        of(method, target, rounds, 0.7 if rounds == chosen else 0.6)
        for method, target, chosen in best
        for rounds in (10, 30, 50, 70)
    ]
    table = build_table(runs, choosing=("rounds",))
    assert ", 32 px, 10 to 50 rounds, 3 source sites" in to_grid(table).caption
    lines = csv.DictReader(render_csv(table).splitlines())
    assert {(line["method"], line["rounds"], line["image_size"]) for line in lines if line["kind"] == "ours"} == {
        ("fedavg", "10", "32"),
        ("fedga", "30;50", "32"),
    }


def test_the_caption_says_all_that_is_trained_where_that_was_chosen() -> None:
    best = {FEDAVG.aggregator: "head", FEDGA.aggregator: "all"}
    runs = [
        run(
            f"{method.aggregator}-{part}",
            method,
            sources=[(0.7 if best[method.aggregator] == part else 0.6,) * 3],
            protocol={"trainable": part},
        )
        for method in (FEDAVG, FEDGA)
        for part in ("all", "head")
    ]
    caption = to_grid(build_table(runs, choosing=("trainable",))).caption
    assert ", resnet18, whole network trained or head alone trained, 224 px, " in caption


@pytest.mark.parametrize(
    ("runs", "setting", "error", "words"),
    [
        (SWEEP, "server_lr", SettingsError, r"setting 'server_lr' \(--choose\) is 0.05 in every run of a method"),
        (SWEEP, "nope", SettingsError, r"setting 'nope' \(--choose\) is not a setting of these runs; expected one"),
        (SWEEP[:-2], "kappa", DataError, "FedOMG with sketch held out has no seed with .* kappa .*: 0.1, 0.5"),
        ([SWEEP[0], SWEEP[3]], "kappa", DataError, "FedOMG with photo held out has no seed with"),
        (
            [SWEEP[0], swept(0.5, "photo", 0, 0.5, 0.5, protocol={"rounds": 3})],
            "kappa",
            SettingsError,
            "these runs cannot stand in one table: rounds of the protocol",
        ),
    ],
    ids=["constant", "unknown", "a domain lacks a value", "no common seed", "another protocol"],
)
def test_what_cannot_be_chosen_is_refused(runs: Sequence[Run], setting: str, error: type[FDGError], words: str) -> None:
    with pytest.raises(error, match=f"^{words}"):
        choose(runs, [setting])


def test_csv_tells_what_was_chosen_for_each_held_out_domain_and_all_notes() -> None:
    table = build_table(SWEEP, choosing=("kappa",))
    lines = list(csv.DictReader(render_csv(table).splitlines()))
    chosen = {line["target"]: line for line in lines if line["kind"] == "chosen"}
    assert {target: line["note"] for target, line in chosen.items()} == {"photo": "kappa=0.5", "sketch": "kappa=0.1"}
    scores = dict(pair.split(":") for pair in chosen["photo"]["values"].split(";"))
    assert {name: float(score) for name, score in scores.items()} == pytest.approx({"kappa=0.1": 0.6, "kappa=0.5": 0.7})
    assert float(chosen["photo"]["mean"]) == float(scores["kappa=0.5"])
    assert (chosen["photo"]["method"], chosen["photo"]["selection"]) == ("fedomg", "source_validation")
    assert [line["note"] for line in lines if line["kind"] == "note"][1:] == list(table.notes)
    assert {line["data"] for line in lines} == {table.facts.data}
