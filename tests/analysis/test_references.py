# SPDX-License-Identifier: Apache-2.0
"""Centralised references in tables: a block of their own, their titles, what must agree with the runs beside them."""

import csv
from collections.abc import Sequence
from typing import Any

import pytest

from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.analysis import Run, build_table, check_comparable, method_name, method_order, method_title
from fdg_plugins.lab.analysis.cells import REFERENCES, Grid
from fdg_plugins.lab.analysis.grid import to_grid
from fdg_plugins.lab.analysis.names import is_centralised
from fdg_plugins.lab.analysis.render_csv import render_csv
from fdg_plugins.lab.analysis.render_latex import render_latex
from fdg_plugins.lab.analysis.render_markdown import render_markdown
from fdg_plugins.lab.analysis.render_text import render_text
from fdg_plugins.lab.centralised import ALGORITHMS, algorithm_settings
from fdg_plugins.plugins.composition import published
from fdg_plugins.record.run_record import Method
from tests.analysis.run_stubs import DOMAINS, FEDAVG, FEDOMG, census_reply, compared_in, finished, run, runs_of

SCHEDULE = {"optimizer": "adam", "steps": 5001, "checkpoint_every": 300}
# How a centralised run trains, in the words of the protocol: other rounds, batches and rates than the federated ones.
TRAINING = {
    "rounds": 17,
    "local_epochs": 1,
    "batch_size": 32,
    "learning_rate": 5e-5,
    "momentum": 0.0,
    "weight_decay": 0,
}


def reference(name: str, **settings: Any) -> Method:
    """Return the method of a centralised run."""
    own = {**SCHEDULE, **algorithm_settings(name), **settings}
    return Method(aggregator=ALGORITHMS[name].__name__, settings=own)


def reference_run(
    folder: str, name: str, *arguments: Any, protocol: dict[str, Any] | None = None, **changes: Any
) -> Run:
    """Return a finished centralised run; the rest is as for :func:`run`."""
    settings = changes.pop("settings", {})
    trained = {**TRAINING, **(protocol or {})}
    return run(folder, reference(name, **settings), *arguments, protocol=trained, **changes)


@pytest.fixture
def mixed() -> Sequence[Run]:
    """Two federated methods and two references on one domain; a reference is the best of all."""
    return [
        reference_run("irm", "irm", "photo", 0, (0.8,)),
        *runs_of(FEDAVG, {"photo": (0.5,)}),
        reference_run("erm", "erm", "photo", 0, (0.9,)),
        *runs_of(FEDOMG, {"photo": (0.6,)}),
    ]


def grid_of(runs: Sequence[Run], against: str | None = None) -> Grid:
    return to_grid(build_table(runs, ("last",), against))


# --- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_a_reference_is_called_by_its_algorithm(name: str) -> None:
    assert method_name(reference(name)) == name
    assert method_title(name) == ALGORITHMS[name].title
    assert is_centralised(name)


def test_no_federated_method_has_a_references_name() -> None:
    assert not set(published()) & set(ALGORITHMS)
    assert not any(is_centralised(name) for name in published())


def test_references_come_after_every_method_in_the_order_of_their_catalogue() -> None:
    names = ["fishr", "Mine", "erm", "fedomg+ga", "vrex", "fedavg"]
    assert sorted(names, key=method_order) == ["fedavg", "fedomg+ga", "Mine", "erm", "vrex", "fishr"]


# --- what may stand beside each other --------------------------------------------------------------------------------


