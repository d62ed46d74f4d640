# SPDX-License-Identifier: Apache-2.0
"""Runs of one figure: who stands together, what the groups are called, what the caption says."""

import math

import pytest

from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.analysis.figures.groups import caption_of, checked, group_runs, over_seeds
from fdg_plugins.lab.analysis.figures.picture import Line
from fdg_plugins.lab.analysis.figures.style import numbered_look
from fdg_plugins.record.run_record import InitialWeights, Method
from tests.figures.figure_stubs import FEDAVG, FEDGA, fedomg, figure_run


def test_groups_are_methods_with_their_settings_sorted_as_in_tables_and_named_by_what_differs() -> None:
    runs = [figure_run(method) for method in (FEDGA, fedomg(0.9), fedomg(0.1), FEDAVG)]
    groups = group_runs([*runs, figure_run(FEDAVG, seed=1)])
    assert [group.label for group in groups] == ["FedAvg", "FedDG-GA", "FedOMG (kappa 0.1)", "FedOMG (kappa 0.9)"]
    assert [len(group.runs) for group in groups] == [2, 1, 1, 1]
    assert groups[2].slug == "fedomg-kappa-0.1"


def test_a_value_and_its_negative_give_files_of_other_names() -> None:
    groups = group_runs([figure_run(FEDGA), *(figure_run(fedomg(kappa)) for kappa in (-0.1, 0.1))])
    assert [group.slug for group in groups] == ["feddg-ga", "fedomg-kappa--0.1", "fedomg-kappa-0.1"]


def test_labels_that_differ_only_in_what_a_file_name_lacks_give_files_of_other_names() -> None:
    methods = [Method(aggregator="FedAvgAggregator", settings={"weighting": word}) for word in ("a b", "a-b", "A/B")]
    groups = group_runs([figure_run(method) for method in methods])
    assert len({group.label for group in groups}) == 3
    slugs = [f"fedavg-a-b{number}" for number in ("", "-2", "-3")]
    assert sorted(group.slug for group in groups) == slugs


def test_a_setting_on_an_axis_makes_no_group() -> None:
    (group,) = group_runs([figure_run(fedomg(kappa)) for kappa in (0.1, 0.5)], apart_from="kappa")
    assert (group.label, len(group.runs)) == ("FedOMG", 2)


def test_runs_that_differ_in_more_than_method_domain_and_seed_are_refused() -> None:
    with pytest.raises(SettingsError, match=r"local_epochs of the protocol is 5 in .* and 1 in"):
        checked([figure_run(), figure_run(seed=1, protocol={"local_epochs": 1})])


def test_a_copy_of_a_run_is_counted_once_and_named() -> None:
    runs, notes = checked([figure_run(name="one"), figure_run(name="other")])
    assert [run.folder.name for run in runs] == ["one"]
    assert notes == ("runs/other repeats runs/one and is counted once.",)


def test_a_mean_over_seeds_is_taken_where_there_are_values() -> None:
    values = {0: {0.0: 0.1, 1.0: 0.2}, 1: {0.0: 0.3, 1.0: math.nan, 2.0: 0.4}}
    points = over_seeds([figure_run(seed=seed) for seed in (1, 0)], lambda run: values[run.seed])
    assert list(points) == [0.0, 1.0, 2.0]
    assert points[0.0].mean == pytest.approx(0.2)
    assert points[0.0].std == pytest.approx(math.sqrt(0.02))  # deviations of 0.1 each, divisor 1
    assert [(point.count, point.std) for point in points.values()][1:] == [(1, None), (1, None)]
    assert points[1.0].by_seed == {0: 0.2}


def test_the_caption_says_how_the_numbers_were_made_and_marks_a_stand_in() -> None:
    assert caption_of([figure_run(seed=3)]) == (
        "PACS, ImageNet weights, resnet18, 224 px, 2 rounds, 3 source sites; one seed (3)"
    )
    scratch = InitialWeights(label="from scratch")
    run = figure_run(stand_in=True, data="STAND-IN for PACS", initial_weights=scratch)
    part = figure_run(seed=3, protocol={"max_samples_per_domain": 300, "trainable": "head"})
    assert "resnet18, head alone trained, 224 px, 2 rounds, at most 300 images per domain" in caption_of([part])
    assert "at most 300 images per domain in some runs, 3 source" in caption_of([figure_run(seed=3), part])
    assert caption_of([run]).startswith("[STAND-IN, from scratch] STAND-IN for PACS, resnet18,")
    other = figure_run(initial_weights=InitialWeights(label="pretrained file"))
    assert caption_of([other]).startswith("PACS, pretrained file, resnet18,")


def test_the_caption_says_what_a_round_of_a_centralised_reference_is() -> None:
    erm = Method(aggregator="CentralisedERM", settings={"optimizer": "adam", "steps": 300, "checkpoint_every": 25})
    reference = figure_run(erm, protocol={"rounds": 12})
    told = (
        "centralised references of 300 steps (600 passes over the images, the methods 10), of which 25 make a round "
        "here, 3 source sites"
    )
    assert f"2 rounds, {told}" in caption_of([figure_run(), reference])
    told = told.replace(" (600 passes over the images, the methods 10)", "")
    assert f"224 px, {told}" in caption_of([reference]), "its protocol counts its evaluations as rounds"


def test_the_caption_counts_the_seeds_of_the_lines() -> None:
    runs = [figure_run(seed=seed) for seed in (0, 1, 2)]
    points = [over_seeds(runs[:count], lambda run: {1.0: 0.5}) for count in (1, 3)]
    lines = [Line("line", numbered_look(0), found) for found in points]
    assert caption_of(runs, lines).endswith("; mean over 1 to 3 seeds (0, 1, 2), ± standard deviation")
    assert caption_of(runs, lines[:1]).endswith("; seeds 0, 1, 2")
