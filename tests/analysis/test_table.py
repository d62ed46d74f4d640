# SPDX-License-Identifier: Apache-2.0
"""Tables by held-out domains: which runs make a cell, what is bold, how it is written, what is said of the runs."""

import io
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from fdg_plugins.controllers import RunRecord
from fdg_plugins.lab.analysis import Run, Table, build_sites_table, build_table
from fdg_plugins.lab.analysis.facts import absences, commonest_at_sites, commonest_in_domains, noised, notes_on_runs
from fdg_plugins.lab.analysis.papers import AVERAGE, departures, printed_rows
from fdg_plugins.lab.analysis.table import Sheet, rendered
from fdg_plugins.messages import Evaluation
from fdg_plugins.models.pretrained import FROM_SCRATCH
from fdg_plugins.record.round_record import LocalRecord, Method
from tests.analysis.run_stubs import (
    DOMAINS,
    FEDAVG,
    FEDGA,
    FEDOMG,
    census_reply,
    fedomg,
    finished,
    labels,
    lines,
    means,
    run,
    runs_of,
    text_rows,
)
from tests.analysis.test_comparable import reference_run
from tests.analysis.test_sites import SOURCES, skewed
from tests.controllers.federation_stubs import round_record

# FedAvg by seed 0, 1, 2: averages over the four domains 0.5, 0.6, 0.7.
FULL = {
    "art_painting": (0.4, 0.5, 0.6),
    "cartoon": (0.5, 0.6, 0.7),
    "photo": (0.6, 0.7, 0.8),
    "sketch": (0.5, 0.6, 0.7),
}


def bold(table: Table) -> list[tuple[str, int]]:
    """Return the first cell and the place of every bold cell."""
    rows = text_rows(table)
    return [(row[0], place) for row in rows for place, cell in enumerate(row) if cell.startswith("**")]


def test_a_cell_is_over_seeds_and_the_average_is_taken_within_each_seed() -> None:
    runs = runs_of(FEDAVG, FULL)
    table = build_table(runs)
    assert tuple(table.columns) == (*DOMAINS, AVERAGE)
    (photo,), (average,) = (lines(table, target=name) for name in ("photo", AVERAGE))
    assert (photo["mean"], photo["std"], photo["seeds"]) == pytest.approx((0.7, 0.1, 3))
    assert (average["mean"], average["std"], average["seeds"]) == pytest.approx((0.6, 0.1, 3))
    assert table.text() == build_table(runs[::-1]).text()


def test_missing_domains_and_seeds() -> None:
    table = build_table(runs_of(FEDAVG, {name: FULL[name] for name in ("photo", "sketch")}))
    assert [line["seeds"] for line in lines(table, kind="ours")] == [0, 0, 3, 3, 0]
    assert table.shown == ["photo", "sketch"]
    (average,) = lines(build_table(runs_of(FEDAVG, {**FULL, "sketch": (0.5,)})), target=AVERAGE)
    assert (average["mean"], average["seeds"], average["std"]) == (pytest.approx(0.5), 1, None)
    runs = [*runs_of(FEDAVG, {"photo": (0.5, 0.7), "sketch": (0.5,)}), *runs_of(FEDOMG, {"photo": (0.4,)})]
    table = build_table(runs)
    assert text_rows(table) == [
        ["FedAvg", "**60.0 ± 14.1 (2)**", "50.0 (1)"],
        ["FedOMG", "40.0 (1)", "missing"],
    ]
    assert "over seeds 0, 1 (their number in brackets)" in table.caption


def test_columns_of_unknown_data_sets_and_of_a_domain_called_average() -> None:
    made = run("a", target="b", domains=("c", "b", "a"), protocol={"dataset": "my_scanners"})
    assert tuple(build_table([made]).columns) == ("a", "b", "c", AVERAGE)
    table = build_table([run("a"), run("b", FEDAVG, "comic", domains=(*DOMAINS, "comic"))])
    assert list(table.columns)[-2:] == ["comic", AVERAGE]
    domains = (AVERAGE, "b", "c")
    own = {"dataset": {"name": "mine", "domains": domains, "classes": ["dog", "elephant"]}}
    runs = [
        run(target, FEDAVG, target, 0, (accuracy,), domains=domains, protocol=own)
        for target, accuracy in zip(domains, (0.1, 0.5, 0.9), strict=True)
    ]
    found = {column: mean for (_, column), mean in means(build_table(runs, ("last",))).items()}
    assert found == pytest.approx({"average (domain)": 0.1, "b": 0.5, "c": 0.9, AVERAGE: 0.5})