def test_references_stand_beside_federated_runs_that_train_otherwise(mixed: Sequence[Run]) -> None:
    check_comparable(mixed)
    check_comparable(mixed[::-1])


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"protocol": {"image_size": 64}}, "image_size of the protocol is 224 in runs/a and 64 in runs/b"),
        ({"protocol": {"model": "resnet50"}}, "model of the protocol is resnet18 in runs/a and resnet50 in runs/b"),
        (
            {"protocol": {"normalization": "group"}},
            "normalization of the protocol is default in runs/a and group in runs/b",
        ),
        ({"protocol": {"preset": "photo"}}, "preset of the protocol is  in runs/a and photo in runs/b"),
        ({"protocol": {"max_samples_per_domain": 300}}, "max_samples_per_domain of the protocol is unset in runs/a"),
        ({"stand_in": True}, "the stand-in is not used in runs/a and used in runs/b"),
        (
            {"census": {name: census_reply(name, num_train=7) for name in DOMAINS}},
            "the number of training, validation and test images of the held-out domain photo is 1668/2/1670 in runs/a",
        ),
        (
            {"census": {name: census_reply(name, split_hash="others") for name in DOMAINS}},
            "the hash of the split of the held-out domain photo under seed 0 is photo 0 in runs/a and others in runs/b",
        ),
    ],
)
def test_images_and_network_must_be_those_of_the_federated_runs(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingsError) as refused:
        check_comparable([run("a"), reference_run("b", "erm", **changes)])
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"settings": {"steps": 300}}, "steps of the centralised runs is 5001 in runs/a and 300 in runs/b"),
        ({"settings": {"optimizer": "sgd"}}, "optimizer of the centralised runs is adam in runs/a and sgd in runs/b"),
        ({"settings": {"checkpoint_every": 9}}, "checkpoint_every of the centralised runs is 300 in runs/a and 9"),
        ({"protocol": {"learning_rate": 0.1}}, "learning_rate of the centralised runs is 5e-05 in runs/a and 0.1"),
        ({"protocol": {"rounds": 2}}, "rounds of the centralised runs is 17 in runs/a and 2 in runs/b"),
    ],
)
def test_references_must_be_trained_alike_among_themselves(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingsError) as refused:
        check_comparable([reference_run("a", "erm"), run("between"), reference_run("b", "irm", **changes)])
    assert sentence in str(refused.value)


def test_settings_of_an_algorithm_make_rows_of_their_own() -> None:
    runs = [reference_run(f"irm{value}", "irm", settings={"strength": value}) for value in (1.0, 100.0)]
    assert [rows.label for rows in build_table(runs).methods] == ["IRM (strength 1.0)", "IRM (strength 100.0)"]


# --- the block -------------------------------------------------------------------------------------------------------


def test_the_block_stands_below_the_methods_whatever_the_accuracies(mixed: Sequence[Run]) -> None:
    found = grid_of(mixed)
    assert [group[0][0].text for group in found.groups] == ["FedAvg", "FedOMG"]
    assert [group[0][0].text for group in found.references] == ["ERM", "IRM"]


def test_the_best_is_bold_in_each_block(mixed: Sequence[Run]) -> None:
    assert [row[0].text for row in grid_of(mixed).rows if any(cell.best for cell in row)] == ["FedOMG", "ERM"]
    alone = grid_of([run("a"), run("b", FEDOMG, accuracies=(0.6,)), mixed[0]])
    assert [row[0].text for row in alone.rows if any(cell.best for cell in row)] == ["FedOMG"]


def test_the_caption_says_how_long_each_kind_was_trained(mixed: Sequence[Run]) -> None:
    caption = grid_of(mixed).caption
    assert "100 rounds, 3 source sites, centralised references of 5001 steps" in caption
    alone = grid_of([mixed[0]]).caption
    assert "centralised references of 5001 steps" in alone
    assert "rounds" not in alone
    assert "centralised" not in grid_of(mixed[1:2]).caption


def test_papers_numbers_stand_beside_the_methods_and_none_is_missed_for_a_reference(mixed: Sequence[Run]) -> None:
    found = grid_of(mixed, against="fedomg")
    assert [len(group) for group in found.groups] == [3, 3]
    assert [len(group) for group in found.references] == [1, 1]
    assert not any("No printed number" in note for note in found.notes)


