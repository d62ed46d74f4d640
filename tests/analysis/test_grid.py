# SPDX-License-Identifier: Apache-2.0
"""The table as text: percentages, what is bold, the caption's facts, and the papers' rows with their footnotes."""

import csv
import io
from collections.abc import Sequence
from typing import Any

import pytest

from fdg_plugins.lab.analysis import RULES, Run, build_table
from fdg_plugins.lab.analysis.cells import Cell, Grid
from fdg_plugins.lab.analysis.grid import to_grid
from fdg_plugins.lab.analysis.render_csv import render_csv
from fdg_plugins.record.run_record import InitialWeights, Method
from tests.analysis.run_stubs import DOMAINS, FEDAVG, FEDGA, FEDOMG, fedomg, run, runs_of


def grid(
    runs: Sequence[Run], *, rules: tuple[str, ...] = ("last",), against: str | None = None, digits: int = 1
) -> Grid:
    return to_grid(build_table(runs, rules, against), digits)


def texts(rows: Sequence[Sequence[Cell]]) -> list[list[str]]:
    return [[cell.text for cell in row] for row in rows]


def bold(found: Grid) -> list[tuple[str, str]]:
    """Return first cell and column title of every bold cell."""
    rows = [row for group in found.groups for row in group]
    return [(row[0].text, title) for row in rows for title, cell in zip(found.header, row, strict=True) if cell.best]


def test_a_row_is_percent_with_deviation_and_what_is_missing_is_said() -> None:
    runs = runs_of(FEDAVG, {"photo": (0.5, 0.6, 0.7), "sketch": (0.123, 0.123, 0.123)})
    found = grid([*runs, *runs_of(FEDOMG, {"photo": (0.5, 0.5, 0.5)})])
    assert found.header == ("method", "photo", "sketch")
    assert texts([group[0] for group in found.groups]) == [
        ["FedAvg", "60.0 ± 10.0", "12.3 ± 0.0"],
        ["FedOMG", "50.0 ± 0.0", "missing"],
    ]
    assert "Left out, since no run has a score there: art_painting, cartoon, average." in found.notes


@pytest.mark.parametrize(("digits", "text"), [(0, "33 ± 0"), (1, "33.3 ± 0.1"), (3, "33.333 ± 0.115")])
def test_digits_are_the_decimals_of_mean_and_deviation(digits: int, text: str) -> None:
    # Mean 1/3; deviations -2/3, 1/3, 1/3 of 0.002: squares 6/9 * 4e-6 over 2 give 0.00115 squared.
    runs = runs_of(FEDAVG, {"photo": (0.332, 0.334, 0.334)})
    assert texts(grid(runs, digits=digits).groups[0])[0][1] == text


def test_seeds_are_counted_in_brackets_only_where_they_differ() -> None:
    row = texts(grid(runs_of(FEDAVG, {"photo": (0.5, 0.7), "sketch": (0.5,)})).groups[0])[0]
    assert row[1:] == ["60.0 ± 14.1 (2)", "50.0 (1)"]
    assert texts(grid(runs_of(FEDAVG, {"photo": (0.5,), "sketch": (0.5,)})).groups[0])[0][1:] == ["50.0", "50.0"]


def test_the_highest_printed_mean_of_a_column_is_bold_and_all_that_equal_it() -> None:
    runs = [
        *runs_of(FEDAVG, {"photo": (0.8001,), "sketch": (0.5,)}),
        *runs_of(FEDGA, {"photo": (0.7999,), "sketch": (0.6,)}),
        *runs_of(FEDOMG, {"photo": (0.79,), "cartoon": (0.9,)}),
    ]
    assert bold(grid(runs)) == [("FedAvg", "photo"), ("FedDG-GA", "photo"), ("FedDG-GA", "sketch")]
    assert ("FedDG-GA", "photo") not in bold(grid(runs, digits=2))


def test_means_are_compared_as_numbers_and_not_as_text() -> None:
    runs = [*runs_of(FEDAVG, {"photo": (0.095,)}), *runs_of(FEDOMG, {"photo": (0.5,)})]
    assert bold(grid(runs)) == [("FedOMG", "photo")]


def test_one_method_alone_is_not_the_best_of_anything() -> None:
    assert bold(grid(runs_of(FEDAVG, {"photo": (0.5,)}))) == []


