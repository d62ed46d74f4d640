# SPDX-License-Identifier: Apache-2.0
"""Settings of a recipe: each reaches the job that is written, and a wrong one is refused at once, in one sentence."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from fdg_plugins.aggregators import make_aggregator
from fdg_plugins.data import DATASETS, PACS
from fdg_plugins.errors import SettingsError
from fdg_plugins.plans.plans import check_settings, make_plans
from fdg_plugins.plugins.methods import METHODS as METHOD_RECORDS
from fdg_plugins.recipes import (
    METHODS,
    FDGRecipe,
    make_recipe,
    settings_of,
)
from fdg_plugins.tasks import TASKS, ScoreKind
from fdg_plugins.tasks.classification import Classification
from tests.recipes.exported_jobs import arguments, filters

SITE_FILE = "app_site/config/config_fed_client.json"
SERVER_FILE = "app_server/config/config_fed_server.json"

# A value for every setting, other than each default, and as a command line would say it.
OTHER_VALUES: dict[str, tuple[Any, str]] = {
    "target": ("sketch", "sketch"),
    "model": ("resnet50", "resnet50"),
    "rounds": (7, "7"),
    "learning_rate": (0.5, "0.5"),
    "max_samples_per_domain": (50, "50"),
    "channels_last": (True, "true"),
    "patience": (2.5, "2.5"),
    "kappa": (0.125, "0.125"),
    "server_lr": (0.75, "0.75"),
    "rescale": (True, "true"),
    "damping": ("released", "released"),
    "weighting": ("samples", "samples"),
    "step_size": (0.3, "0.3"),
    "normalizer": ("max_abs", "max_abs"),
    "strength": (0.2, "0.2"),
    "insight_momentum": (0.9, "0.9"),
    "ema": (0.1, "0.1"),
    "probe": ("previous_round", "previous_round"),
    "variant": ("released", "released"),
    "frozen_batchnorm": (True, "true"),
    **dict.fromkeys(("radius", "beta", "probability", "feature_fraction", "batch_fraction"), (0.25, "0.25")),
    **dict.fromkeys(("l2_strength", "cmi_strength", "amplitude_momentum", "band"), (0.25, "0.25")),
    "norm": ("squared", "squared"),
    "normalize": (False, "false"),
}
# The names of other variants.
OTHER_VARIANT = {"rsc": ("feature", "feature")}


def written(made: dict[str, Any]) -> dict[str, Any]:
    """Return all settings of a job's workflow by their flat names."""
    aggregator, protocol = dict(made["aggregator"]), dict(made["protocol"])
    weighting = aggregator.get("weighting")
    flat = dict(weighting) if isinstance(weighting, dict) else {}
    return {**protocol.get("objective", {}), **flat, **aggregator, **protocol}


def test_every_setting_reaches_the_job_as_what_it_is_also_from_text(tmp_path: Path) -> None:
    for method in (*METHOD_RECORDS.own(), "fedomg+ga+dim"):
        names = [name for name in OTHER_VALUES if name in settings_of(method)]
        values = {**OTHER_VALUES, "variant": OTHER_VARIANT.get(method.partition("+")[0], OTHER_VALUES["variant"])}
        expected = {name: values[name][0] for name in names}
        texts = {name: values[name][1] for name in names}
        if method == "fedavg":  # whose default the other value is
            expected["weighting"] = texts["weighting"] = "uniform"
        for given, folder in ((expected, "values"), (texts, "texts")):
            made = written(arguments(make_recipe(method, "pacs", **given), tmp_path / folder))
            assert {name: made[name] for name in names} == expected
            assert {name: type(made[name]) for name in names} == {name: type(value) for name, value in expected.items()}


def test_what_is_written_is_what_a_server_accepts(tmp_path: Path) -> None:
    for method in METHODS:
        for dataset in ["pacs", "rotatedmnist"]:
            made = arguments(make_recipe(method, dataset), tmp_path)
            aggregator = make_aggregator(made["aggregator"])
            check_settings(
                aggregator, make_plans(made["protocol"], made["stand_in_protocol"], {}, aggregator.setting_names())
            )


def test_what_is_given_holds_on_the_stand_in_too(tmp_path: Path) -> None:
    made = arguments(FDGRecipe("fedomg", rounds=20, server_lr=0.5), tmp_path / "given")
    assert {"rounds", "server_lr"}.isdisjoint(made["stand_in_protocol"])
    aggregator = make_aggregator(made["aggregator"])
    plans = make_plans(made["protocol"], made["stand_in_protocol"], {}, aggregator.setting_names())
    assert plans.stand_in.protocol.rounds == 20
    aggregator.configure(plans.stand_in.aggregator)
    assert aggregator.server_lr == 0.5
    assert plans.stand_in.protocol.image_size == 32, "what is not given is the stand-in's own"