def test_in_text_a_rule_and_a_heading_part_the_blocks(mixed: Sequence[Run]) -> None:
    lines = render_text(grid_of(mixed)).plain.splitlines()
    first_words = [line.split()[0] for line in lines[1:]]
    assert first_words[0] == "method"
    rule = first_words[1]
    assert first_words[2:] == ["FedAvg", "FedOMG", rule, "Centralised", "ERM", "IRM", "Left", "Always"]
    assert set(lines[2]) == {"-"}
    alone = render_text(grid_of([mixed[0]])).plain.splitlines()
    assert [line.split()[0] for line in alone[3:-2]] == ["Centralised", "IRM"]


def test_in_markdown_the_heading_is_a_row(mixed: Sequence[Run]) -> None:
    rows = [line for line in render_markdown(grid_of(mixed)).splitlines() if line.startswith("|")]
    assert {line.count("|") for line in rows} == {3}
    assert [line.split("|")[1].strip() for line in rows[2:]] == ["FedAvg", "FedOMG", f"*{REFERENCES}*", "ERM", "IRM"]


def test_in_latex_the_heading_spans_all_columns_below_a_rule(mixed: Sequence[Run]) -> None:
    for runs, rules in ((mixed, 2), (mixed[:1], 1)):
        text = render_latex(grid_of(runs))
        heading = rf"\multicolumn{{2}}{{l}}{{\textit{{{REFERENCES}}}}} \\"
        assert text.count(heading) == 1
        assert text.count(r"\midrule") == rules
        assert rf"\midrule{chr(10)}{heading}{chr(10)}ERM &" in text or len(runs) == 1
        assert text.count("{") == text.count("}")


def test_csv_says_steps_for_references_and_rounds_for_methods(mixed: Sequence[Run]) -> None:
    lines = csv.DictReader(render_csv(build_table(mixed)).splitlines())
    found = {line["method"]: (line["rounds"], line["steps"]) for line in lines if line["kind"] != "note"}
    assert found == {"fedavg": ("100", ""), "fedomg": ("100", ""), "erm": ("", "5001"), "irm": ("", "5001")}


def test_a_record_of_a_reference_is_read_as_any_other() -> None:
    record = finished(reference("fishr"), protocol=TRAINING)
    assert type(record).model_validate_json(record.model_dump_json()) == record


def test_chosen_values_of_references_are_theirs() -> None:
    def sized(size: int, score: float) -> list[Run]:
        protocol = {"image_size": size}
        federated = run(f"avg-{size}", FEDAVG, "photo", 0, (0.5,), sources=[(1 - score,) * 3], protocol=protocol)
        erm = reference_run(f"erm-{size}", "erm", "photo", 0, (0.5,), sources=[(score,) * 3], protocol=protocol)
        return [federated, erm]

    runs = [*sized(32, 0.3), *sized(64, 0.7)]
    table = build_table(runs, choosing=("image_size",))
    lines = csv.DictReader(render_csv(table).splitlines())
    assert {(line["method"], line["image_size"]) for line in lines if line["kind"] == "ours"} == {
        ("fedavg", "32"),
        ("erm", "64"),
    }
    alone = build_table([one for one in runs if one.method == "erm"], choosing=("image_size",))
    assert ", 64 px, " in to_grid(alone).caption


def test_a_reference_has_no_rank_among_the_federated_methods() -> None:
    references = [reference_run(f"erm-{seed}", "erm", "photo", seed, (0.9,)) for seed in (0, 1)]
    federated = [*runs_of(FEDAVG, {"photo": (0.5, 0.6)}), *runs_of(FEDOMG, {"photo": (0.6, 0.7)})]
    found = compared_in(build_table([*references, *federated], ("last",)))
    assert found is not None
    assert {row.method.method: row.rank for row in found.rows} == {"fedavg": 2.0, "fedomg": 1.0}