def test_rules_are_compared_each_within_itself_and_the_oracle_not_at_all() -> None:
    sources = [(0.2, 0.2, 0.2), (0.1, 0.1, 0.1)]
    runs = [
        run("a", FEDAVG, accuracies=(0.5, 0.6), sources=sources),
        run("b", FEDOMG, accuracies=(0.9, 0.3), sources=sources),
    ]
    found = grid(runs, rules=("last", "source_validation", "oracle"))
    assert found.header[:2] == ("method", "selection")
    marked = [(row[0].text, row[1].text) for group in found.groups for row in group if any(cell.best for cell in row)]
    assert marked == [("FedAvg", "last round"), ("FedOMG", "source validation, mean")]
    assert "The oracle looks at the held-out domain to choose the model: it is not a result." in found.notes
    assert [row[1].text for row in found.groups[0]][-1] == "oracle (not a result)"


def test_the_oracle_is_marked_where_it_is_the_only_rule() -> None:
    found = grid(runs_of(FEDAVG, {"photo": (0.5,)}), rules=("oracle",))
    assert "selection: oracle (not a result)" in found.caption
    assert any("not a result" in note for note in found.notes)


def test_the_caption_says_what_the_numbers_are() -> None:
    caption = grid(runs_of(FEDAVG, {"photo": (0.5, 0.6)})).caption
    for words in (
        "PACS",
        "ImageNet weights",
        "resnet18",
        "224 px",
        "100 rounds",
        "3 source sites",
        "fdg-plugins 0.1.0",
    ):
        assert words in caption
    assert "mean ± standard deviation over 2 seeds (0, 1)" in caption
    assert "selection: last round" in caption
    assert "STAND-IN" not in caption


def test_the_caption_says_stand_in_from_scratch_thinned_and_one_seed() -> None:
    made = run(
        "a",
        seed=7,
        stand_in=True,
        data="STAND-IN for PACS",
        initial_weights=InitialWeights(label="from scratch"),
        protocol={"max_samples_per_domain": 400},
    )
    caption = grid([made]).caption
    for words in ("STAND-IN for PACS", "from scratch", "at most 400 images per domain", "one seed (7)"):
        assert words in caption


def test_a_caption_over_unequal_seeds_says_so() -> None:
    caption = grid(runs_of(FEDAVG, {"photo": (0.5, 0.7), "sketch": (0.5,)})).caption
    assert "over seeds 0, 1 (their number in brackets)" in caption


def test_other_seeds_in_equal_numbers_are_counted_too() -> None:
    apart = [run("a", FEDAVG, "photo", 0, (0.5,)), run("b", FEDOMG, "photo", 1, (0.6,))]
    assert "over seeds 0, 1 (their number in brackets)" in grid(apart).caption
    assert [row[1] for group in grid(apart).groups for row in texts(group)] == ["50.0 (1)", "60.0 (1)"]


def test_a_papers_row_and_the_difference_stand_below_ours() -> None:
    # FedOMG's Table 2 prints 98.0 +- 0.2 on photo. Ours: mean 0.978, deviation 0.002, so an error of
    # sqrt(2 * 0.002^2 / 3) = 0.00163 for the difference of -0.002.
    found = grid(runs_of(FEDOMG, {"photo": (0.976, 0.978, 0.980)}), against="fedomg")
    assert found.header[:2] == ("method", "whose")
    ours, theirs, difference = texts(found.groups[0])
    assert ours[1:] == ["ours", "97.8 ± 0.2"]
    assert theirs[1:] == ["FedOMG paper, table 2, resnet18", "98.0 ± 0.2"]
    assert difference[1:] == ["ours minus FedOMG paper, within 2 SE", "-0.2 (SE 0.2) yes"]
    everywhere = runs_of(FEDAVG, dict.fromkeys(DOMAINS, (0.5,)))
    (*_, only_average) = texts(grid(everywhere, against="feddim").groups[0])
    assert only_average[2:6] == ["-", "-", "-", "-"]
    assert len(grid([run("a")], against="feddim").groups[0]) == 1  # that paper prints the average alone
    assert any("Nguyen et al." in note and "ICLR 2025" in note and "mean of 3 runs" in note for note in found.notes)


@pytest.mark.parametrize(
    ("accuracies", "text"),
    [
        ((0.976, 0.978, 0.980), "-0.2 (SE 0.2) yes"),
        ((0.966, 0.968, 0.970), "-1.2 (SE 0.2) no"),
        ((0.966, 0.970), "-1.2 (SE 0.2) unknown"),  # two seeds are too few for a verdict
        ((0.99,), "+1.0 unknown"),
    ],
)
def test_within_two_standard_errors_is_yes_no_or_unknown(accuracies: tuple[float, ...], text: str) -> None:
    assert texts(grid(runs_of(FEDOMG, {"photo": accuracies}), against="fedomg").groups[0])[2][2] == text