def test_a_weighting_or_an_objective_becomes_part_of_the_method(tmp_path: Path) -> None:
    cases: list[tuple[str, str, dict[str, Any]]] = [
        ("fedomg", "fedomg+ga", {"weighting": "ga"}),
        ("fedomg", "fedomg+dim", {"objective": "dim"}),
        ("fedomg", "fedomg+ga+iir", {"weighting": "ga", "objective": {"name": "iir"}}),
        ("fedavg", "fedga", {"weighting": {"name": "ga"}}),
        ("fedavg", "fediir", {"objective": "iir"}),
        ("feddim", "feddim+ga", {"weighting": "ga"}),
        ("fedga", "fediir+ga", {"objective": "iir"}),
    ]
    for base, method, parts in cases:
        made = FDGRecipe(base, **parts)
        assert made.method == method
        assert arguments(made, tmp_path / "parts") == arguments(make_recipe(method), tmp_path / "name")


def test_an_objective_given_with_settings_keeps_the_other_defaults_of_the_data_set(tmp_path: Path) -> None:
    recipe = FDGRecipe("fedomg", "rotatedmnist", objective={"name": "iir", "ema": 0.5})
    assert arguments(recipe, tmp_path)["protocol"]["objective"] == {
        "name": "iir",
        "strength": 0.01,
        "ema": 0.5,
        "probe": "extra_task",
    }


def test_the_objectives_target_is_not_the_held_out_domain(tmp_path: Path) -> None:
    protocol = arguments(FDGRecipe("feddim", target="photo", objective={"name": "dim", "target": "feature"}), tmp_path)[
        "protocol"
    ]
    assert (protocol["target"], protocol["objective"]["target"]) == ("photo", "feature")


def test_fediirs_strength_under_fedomg_is_the_one_of_fedomgs_paper(tmp_path: Path) -> None:
    strengths = {
        method: arguments(make_recipe(method), tmp_path)["protocol"]["objective"]["strength"]
        for method in ("fediir", "fedga+iir", "fedomg+iir", "fedomg+ga+iir")
    }
    assert strengths == {"fediir": 0.001, "fedga+iir": 0.001, "fedomg+iir": 0.0001, "fedomg+ga+iir": 0.0001}


def test_a_probe_that_comes_with_the_round_before_needs_no_task_of_its_own(tmp_path: Path) -> None:
    for probe, tasks in (("extra_task", {"probe", "train"}), ("previous_round", {"train"})):
        FDGRecipe("fediir", probe=probe).export(str(tmp_path))
        assert {task for _, task in filters(tmp_path / "pacs_fediir", SITE_FILE)} == tasks


def test_the_gap_is_of_the_metric_asked_for(tmp_path: Path) -> None:
    for metric, args in (("loss", {}), ("accuracy", {"metric": "accuracy"})):
        make_recipe("fedomg+ga", metric=metric).export(str(tmp_path))
        chain = filters(tmp_path / "pacs_fedomg_ga", SITE_FILE)["task_result_filters", "train"]
        assert chain == [("GapReportFilter", args)]


ERROR_RATE = ScoreKind("error_rate", "Errors", highest=2.0, higher_is_better=False)


@dataclass(frozen=True)
class Errors(Classification):
    """A plug-in's classification with a score that counts errors."""

    name: str = "errors"
    score: ScoreKind = ERROR_RATE


def test_the_gap_may_be_of_a_plug_ins_score_and_of_no_other_tasks(tmp_path: Path) -> None:
    TASKS.add(Errors())
    DATASETS.add(replace(PACS, name="judged", task="errors", protocol={"task": "errors"}))
    try:
        make_recipe("fedga", "judged", metric="error_rate").export(str(tmp_path))
        with pytest.raises(SettingsError, match="metric is 'accuracy', expected one of error_rate, loss"):
            make_recipe("fedga", "judged", metric="accuracy")
    finally:
        DATASETS.remove("judged")
        TASKS.remove("errors")
    sites, server = (filters(tmp_path / "judged_fedga", file) for file in (SITE_FILE, SERVER_FILE))
    told = {"metric": "error_rate", "higher_is_better": False}
    assert sites["task_result_filters", "train"] == [("GapReportFilter", told)]
    assert server["task_result_filters", "train"] == [("GapCheckFilter", {"largest": 2.0})]


