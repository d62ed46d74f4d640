# SPDX-License-Identifier: Apache-2.0
"""FedOMG's Tables 1 and 5 from runs: the paper's columns, its numbers, and what may not stand together."""

import csv
from collections.abc import Sequence
from typing import Any

import pytest

from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.analysis import Run, build_table
from fdg_plugins.lab.analysis.sites_csv import render_sites_csv
from fdg_plugins.lab.analysis.sites_runs import is_of_sites
from fdg_plugins.lab.analysis.sites_table import PAPERS_COLUMNS, printed_cells, sites_grid
from fdg_plugins.lab.analysis.whole_data import images_in_words, known_images
from fdg_plugins.messages import ScoreSum
from fdg_plugins.plugins.composition import Composition
from fdg_plugins.record.run_record import InitialWeights, Method, PersonalScores
from fdg_plugins.settings.method_defaults import MethodDefaults, method_defaults
from fdg_plugins.settings.paper_protocols import PAPER_PROTOCOLS
from tests.analysis.run_stubs import FEDAVG, FEDOMG, census_reply, fedomg, run
from tests.analysis.test_departures import with_rounds

SOURCES = [f"train-{number}of5" for number in range(1, 6)]

# FedOMG's defaults on label-skewed sites; FedAvg's are FEDAVG.
STEPPING = fedomg(server_lr=1.0)


def skewed(
    method: Method = FEDAVG,
    seed: int = 0,
    own: float = 0.5,
    *,
    dataset: str = "mnist",
    alpha: float = 0.1,
    drawn: int | None = None,
    sources: Sequence[str] = SOURCES,
    **changes: Any,
) -> Run:
    """Return a run on skewed sites, five by default, with one accuracy at all of them."""
    protocol = {"dataset": dataset, "partition": "dirichlet", "dirichlet_alpha": alpha, "sites_per_round": drawn}
    domains = ["test", *sources]
    census = {site: census_reply("train", seed, num_train=8 + seed, num_test=10 + seed) for site in sources}
    census["test"] = census_reply("test", seed)
    return run(
        f"{method.aggregator}-{dataset}-{alpha}-{drawn}-{seed}",
        method,
        "test",
        seed,
        (0.25,),
        domains=domains,
        sources=[[own] * len(sources)],
        protocol=protocol,
        **{"census": census, "data": dataset, **changes},
    )