def test_a_remark_on_one_number_is_marked_there_and_one_on_all_at_the_row() -> None:
    everywhere = dict.fromkeys(DOMAINS, (0.9,))
    runs = [*runs_of(FEDAVG, everywhere), *runs_of(FEDGA, everywhere)]
    found = grid(runs, against="fedomg")
    fedavg, fedga = (texts(group)[1] for group in found.groups)
    assert fedavg[1] == "FedOMG paper, table 2, resnet18"
    assert fedavg[-1] == "82.7 [1]"
    assert fedga[1] == "FedOMG paper, table 2, resnet18 [2]"
    assert fedga[-1] == "83.5"
    assert found.notes[:2] == (
        "[1] printed average differs from the mean of the columns (82.20).",
        "[2] printed as FedGA.",
    )


def test_printed_numbers_are_never_the_best() -> None:
    runs = [*runs_of(FEDAVG, {"photo": (0.1,)}), *runs_of(FEDOMG, {"photo": (0.2,)})]
    found = grid(runs, against="paper")
    assert [row[1].text for group in found.groups for row in group if any(cell.best for cell in row)] == ["ours"]


def test_methods_that_no_paper_prints_are_named() -> None:
    runs = [run("a", FEDAVG), run("b", FEDOMG)]
    assert "No printed number: FedOMG." in grid(runs, against="fediir").notes
    assert "No printed number: FedOMG." in grid(runs[1:], against="fediir").notes


def test_the_caption_names_the_seeds_of_the_cells_and_not_that_of_a_run_without_a_score() -> None:
    found = grid([run("judged", seed=3), run("not", seed=4, accuracies=(None,))])
    assert "one seed (3): PACS" in found.caption
    assert "runs/not has no accuracy on photo for the rule last, and is missing there." in found.notes


def test_in_csv_a_printed_number_has_nothing_of_our_runs() -> None:
    table = build_table(runs_of(fedomg(server_lr=1.0), {"photo": (0.5, 0.6)}), ("last",), "fedomg")
    ours, theirs = (
        next(line for line in csv.DictReader(io.StringIO(render_csv(table))) if line["kind"] == kind)
        for kind in ("ours", "printed")
    )
    of_runs = ("data", "stand_in", "initial_weights", "model", "image_size", "rounds", "version")
    assert [theirs[name] for name in of_runs] == [""] * len(of_runs)
    assert all(ours[name] for name in of_runs)
    assert (theirs["method"], theirs["paper"], theirs["backbone"]) == ("fedomg", "fedomg", "resnet18")


def test_a_printed_row_is_named_without_settings_of_ours() -> None:
    table = build_table(runs_of(fedomg(server_lr=1.0), {"photo": (0.5, 0.6)}), ("last",), "fedomg")
    assert [row[0].text for row in to_grid(table).groups[0]] == [
        "FedOMG (server_lr 1.0)",
        "FedOMG",
        "FedOMG (server_lr 1.0)",
    ]
    labels = {line["kind"]: line["label"] for line in csv.DictReader(io.StringIO(render_csv(table)))}
    assert labels == {
        "note": "",
        "ours": "FedOMG (server_lr 1.0)",
        "printed": "FedOMG",
        "difference": "FedOMG (server_lr 1.0)",
    }


def test_all_rules_are_set_against_one_printed_row() -> None:
    rows = texts(grid(runs_of(FEDOMG, {"photo": (0.9,)}), rules=("last", "oracle"), against="fedomg").groups[0])
    assert [row[1] for row in rows] == [
        "last round", "oracle (not a result)", "as printed", "last round", "oracle (not a result)",
    ]  # fmt: skip


def test_runs_that_trained_a_part_of_the_network_say_so_and_are_not_compared() -> None:
    protocol = {"image_size": 224, "trainable": "head"}
    made = [run(target, FEDOMG, target, protocol=protocol) for target in DOMAINS]
    written = grid(made, against="fedomg")
    assert "resnet18, head alone trained, 224 px" in written.caption
    assert "head alone trained" in texts(written.groups[0])[2][1]