def test_rows_are_in_their_usual_order_with_references_below() -> None:
    runs = [
        reference_run("irm", "irm", "photo", 0, (0.8,)),
        run("b", Method(aggregator="Mine", settings={})),
        *runs_of(FEDAVG, {"photo": (0.5,)}),
        reference_run("erm", "erm", "photo", 0, (0.9,)),
        *runs_of(FEDOMG, {"photo": (0.6,)}),
    ]
    table = build_table(runs, ("last",))
    names = [row[0] for row in text_rows(table)]
    heading = "References (pooled source data, or each site alone):"
    assert names == ["FedAvg", "FedOMG", "Mine", heading, "ERM", "IRM"]
    assert bold(table) == [("FedOMG", 1), ("ERM", 1)]  # the best of each block
    assert labels(build_table([reference_run("a", "irm", settings={"strength": 1.0})])) == ["IRM (strength 1.0)"]


def test_the_best_as_printed_is_bold_by_rule_and_never_of_the_oracle() -> None:
    runs = [
        *runs_of(FEDAVG, {"photo": (0.8001,), "sketch": (0.5,)}),
        *runs_of(FEDGA, {"photo": (0.7999,), "sketch": (0.095,)}),
        *runs_of(FEDOMG, {"photo": (0.79,), "cartoon": (0.9,)}),
    ]
    table = build_table(runs, ("last",))
    assert bold(table) == [("FedAvg", 2), ("FedAvg", 3), ("FedDG-GA", 2)]
    assert "**80.0**" in table.text()
    assert bold(build_table(runs_of(FEDAVG, {"photo": (0.5,)}))) == []
    sources = [(0.2, 0.2, 0.2), (0.1, 0.1, 0.1)]
    runs = [
        run("a", FEDAVG, accuracies=(0.5, 0.6), sources=sources),
        run("b", FEDOMG, accuracies=(0.9, 0.3), sources=sources),
    ]
    rules = build_table(runs, ("last", "source_validation", "oracle"))
    marked = [row[:2] for row in text_rows(rules) if row[2].startswith("**")]
    assert marked == [["FedAvg", "last round"], ["FedOMG", "source validation"]]


def test_numbers_are_bit_for_bit_those_of_the_runs_and_every_line_has_their_facts() -> None:
    drawn = {"stand_in": True, "data": "STAND-IN for PACS"}
    runs = [run(f"{seed}", FEDAVG, "photo", seed, (value,), **drawn) for seed, value in enumerate((1 / 3, 2 / 7, 0.1))]
    table = build_table([*runs, run("b", fedomg(note='a "quoted", parted\nname'), **drawn)], ("last",))
    read = pd.read_csv(io.StringIO(table.text("csv")), dtype=str, keep_default_na=False)
    assert set(zip(read["data"], read["stand_in"], strict=True)) == {("STAND-IN for PACS", "true")}
    mine = read[(read["method"] == "fedavg") & (read["target"] == "photo") & (read["kind"] == "ours")]
    (line,) = mine.to_dict("records")
    scores = [one.record.evaluations[-1].target for one in runs]
    assert [float(pair.split(":")[1]) for pair in line["values"].split(";")] == scores
    assert line["seeds"] == "3"
    notes = read[read["kind"] == "note"]["note"]
    assert list(notes) == list(table.notes)


def test_markup_in_names_is_escaped() -> None:
    nasty = r"50% of $x_1 & {a|b} #*^~\ [c] <d> ± ²"
    sheet = Sheet(
        nasty, pd.DataFrame([[nasty, "**1.0**"], ["x", "-2.0"]], columns=["method", "_a"]), 1, [nasty, 'a "b"']
    )
    (row,) = (line for line in rendered([sheet], "markdown").splitlines() if "**1.0**" in line)
    assert row.count("|") - row.count(r"\|") == 3
    assert rendered([sheet], "terminal").count(nasty) == 3
    latex = rendered([sheet], "latex")
    assert latex.count("{") - latex.count(r"\{") == latex.count("}") - latex.count(r"\}")
    assert r"50\% of \$x\_1 \& \{a|b\} \#*\textasciicircum{}\textasciitilde{}\textbackslash{} {[}c]" in latex
    for words in (r"\textbf{1.0}", "$-$2.0", "``b''", r"\begin{tabular}{lr}"):
        assert words in latex
    assert not any("%" in line.replace(r"\%", "") for line in latex.splitlines()[1:])


