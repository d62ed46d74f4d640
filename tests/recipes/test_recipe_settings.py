# SPDX-License-Identifier: Apache-2.0
"""Settings of a recipe: each reaches the job that is written, and a wrong one is refused at once, by its field."""

from pathlib import Path
from typing import Any

import pytest

from fdg_plugins.aggregators import make_aggregator
from fdg_plugins.errors import SettingsError
from fdg_plugins.plans.plans import check_settings, make_plans
from fdg_plugins.plugins.methods import METHODS as METHOD_RECORDS
from fdg_plugins.recipes import METHODS, FDGRecipe, make_recipe, settings_of
from tests.recipes.exported_jobs import arguments, filters

SITE_FILE = "app_site/config/config_fed_client.json"
SERVER_FILE = "app_server/config/config_fed_server.json"

# A value for every kind of setting, other than each default, and as a command line would say it.
OTHER_VALUES: dict[str, tuple[Any, str]] = {
    "target": ("sketch", "sketch"),
    "rounds": (7, "7"),
    "learning_rate": (0.5, "0.5"),
    "max_samples_per_domain": (50, "50"),
    "channels_last": (True, "true"),
    "patience": (2.5, "2.5"),
    "kappa": (0.125, "0.125"),
    "rescale": (True, "true"),
    "step_size": (0.3, "0.3"),
    "normalizer": ("max_abs", "max_abs"),
    "strength": (0.2, "0.2"),
    "probe": ("previous_round", "previous_round"),
    "frozen_batchnorm": (True, "true"),
    **dict.fromkeys(("radius", "beta", "probability", "l2_strength", "amplitude_momentum", "band"), (0.25, "0.25")),
    "normalize": (False, "false"),
}


def written(made: dict[str, Any]) -> dict[str, Any]:
    """Return all settings of a job's workflow by their flat names."""
    aggregator, protocol = dict(made["aggregator"]), dict(made["protocol"])
    weighting = aggregator.get("weighting")
    flat = dict(weighting) if isinstance(weighting, dict) else {}
    return {**protocol.get("objective", {}), **flat, **aggregator, **protocol}


@pytest.mark.parametrize("method", [*METHOD_RECORDS.own(), "fedomg+ga+dim"])
def test_every_setting_reaches_the_job_as_what_it_is_also_from_text(method: str, tmp_path: Path) -> None:
    names = [name for name in OTHER_VALUES if name in settings_of(method)]
    expected = {name: OTHER_VALUES[name][0] for name in names}
    texts = {name: OTHER_VALUES[name][1] for name in names}
    for given, folder in ((expected, "values"), (texts, "texts")):
        made = written(arguments(make_recipe(method, "pacs", **given), tmp_path / folder))
        assert {name: made[name] for name in names} == expected
        assert {name: type(made[name]) for name in names} == {name: type(value) for name, value in expected.items()}


@pytest.mark.parametrize("method", METHODS)
def test_what_is_written_is_what_a_server_accepts(method: str, tmp_path: Path) -> None:
    made = arguments(make_recipe(method, "rotatedmnist"), tmp_path)
    aggregator = make_aggregator(made["aggregator"])
    plans = make_plans(made["protocol"], made["stand_in_protocol"], {}, list(aggregator.settings()))
    check_settings(aggregator, plans)


def test_what_is_given_holds_on_the_stand_in_too(tmp_path: Path) -> None:
    made = arguments(FDGRecipe("fedomg", rounds=20, server_lr=0.5), tmp_path / "given")
    assert {"rounds", "server_lr"}.isdisjoint(made["stand_in_protocol"])
    plans = make_plans(made["protocol"], made["stand_in_protocol"], {}, ["server_lr"])
    assert (plans.stand_in.protocol.rounds, plans.stand_in.aggregator) == (20, {})
    assert plans.stand_in.protocol.image_size == 32, "what is not given is the stand-in's own"


@pytest.mark.parametrize(
    ("base", "method", "parts"),
    [
        ("fedomg", "fedomg+ga", {"weighting": "ga"}),
        ("fedomg", "fedomg+ga+iir", {"weighting": "ga", "objective": {"name": "iir"}}),
        ("fedavg", "fedga", {"weighting": {"name": "ga"}}),
        ("fedavg", "fediir", {"objective": "iir"}),
        ("fedga", "fediir+ga", {"objective": "iir"}),
    ],
)
def test_a_weighting_or_an_objective_becomes_part_of_the_method(
    base: str, method: str, parts: dict[str, Any], tmp_path: Path
) -> None:
    made = FDGRecipe(base, **parts)
    assert made.method == method
    assert arguments(made, tmp_path / "parts") == arguments(make_recipe(method), tmp_path / "name")


def test_an_objective_given_with_settings_keeps_the_other_defaults_of_the_data_set(tmp_path: Path) -> None:
    recipe = FDGRecipe("fedomg", "rotatedmnist", objective={"name": "iir", "ema": 0.5})
    found = arguments(recipe, tmp_path)["protocol"]["objective"]
    assert found == {"name": "iir", "strength": 0.01, "ema": 0.5, "probe": "extra_task"}