def test_runs_of_another_protocol_are_not_compared_but_told_why() -> None:
    """Guessing at 64 pixels from scratch is no difference between methods."""
    made = [
        run(
            target,
            FEDOMG,
            target,
            initial_weights=InitialWeights(label="from scratch"),
            protocol={"image_size": 64, "max_samples_per_domain": 300},
        )
        for target in DOMAINS
    ]
    written = grid(made, against="fedomg")
    ours, theirs, reasons = texts(written.groups[0])
    assert theirs[1] == "FedOMG paper, table 2, resnet18"
    assert reasons[1:] == ["not comparable: 64 px, from scratch [1]", *["-"] * 5]
    assert written.notes[0] == "[1] not comparable: 64 px, from scratch, at most 300 images per domain."
    assert len(ours) == 7
    lines = list(csv.DictReader(io.StringIO(render_csv(build_table(made, ("last",), "fedomg")))))
    found = [line for line in lines if line["kind"] == "difference"]
    assert {line["within_two_standard_errors"] for line in found} == {"not comparable"}
    assert {line["note"] for line in found} == {"64 px, from scratch, at most 300 images per domain"}


def test_another_network_is_another_protocol() -> None:
    made = [run("a", FEDOMG, protocol={"model": "resnet50"})]
    (*_, reasons) = texts(grid(made, against="fedomg").groups[0])
    assert reasons[1] == "not comparable: resnet50"


def test_a_model_that_the_median_chose_is_not_said_to_be_the_means() -> None:
    for selection, words in (("mean", "source validation, mean"), ("median", "source validation, median over sites")):
        made = [run("a", protocol={"selection": selection})]
        assert f"selection: {words};" in grid(made, rules=("source_validation",)).caption
        assert words in [row[1].text for group in grid(made, rules=tuple(RULES)).groups for row in group]


def test_numbers_are_compared_only_under_the_papers_own_protocol() -> None:
    own: dict[str, Any] = {"local_epochs": 1, "batch_size": 32, "learning_rate": 2.5e-3, "head": "two_layer"}
    own |= {"keep_momentum": False, "batch_norm": "frozen", "color_jitter": 0.3}
    equal = FEDAVG.model_copy(update={"settings": {**FEDAVG.settings, "weighting": "uniform"}})
    of_fediir = [run("a", equal, protocol={**own, "weight_decay": 0.0, "lr_decay_factor": 1.0})]
    (*_, differences) = texts(grid(of_fediir, against="fediir").groups[0])
    assert differences[1].startswith("ours minus FedIIR paper")
    (*_, reasons) = texts(grid([run("a", equal, protocol=own)], against="fediir").groups[0])
    assert reasons[1] == "not comparable: weight decay 0.0005, learning rate times 0.1 in the end"
    of_fedomg = [run("a", FEDOMG, protocol={"local_epochs": 1, "rounds": 40, "sites_per_round": 2})]
    written = grid(of_fedomg, against="fedomg")
    assert texts(written.groups[0])[-1][1] == "not comparable: rounds 40, local epochs 1 [1]"
    assert written.notes[0] == "[1] not comparable: rounds 40, local epochs 1, 2 sites per round."
    other = {"partition": "iid", "optimizer": "adam"}
    made = run("a", FEDOMG, protocol=other)
    made.record.sources = tuple(f"{domain}-{number}" for domain in DOMAINS[1:] for number in range(10))
    written = grid([made], against="fedomg")
    assert written.notes[0].endswith("partition iid, optimizer adam, 30 source sites.")


def test_another_augmentation_is_another_protocol() -> None:
    (*_, reasons) = texts(grid([run("a", FEDOMG, protocol={"crop_scale": 0.8})], against="fedomg").groups[0])
    assert reasons[1] == "not comparable: crops of 0.8 of the area or more"
    made = [run("a", FEDAVG, protocol={"crop_scale": 0.8, "color_jitter": 0.2})]
    words = "crops of 0.8 of the area or more, colours changed by up to 0.2"
    assert words in grid(made, against="fediir").notes[0]
    assert "of the area" not in grid(made, against="feddim").notes[0]  # its paper says nothing of it


def test_a_momentum_from_zero_is_another_protocol_except_for_methods_to_which_it_belongs() -> None:
    fednova = Method(aggregator="FedNovaAggregator", settings={"weighting": "samples", "server_lr": 1.0})
    kept = {"rounds": 40}
    runs = [
        run("a", fednova, protocol={**kept, "keep_momentum": False}),  # first, so that the facts are those of FedNova
        run("b", FEDAVG, protocol=kept),
    ]
    fedavg, nova = (texts(group)[-1][1] for group in grid(runs, against="feddg-ga").groups)
    assert fedavg == nova == "ours minus FedDG-GA paper, within 2 SE"
    (*_, reasons) = texts(
        grid([run("a", FEDAVG, protocol={**kept, "keep_momentum": False})], against="feddg-ga").groups[0]
    )
    assert reasons[1] == "not comparable: momentum from zero in every round"