def test_scores_that_a_task_derives_have_rows_of_their_own() -> None:
    def evaluation(dice: float, hits: int, false: int, missed: int) -> Evaluation:
        voxels = {"true_positives_1": hits, "false_positives_1": false, "false_negatives_1": missed}
        sums = {name: {"sum": value, "count": 1000} for name, value in voxels.items()}
        return Evaluation(split="test", loss=1.0, count=10, sums={"dice": {"sum": 10 * dice, "count": 10}, **sums})

    record = finished(accuracies=(), protocol={"task": "segmentation"})
    scores = {domain: evaluation(0.5, 30, 10, 10) for domain in DOMAINS}
    record.add_evaluation(0, {**scores, "cartoon": evaluation(0.4, 10, 20, 0), "photo": evaluation(0.2, 20, 60, 100)})
    record.choices = record.choose({})[:1]
    pooled = {"art_painting": 0.75, "cartoon": 0.5, "photo": 0.2, "sketch": 0.75}
    assert record.evaluations[0].derived["pooled_dice"] == pooled
    assert type(record).model_validate_json(record.model_dump_json()) == record
    table = build_table([Run(run("a").folder, record)], ("last",))
    assert [row[0] for row in text_rows(table)] == ["FedAvg", "FedAvg, Pooled Dice"]
    assert [line["mean"] for line in lines(table, kind="pooled_dice", target="photo")] == [0.2]


ALL = ("art_painting", "cartoon", "sketch")


def with_rounds(*used: tuple[str, ...], drawn: tuple[str, ...] | None = None, **changes: Any) -> RunRecord:
    record = finished(FEDOMG, "photo", **changes)
    alike: dict[str, Any] = {"drawn": drawn or record.sources, "failures": {}, "local": {}, "aggregation": None}
    record.rounds = [round_record(number, sites=sites, **alike) for number, sites in enumerate(used, 1)]
    return record


def reasons(made: Run) -> list[str]:
    (printed,) = printed_rows("pacs", "fedomg", "fedomg")
    return departures([made], printed)


def test_the_caption_says_how_the_numbers_were_made() -> None:
    drawn = {"stand_in": True, "data": "STAND-IN for PACS", "initial_weights": FROM_SCRATCH}
    protocol = {"max_samples_per_domain": 400, "trainable": "head"}
    caption = build_table([run("a", seed=7, protocol=protocol, **drawn)], ("oracle",)).caption
    for words in ("STAND-IN for PACS, from scratch, resnet18, head alone trained", "at most 400 images per domain"):
        assert words in caption
    assert "one seed (7)" in caption
    assert "selection: oracle (not a result)" in caption
    caption = build_table([run("a"), reference_run("b", "erm")]).caption
    assert "100 rounds, centralised references of 5,001 steps" in caption
    assert "rounds" not in build_table([reference_run("b", "erm")]).caption


def test_a_site_whose_update_is_missing_is_named_and_the_run_no_longer_comparable() -> None:
    made = Run(run("a").folder, with_rounds(ALL, ALL[:2], ALL[:2]))
    assert absences(made.record) == {"sketch": 2}
    made.record.left_out["sketch"] = "takes no further part: its privacy budget is spent."
    (note,) = notes_on_runs([made])
    assert "sketch in 2 of 3 rounds (it took no further part)" in note
    assert note in build_table([made]).notes
    assert reasons(made) == ["rounds without sketch"]
    drawn = with_rounds(ALL[:2], ALL[:1], drawn=ALL[:2], protocol={"sites_per_round": 2})
    assert absences(drawn) == {"cartoon": 1}  # a site that is not drawn is not absent


def test_rounds_that_left_the_model_unchanged_are_counted_with_the_last_reason() -> None:
    made = Run(run("a").folder, with_rounds(ALL, ALL, ALL))
    assert notes_on_runs([made]) == []
    for finished_round in made.record.rounds[1:]:
        finished_round.reason = f"ArithmeticError: flat {finished_round.round}."
    (note,) = notes_on_runs([made])
    assert "2 of 3 rounds left the model unchanged; the last, round 3, because: ArithmeticError: flat 3." in note
    assert reasons(made) == ["2 rounds that left the model unchanged"]