def as_published(dataset: str, alpha: float, **changes: Any) -> Run:
    """Return a run under the paper's protocol on all its images, with some settings changed."""
    sites = [f"train-{number}of100" for number in range(1, 101)]
    weights = InitialWeights(label="from scratch")
    made = skewed(dataset=dataset, alpha=alpha, sources=sites, initial_weights=weights)
    reply = census_reply("train", num_train=known_images(dataset, "train")[0] // 100 - 2)
    made.record.census = {**dict.fromkeys(sites, reply), "test": census_reply("test", num_test=10_000)}
    protocol = {**PAPER_PROTOCOLS["fedomg-fl"][dataset], **changes}
    made.record.protocol = made.record.protocol.model_copy(update={"keep_momentum": False, **protocol})
    return made


def test_the_columns_are_the_papers_that_have_runs_and_a_cell_is_the_mean_over_seeds() -> None:
    runs = [skewed(seed=seed, own=value) for seed, value in enumerate((0.5, 0.6, 0.7))]
    grid = sites_grid([*runs, skewed(FEDOMG, own=0.9, dataset="cifar10", alpha=0.5)], digits=1)
    assert is_of_sites(runs)
    assert grid.header[3:] == ("MNIST alpha=0.1", "CIFAR-10 alpha=0.5")
    (own, published), (other, _) = grid.groups
    assert [cell.text for cell in own[1:4]] == ["1", "sites' own test images", "60.0 ± 10.0 (3)"]
    assert published[3].text == "25.0 ± 0.0 (3)"
    assert own[4].text == "missing"
    assert [cell.text for cell in other[3:]] == ["missing", "90.0 (1)"]


def test_in_one_column_training_differs_in_participation_alone() -> None:
    one, other = skewed(drawn=2), skewed(drawn=3)
    assert len(sites_grid([one, other]).groups) == 2
    other.record.protocol = other.record.protocol.model_copy(update={"learning_rate": 1.0})
    with pytest.raises(SettingsError, match="learning_rate of the protocol is 0"):
        sites_grid([one, other])


def test_a_run_without_some_updates_has_a_note() -> None:
    made = skewed()
    made.record.left_out["train-2of5"] = "takes no further part: it left."
    (note,) = [text for text in sites_grid([made]).notes if "went on" in text]
    assert note.endswith("went on without the updates of train-2of5 in 0 of 0 rounds (it took no further part).")


def lines_of(runs: list[Run], against: str | None = None) -> list[dict[str, str]]:
    return list(csv.DictReader(render_sites_csv(runs, against).splitlines()))


def test_csv_has_fractions_that_are_not_rounded_with_seeds_and_data_in_every_line() -> None:
    runs = [skewed(seed=seed, own=value) for seed, value in enumerate((1 / 3, 2 / 3))]
    found = lines_of([*runs, skewed(FEDOMG, own=0.9, dataset="cifar10", alpha=0.5, stand_in=True)])
    first = next(line for line in found if line["method"] == "fedavg" and line["on"] == "sites' own test images")
    assert (first["dataset"], first["skew"], first["participation"]) == ("mnist", "alpha=0.1", "1.0")
    values = [float(value.partition(":")[2]) for value in first["values"].split(";")]
    assert values == pytest.approx([1 / 3, 2 / 3], abs=1e-12)
    assert float(first["mean"]) == pytest.approx(0.5, abs=1e-12)
    assert first["seeds"] == "2"
    assert {(line["dataset"], line["data"], line["stand_in"]) for line in found if line["dataset"]} == {
        ("mnist", "mnist", "false"),
        ("cifar10", "cifar10", "true"),
    }
    assert {line["seeds"] for line in found if (line["method"], line["dataset"]) == ("fedomg", "mnist")} == {"0"}


def test_cells_name_their_number_of_seeds_where_they_have_others() -> None:
    runs = [skewed(seed=0, own=0.5), skewed(seed=1, own=0.7), skewed(FEDOMG, seed=0, own=0.9)]
    table = sites_grid(runs)
    assert "over seeds 0, 1 (their number in brackets): " in table.caption
    assert [group[0][-1].text for group in table.groups] == ["60.00 ± 14.14 (2)", "90.00 (1)"]
    assert "percent, mean ± standard deviation over 2 seeds (0, 1): " in sites_grid(runs[:2]).caption
    assert "percent, one seed (0): " in sites_grid(runs[:1]).caption
    assert sites_grid(runs[:2]).groups[0][0][-1].text == "60.00 ± 14.14"


def test_cells_name_their_number_of_seeds_where_a_run_lacks_one_of_the_scores() -> None:
    runs = [skewed(seed=0, own=0.5), skewed(seed=1, own=0.7)]
    del runs[1].record.evaluations[-1].sites[SOURCES[0]]  # it did not answer
    table = sites_grid(runs)
    assert "over seeds 0, 1 (their number in brackets): " in table.caption
    assert [row[-1].text for row in table.groups[0]] == ["50.00 (1)", "25.00 ± 0.00 (2)"]


def test_what_departs_from_the_papers_protocol_is_said_of_each_of_its_columns() -> None:
    def notes_of(*runs: Run) -> list[str]:
        return [note for note in sites_grid(list(runs), against="fedomg").notes if "not comparable" in note]

    assert notes_of(as_published("mnist", 0.1)) == []
    assert notes_of(as_published("mnist", 0.3, rounds=40)) == []  # no column of the paper
    short = notes_of(as_published("mnist", 0.1), as_published("cifar10", 0.5, rounds=40, momentum=0.9))
    assert short == ["CIFAR-10 alpha=0.5 is not comparable with the paper: rounds 40, momentum 0.9."]
    (few,) = notes_of(skewed(dataset="cifar10"))
    assert "5 sites, resnet18, 224 px, imagenet, " in few
    assert " of 50,000 training images, 10 of 10,000 test images, rounds 100, " in few


def test_a_column_with_runs_that_lacked_updates_is_not_comparable_with_the_paper() -> None:
    made = as_published("mnist", 0.1)
    made.record.rounds = with_rounds(made.record.sources, made.record.sources[1:]).rounds
    (note,) = (note for note in sites_grid([made], "fedomg").notes if "not comparable" in note)
    assert note.endswith("with the paper: rounds without some sites.")
    made.record.rounds = with_rounds(made.record.sources, made.record.sources).rounds
    made.record.rounds[1].reason = "ArithmeticError: flat."
    (note,) = (note for note in sites_grid([made], "fedomg").notes if "not comparable" in note)
    assert note.endswith("with the paper: 1 round that left the model unchanged.")


def test_a_source_has_the_images_for_training_and_validation_whatever_its_counts_by_class() -> None:
    made = skewed()
    for site in SOURCES:
        made.record.census[site] = census_reply("train", num_train=90, num_validation=10, class_counts=(100, 100))
    assert "500 of 60,000 training images" in sites_grid([made]).caption


def pairs_of(*runs: Run) -> list[list[str]]:
    """Return the rows of the comparison with FedAvg."""
    below = sites_grid(list(runs), digits=1).below
    assert below is not None
    return [[cell.text for cell in row] for row in below.rows]


def test_methods_are_paired_with_fedavg_in_the_runs_of_one_seed_data_set_skew_and_participation() -> None:
    runs = [
        *(skewed(FEDAVG, seed, own=0.5) for seed in (0, 1)),
        *(skewed(STEPPING, seed, own=own) for seed, own in ((0, 0.6), (1, 0.9), (2, 0.1))),
        skewed(own=0.2, dataset="cifar10"),
        skewed(STEPPING, own=0.1, dataset="cifar10"),
        skewed(STEPPING, own=0.9, dataset="cifar10", drawn=2),
    ]
    # Differences on the sites' own images: 0.1, 0.4, -0.1; mean 0.4 / 3, deviations -1/30, 8/30, -7/30.
    error = 100 * (0.19 / 3 / 3) ** 0.5
    found = pairs_of(*runs)
    assert [row[:3] for row in found] == [
        ["FedAvg", "sites' own test images", "1.67"],
        ["FedOMG", "sites' own test images", "1.33"],
        ["FedAvg", "published test part", "1.50"],
        ["FedOMG", "published test part", "1.50"],
    ]
    # The means of the two data sets are 0.25 and -0.1: the error is half their distance.
    assert found[1][3:] == ["+13.3", f"{error:.1f}", "17.5", "3"]
    assert found[3][3:] == ["+0.0", "0.0", "0.0", "3"]
    caption = sites_grid(runs).below
    assert caption is not None
    assert "with the same seed, data set, skew and participation, " in caption.caption
    assert sites_grid(runs, paired=False).below is None


def test_skews_of_one_data_set_are_of_the_same_images() -> None:
    runs = [
        skewed(method, seed, own=own + 0.1 * seed, alpha=alpha)
        for method, own in ((FEDAVG, 0.3), (STEPPING, 0.5))
        for alpha in (0.1, 0.5)
        for seed in (0, 1)
    ]
    below = sites_grid(runs).below
    assert below is not None
    assert "SE over data sets" not in below.header
    more = [*runs, skewed(FEDAVG, dataset="cifar10"), skewed(STEPPING, dataset="cifar10")]
    below = sites_grid(more).below
    assert below is not None
    assert "SE over data sets" in below.header


def test_one_pair_is_not_compared_and_neither_are_sites_own_models() -> None:
    runs = [skewed(FEDAVG), skewed(STEPPING, own=0.9)]
    assert sites_grid(runs).below is None
    assert "paired" not in render_sites_csv(runs)
    assert {row[1] for row in pairs_of(*runs, skewed(FEDAVG, 1), skewed(STEPPING, 1))} == {
        "sites' own test images",
        "published test part",
    }


def test_below_the_stand_in_the_comparison_is_marked_too() -> None:
    runs = [skewed(made, seed, stand_in=True, data="STAND-IN") for made in (FEDAVG, STEPPING) for seed in (0, 1)]
    below = sites_grid(runs).below
    assert below is not None
    assert below.caption.startswith("Accuracy, percent, STAND-IN, paired with FedAvg: ")


def test_csv_has_ranks_pairs_and_the_notes_below_the_table() -> None:
    runs = [skewed(made, seed, own) for made, own in ((FEDAVG, 0.5), (STEPPING, 0.75)) for seed in (0, 1)]
    runs[0].record.left_out["train-2of5"] = "takes no further part: it left."
    found = lines_of(runs, "fedomg")
    assert [line["note"] for line in found if line["kind"] == "note"] == list(sites_grid(runs, "fedomg").notes)
    (paired,) = (
        line for line in found if line["kind"] == "paired_difference" and line["on"] == "sites' own test images"
    )
    assert (paired["method"], paired["pairs"], paired["data"]) == ("fedomg", "2", "mnist")
    assert paired["values"] == "mnist/alpha=0.1/1/0:0.25;mnist/alpha=0.1/1/1:0.25"
    assert {line["mean"] for line in found if line["kind"] == "mean_rank" and line["on"] == paired["on"]} == {
        "1.0",
        "2.0",
    }
    assert not [line for line in csv.DictReader(render_sites_csv(runs, paired=False).splitlines()) if line["pairs"]]


def test_csv_says_beside_a_printed_number_why_ours_are_not_comparable() -> None:
    runs = [skewed(), as_published("cifar10", 0.5)]
    notes = {line["dataset"]: line["note"] for line in lines_of(runs, "fedomg") if line["kind"] == "printed"}
    assert notes["mnist"].startswith("not comparable: 5 sites, resnet18, 224 px, imagenet, ")
    assert notes["cifar10"] == ""


def test_a_method_with_the_defaults_of_each_data_set_has_one_row_and_a_note_on_what_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def on_mnist(method: Composition, dataset: str) -> MethodDefaults:
        found, differs = method_defaults(method, dataset), dataset == "mnist" and method.direction == "fedavg"
        return found._replace(server={**found.server, "weighting": "uniform"}) if differs else found

    monkeypatch.setattr("fdg_plugins.record.method_settings.method_defaults", on_mnist)
    uniform = FEDAVG.model_copy(update={"settings": {**FEDAVG.settings, "weighting": "uniform"}})
    runs = [skewed(uniform), skewed(FEDAVG, dataset="cifar10"), skewed(STEPPING), skewed(STEPPING, dataset="cifar10")]
    table = sites_grid(runs)
    assert [group[0][0].text for group in table.groups] == ["FedAvg", "FedOMG"]
    assert "FedAvg: weighting uniform in MNIST alpha=0.1, samples in CIFAR-10 alpha=0.1." in table.notes
    assert not [note for note in sites_grid(runs[2:]).notes if note.startswith("FedOMG")]


def test_a_row_names_the_settings_that_are_not_its_methods_defaults_in_all_its_columns() -> None:
    assert [group[0][0].text for group in sites_grid([skewed(FEDOMG)]).groups] == ["FedOMG (server_lr 0.05)"]
    runs = [skewed(STEPPING), skewed(FEDOMG, dataset="cifar10"), skewed(STEPPING, dataset="cifar10")]
    rows = [group[0] for group in sites_grid(runs).groups]
    assert [row[0].text for row in rows] == ["FedOMG (server_lr 0.05)", "FedOMG (server_lr 1.0)"]
    assert rows[0][3].text == "missing"
    as_integer = skewed(fedomg(server_lr=2), dataset="cifar10")
    assert len(sites_grid([skewed(fedomg(server_lr=2.0)), as_integer]).groups) == 1


def test_the_caption_has_the_seeds_of_the_numbers_and_none_of_a_run_without_any() -> None:
    runs = [skewed(seed=seed) for seed in (0, 1)]
    del runs[1].record.evaluations[:]
    table = sites_grid(runs)
    assert "percent, one seed (0): " in table.caption
    assert sum("and is missing there" in note for note in table.notes) == 2


def test_csv_beside_the_paper_has_its_number_too() -> None:
    (printed,) = (line for line in lines_of([skewed()], "fedomg") if line["kind"] == "printed")
    assert float(printed["mean"]) == pytest.approx(0.9377)
    assert (printed["paper"], printed["values"], printed["seeds"]) == ("fedomg", "", "5")
    assert (printed["rounds"], printed["sites"]) == ("800", "100"), "those of the paper, not ours"
    assert {printed[name] for name in ("initial_weights", "model", "image_size", "version")} == {""}


def test_thinned_data_networks_and_versions_of_all_columns_are_in_the_caption_and_in_csv() -> None:
    def made_of(run: Run, version: str, **protocol: Any) -> Run:
        changed = run.record.protocol.model_copy(update=protocol)
        update = {"protocol": changed, "versions": {"fdg-plugins": version}}
        return Run(run.folder, run.record.model_copy(update=update))

    thinned = {"max_samples_per_domain": 2000, "model": "cnn"}
    mnist, cifar = made_of(skewed(), "0.1.0", **thinned), skewed(dataset="cifar10")
    assert "; cnn (imagenet), at most 2000 images per domain, fdg-plugins 0.1.0." in sites_grid([mnist]).caption
    both = [mnist, made_of(cifar, "0.2.0", model="resnet18")]
    caption = sites_grid(both).caption
    for words in (
        "cnn (imagenet) in MNIST alpha=0.1",
        "resnet18 (imagenet) in CIFAR-10 alpha=0.1",
        "0.2.0 in CIFAR-10",
    ):
        assert words in caption
    images = "at most 2000 images per domain in MNIST alpha=0.1, 50 of 50,000 training images"
    assert f"{images} and 10 of 10,000 test images in CIFAR-10 alpha=0.1, fdg-plugins" in caption
    facts = {
        (line["max_samples_per_domain"], line["model"], line["version"])
        for line in lines_of(both)
        if line["kind"] == "ours"
    }
    assert facts == {("2000", "cnn", "0.1.0"), ("", "resnet18", "0.2.0")}


def test_skewed_sites_that_hold_out_a_domain_have_the_table_by_domains() -> None:
    def held_out(target: str) -> Run:
        return run(f"fedavg-{target}", FEDAVG, target, protocol={"partition": "dirichlet", "dirichlet_alpha": 0.5})

    runs = [held_out("photo"), held_out("sketch")]
    assert not is_of_sites(runs)
    assert {target for target, cell in build_table(runs).methods[0].results[0].cells.items()} >= {"photo", "sketch"}
    assert not is_of_sites([*runs, skewed()])


def test_beside_ours_stand_the_numbers_that_the_paper_prints_for_the_participation() -> None:
    grid = sites_grid([skewed(), skewed(drawn=2)], "fedomg", digits=2)
    everyone, some = grid.groups
    assert grid.header[3:] == tuple(column.title for column in PAPERS_COLUMNS)
    assert everyone[2][3].text == "93.77 ± 0.33"  # Table 5, participation 1; Table 1 has it too
    assert [row[1].text for row in some] == ["0.4"] * 3
    assert some[2][3].text != everyone[2][3].text
    assert any("rounds 800, sites 100, mean of 5 runs" in note for note in grid.notes)
    assert len(printed_cells("fedomg", 0.6)) == len(PAPERS_COLUMNS)
    assert printed_cells("fedomg", 0.2) == {}


def test_own_models_have_a_row_of_the_correct_images_of_all_sites_once_every_source_has_one() -> None:
    own, other = skewed(), skewed(FEDOMG)
    evaluation = own.record.evaluations[-1]
    correct = dict(zip(SOURCES, (1.0, 2.0, 3.0, 4.0, 5.0), strict=True))
    counts = dict(zip(SOURCES, (2, 2, 4, 4, 8), strict=True))
    scores = {
        site: evaluation.sites[site].model_copy(
            update={"sums": {"accuracy": ScoreSum(sum=correct[site], count=counts[site])}}
        )
        for site in SOURCES
    }
    evaluation.personal = PersonalScores(sites=scores, domains={}, source_mean=None, source_worst=None, pooled=0.75)
    first, second = sites_grid([own, other], digits=1).groups
    assert [row[2].text for row in first] == [
        "sites' own test images",
        "published test part",
        "sites' own test images, by their own models",
    ]
    assert first[2][3].text == "75.0"
    assert len(second) == 2
    del scores[SOURCES[0]]
    evaluation.personal = evaluation.personal.model_copy(update={"sites": scores})
    without = sites_grid([own])
    assert len(without.groups[0]) == 2
    (note,) = (note for note in without.notes if "own models" in note)
    assert note.endswith("by their own models, and is missing there: 1 site had none.")


def test_the_papers_rows_are_named_without_settings_of_ours() -> None:
    runs = [skewed(FEDOMG)]
    ours, _, theirs = sites_grid(runs, "fedomg").groups[0]
    assert (ours[0].text, theirs[0].text) == ("FedOMG (server_lr 0.05)", "FedOMG")
    labels = {line["kind"]: line["label"] for line in lines_of(runs, "fedomg")}
    assert (labels["ours"], labels["printed"]) == ("FedOMG (server_lr 0.05)", "FedOMG")


def test_the_best_of_a_column_is_bold_on_each_kind_of_images_under_each_participation() -> None:
    runs = [skewed(FEDAVG, own=0.5), skewed(STEPPING, own=0.6), skewed(FEDAVG, own=0.9, drawn=2)]
    found = [[cell.best for cell in row[3:]] for group in sites_grid(runs, "fedomg").groups for row in group]
    assert [row[0] for row in found] == [
        *(False, True, False),  # FedAvg: on the sites' own images, on the published test part, as printed
        *(True, True, False),  # FedOMG
        *(False, False, False),  # alone under its participation
    ]
    assert not any(any(row[1:]) for row in found)


def test_another_split_has_a_column_of_its_own() -> None:
    grid = sites_grid([skewed(alpha=1.0)])
    assert grid.header[-1] == "MNIST alpha=1"


def test_runs_that_differ_in_more_and_the_stand_in_beside_the_paper_are_refused() -> None:
    first = skewed()
    changed = first.record.model_copy(deep=True)
    changed.protocol = changed.protocol.model_copy(update={"batch_size": 7})
    with pytest.raises(SettingsError, match="cannot stand in one table: batch_size of the protocol is"):
        sites_grid([first, Run(first.folder / "other", changed)])
    with pytest.raises(SettingsError, match="the papers real data"):
        sites_grid([skewed(stand_in=True)], "paper")
    with pytest.raises(SettingsError, match="paper 'fediir' prints no table of label-skewed sites, expected fedomg"):
        sites_grid([first], "fediir")


def test_a_record_at_odds_with_itself_has_no_known_number_of_images_and_stops_no_report() -> None:
    assert known_images("rotatedmnist", "angle_0") != []
    assert known_images("rotatedmnist", "angle_7") == []
    run = skewed(own=0.5)
    run.record.held_out = ("away",)
    assert "0 of 10,000 test images" in images_in_words(run)