def test_a_wrong_name_or_value_is_refused_in_one_sentence() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"kapa": 0.5}, "recipe fedomg: there is no setting 'kapa'; did you mean 'kappa'"),
        ({"method": "fedavg"}, "recipe fedomg: there is no setting 'method'"),
        ({"step_size": 0.1}, "there is no setting 'step_size'"),
        ({"strength": 0.1}, "there is no setting 'strength'"),
        ({"metric": "loss"}, "there is no setting 'metric'"),
        ({"data_root": "/data"}, "data_root is a setting of a machine .* expected in its environment as FDG_DATA_ROOT"),
        ({"dataset": "packs"}, "data set 'packs' is unknown"),
        ({"target": "angle_0"}, "is 'angle_0', expected a domain of pacs"),
        ({"rounds": 0}, r"setting rounds \(FDG_ROUNDS\) is 0"),
        ({"rounds": "many"}, r"setting rounds \(FDG_ROUNDS\) is 'many'"),
        ({"learning_rate": float("nan")}, "learning_rate"),
        ({"model": "vgg"}, "model 'vgg' is unknown"),
        ({"dataset": "rotatedmnist", "model": "resnet18"}, "which takes 3 channels"),
        ({"kappa": -1}, "kappa is -1, expected"),
        ({"kappa": "much"}, "kappa is 'much', expected a number"),
        ({"weighting": "foo"}, "weighting is 'foo', expected one of arfl, as, ga, samples, uniform"),
        ({"weighting": 3}, "weighting is 3, expected a name or a mapping with a name"),
        (
            {"weighting": {"step_size": 0.1}},
            "weighting is a mapping of 1 keys, expected a name or a mapping with a name",
        ),
        (
            {"weighting": {"name": "ga", "kappa": 0.9}},
            "weighting 'ga' has no setting 'kappa'; it has step_size, normalizer",
        ),
        ({"weighting": {"name": "uniform", "x": 1}}, "weighting 'uniform' has no setting 'x'; it has none"),
        ({"weighting": {"name": "ga", "step_size": "x"}}, "step_size is 'x', expected"),
        ({"objective": "foo"}, "objective is 'foo', expected one of adg, am, as, babu, dim, erm, harmo, iir, "),
        ({"objective": {"name": "dim", "x": 1}}, "objective 'dim' has no setting 'x'"),
        ({"objective": {"name": "dim", "strength": -1}}, "strength is -1, expected"),
        ({"name": "../up"}, "name is '../up', expected letters"),
        ({"name": ""}, "name is '', expected letters"),
        ({"sites": []}, r"sites is \[\], expected names of sites"),
        ({"sites": "photo"}, "sites is 'photo', expected a list of names"),
        ({"sites": ["a", "a"]}, "expected names of sites, each once"),
        ({"sites": ["a", "server"]}, "expected names of sites"),
        ({"sites": ["a", "b/c"]}, "sites has the name 'b/c', which FLARE does not take"),
        ({"sites": [1, 2]}, r"sites is \[1, 2\], expected a list of names"),
    ]
    for settings, message in cases:
        with pytest.raises(SettingsError, match=message) as refused:
            FDGRecipe("fedomg", **settings)
        assert "\n" not in str(refused.value)


def test_what_does_not_go_with_the_method_is_refused() -> None:
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("fedga", {"weighting": "uniform"}, "weighting is 'uniform', but that of method 'fedga' is 'ga'"),
        ("fedga", {"metric": "f1"}, "metric is 'f1', expected one of accuracy, loss"),
        ("feddim", {"objective": "iir"}, "objective is 'iir', but that of method 'feddim' is 'dim'"),
        ("feddim", {"objective": "erm"}, "objective is 'erm', but that of method 'feddim' is 'dim'"),
        ("feddim", {"insight_momentum": 2}, "insight_momentum is 2, expected"),
        ("fediir", {"probe": "never"}, "probe is 'never', expected 'extra_task' or 'previous_round'"),
        ("fediir", {"kappa": 0.5}, "recipe fediir: there is no setting 'kappa'"),
    ]
    for base, settings, message in cases:
        with pytest.raises(SettingsError, match=message):
            FDGRecipe(base, **settings)


@pytest.mark.parametrize("settings", [{"weighting": "ga"}, {"objective": "dim"}])
def test_a_recipe_by_name_is_of_that_method_and_no_other(settings: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=r"method is 'fedomg', but .* make it 'fedomg\+"):
        make_recipe("fedomg", "pacs", **settings)


def test_the_environment_of_who_writes_a_job_leaves_no_trace_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = arguments(FDGRecipe("fedomg"), tmp_path / "before")
    monkeypatch.setenv("FDG_ROUNDS", "3")
    monkeypatch.setenv("FDG_KAPPA", "0.1")
    assert arguments(FDGRecipe("fedomg"), tmp_path / "after") == before