def test_a_site_under_differential_privacy_is_named_with_its_rounds() -> None:
    made = Run(run("a").folder, with_rounds(ALL, ALL))
    open_, withheld = (
        LocalRecord(epoch_losses=losses, local=None, steps=1, learning_rate=0.1, num_samples=1, seconds=1.0)
        for losses in ((1.0,), None)
    )
    first, second = made.record.rounds
    first.local.update({"cartoon": open_, "sketch": withheld})
    second.local.update({"cartoon": withheld, "sketch": withheld})
    assert noised(made.record) == {"cartoon": 1, "sketch": 2}
    (note,) = notes_on_runs([made])
    assert "sketch in 2 of 2 rounds, cartoon in 1 of 2 rounds" in note
    assert reasons(made) == ["noise on the updates of cartoon and sketch"]


def test_missing_evaluations_and_shortened_runs_have_notes() -> None:
    (note,) = notes_on_runs([Run(run("a").folder, finished(accuracies=(0.5, None, None)))])
    assert "photo in 2 of 3 evaluations" in note
    short = run("a", protocol={"rounds": 10})
    cut = replace(run("b", FEDOMG, protocol={"rounds": 10}), planned=30)
    assert "10 to 30 rounds" in notes_on_runs([short, cut])[0]


def test_rules_for_batch_norm_have_a_note_where_the_network_has_it() -> None:
    plain, own = (
        run(method.aggregator, method, protocol={"model": model, "batch_norm": rule})
        for method, model, rule in ((FEDAVG, "resnet18", "average"), (FEDGA, "resnet18", "reestimate"))
    )
    (note,) = (note for note in build_table([plain, own]).notes if note.startswith("batch_norm"))
    assert "average for FedAvg; reestimate for FedDG-GA" in note
    without = [run("a", protocol={"model": "cnn"}), run("b", FEDGA, protocol={"model": "cnn", "batch_norm": "frozen"})]
    for runs in ([plain], [own], without):
        assert not any("batch_norm" in note for note in build_table(runs).notes)


def judged(target: str, *counts: tuple[int, ...], seed: int = 0) -> Run:
    """Return a run whose held-out sites have these counts of images by class."""
    made = run(f"{target}-{seed}", FEDAVG, target, seed)
    sites = [target, *(f"{target}-{number}" for number in range(2, len(counts) + 1))]
    replies = {site: census_reply(target, seed, class_counts=own) for site, own in zip(sites, counts, strict=True)}
    made.record.held_out = tuple(sites)
    made.record.census = {**made.record.census, **replies}
    return made


def test_commonest_class_of_held_out_domains() -> None:
    assert commonest_in_domains([judged("photo", (30, 10))]) == {"photo": 0.75}
    assert commonest_in_domains([judged("photo", (30, 10), (0, 40))]) == {"photo": 0.625}
    assert commonest_in_domains([judged("photo", ())]) == {}
    runs = [judged("photo", (6, 4)), judged("photo", (6, 4)), judged("photo", (8, 2), seed=1)]
    assert commonest_in_domains(runs) == {"photo": pytest.approx(0.7)}  # seeds count alike
    table = build_table([judged("sketch", (10, 10)), judged("photo", (30, 10))])
    assert any(note.endswith("photo 75.0, sketch 50.0, on average 62.5.") for note in table.notes)
    pixels = judged("photo", (30, 10))
    pixels.record.protocol = pixels.record.protocol.model_copy(update={"task": "segmentation"})
    assert (commonest_in_domains([pixels]), commonest_at_sites(pixels)) == ({}, None)


def test_commonest_class_of_skewed_sites_is_weighed_by_their_test_images() -> None:
    made = skewed()
    for site, images, counts in zip(SOURCES, (1, 3, 0, 0, 0), ((4, 0), (2, 6), (1, 0), (0, 0), (5, 5)), strict=True):
        reply = census_reply("train", num_train=8, num_validation=images, class_counts=counts)
        made.record.census = {**made.record.census, site: reply}
    # One image of a site with one class, three of a site of which three quarters have one.
    assert commonest_at_sites(made) == pytest.approx((1 + 3 * 0.75) / 4)
    notes = build_sites_table([made, skewed(FEDOMG, dataset="cifar10")]).notes
    assert any(note.endswith("MNIST alpha=0.1 81.2, CIFAR-10 alpha=0.1 50.0.") for note in notes)