def test_the_objectives_target_is_not_the_held_out_domain(tmp_path: Path) -> None:
    recipe = FDGRecipe("feddim", target="photo", objective={"name": "dim", "target": "feature"})
    protocol = arguments(recipe, tmp_path)["protocol"]
    assert (protocol["target"], protocol["objective"]["target"]) == ("photo", "feature")


def test_fediirs_strength_under_fedomg_is_the_one_of_fedomgs_paper(tmp_path: Path) -> None:
    for method, strength in {
        "fediir": 0.001,
        "fedga+iir": 0.001,
        "fedomg+iir": 0.0001,
        "fedomg+ga+iir": 0.0001,
    }.items():
        assert arguments(make_recipe(method), tmp_path)["protocol"]["objective"]["strength"] == strength


def test_a_probe_that_comes_with_the_round_before_needs_no_task_of_its_own(tmp_path: Path) -> None:
    for probe, tasks in (("extra_task", {"probe", "train"}), ("previous_round", {"train"})):
        FDGRecipe("fediir", probe=probe).export(str(tmp_path))
        assert {task for _, task in filters(tmp_path / "pacs_fediir", SITE_FILE)} == tasks


def test_the_gap_is_of_the_metric_asked_for(tmp_path: Path) -> None:
    for metric, args in (("loss", {}), ("accuracy", {"metric": "accuracy"})):
        make_recipe("fedomg+ga", metric=metric).export(str(tmp_path))
        chain = filters(tmp_path / "pacs_fedomg_ga", SITE_FILE)["task_result_filters", "train"]
        assert chain == [("GapReportFilter", args)]
    with pytest.raises(SettingsError):
        make_recipe("fedomg+ga", metric="dice")


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"kapa": 0.5}, "'kapa'; did you mean 'kappa'"),
        ({"step_size": 0.1}, "'step_size'"),
        ({"metric": "loss"}, "'metric'"),
        ({"data_root": "/data"}, "'data_root'"),
        ({"dataset": "packs"}, "'packs'"),
        ({"target": "angle_0"}, "'angle_0'"),
        ({"rounds": 0}, r"rounds \(FDG_ROUNDS\) is 0"),
        ({"learning_rate": float("nan")}, "learning_rate"),
        ({"model": "vgg"}, "'vgg'"),
        ({"dataset": "rotatedmnist", "model": "resnet18"}, "3 channels"),
        ({"kappa": "much"}, "kappa is 'much'"),
        ({"weighting": "foo"}, "weighting is 'foo'"),
        ({"weighting": {"step_size": 0.1}}, "weighting"),
        ({"weighting": {"name": "ga", "kappa": 0.9}}, "'kappa'"),
        ({"objective": "foo"}, "objective is 'foo'"),
        ({"objective": {"name": "dim", "x": 1}}, "'x'"),
        ({"name": "../up"}, "name is '../up'"),
        ({"sites": []}, "sites"),
        ({"sites": "photo"}, "sites"),
        ({"sites": ["a", "a"]}, "sites"),
        ({"sites": ["a", "server"]}, "sites"),
        ({"sites": ["a", "b/c"]}, "sites"),
    ],
)
def test_a_wrong_name_or_value_is_refused(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(SettingsError, match=named) as refused:
        FDGRecipe("fedomg", **settings)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("base", "settings"),
    [
        ("fedga", {"weighting": "uniform"}),
        ("fedga", {"metric": "f1"}),
        ("feddim", {"objective": "iir"}),
        ("feddim", {"objective": "erm"}),
        ("fediir", {"kappa": 0.5}),
    ],
)
def test_what_does_not_go_with_the_method_is_refused(base: str, settings: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=min(settings)):
        FDGRecipe(base, **settings)


@pytest.mark.parametrize("settings", [{"weighting": "ga"}, {"objective": "dim"}])
def test_a_recipe_by_name_is_of_that_method_and_no_other(settings: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=r"method is 'fedomg'"):
        make_recipe("fedomg", "pacs", **settings)


def test_the_environment_of_who_writes_a_job_leaves_no_trace_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = arguments(FDGRecipe("fedomg"), tmp_path / "before")
    monkeypatch.setenv("FDG_ROUNDS", "3")
    monkeypatch.setenv("FDG_KAPPA", "0.1")
    assert arguments(FDGRecipe("fedomg"), tmp_path / "after") == before


def test_a_tracker_is_a_name_in_the_job_and_adds_no_class(tmp_path: Path) -> None:
    plain = arguments(FDGRecipe("fedomg"), tmp_path / "plain")
    assert arguments(FDGRecipe("fedomg", tracking="mlflow"), tmp_path / "tracked") == {**plain, "tracking": "mlflow"}
    with pytest.raises(SettingsError):
        FDGRecipe("fedomg", tracking="http://elsewhere:5000")
