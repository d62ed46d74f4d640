# SPDX-License-Identifier: Apache-2.0
"""Settings of a recipe: each reaches the job that is written, and a wrong one is refused at once, by its field."""

from pathlib import Path
from typing import Any

import pytest

from fdg_plugins.aggregators import make_aggregator
from fdg_plugins.errors import SettingsError
from fdg_plugins.plans import make_plans
from fdg_plugins.plugins.methods import METHODS as METHOD_RECORDS
from fdg_plugins.recipes import FDGRecipe, make_recipe, settings_of
from tests.recipes.exported_jobs import SITE_FILE, arguments, filters

# A value for every kind of setting, other than each default.
OTHER_VALUES: dict[str, Any] = {
    "target": "sketch",
    "rounds": 7,
    "learning_rate": 0.5,
    "channels_last": True,
    "patience": 2.5,
    "kappa": 0.125,
    "rescale": True,
    "step_size": 0.3,
    "normalizer": "max_abs",
    "probe": "previous_round",
    **dict.fromkeys(("strength", "radius", "beta", "probability", "l2_strength", "band"), 0.25),
    "normalize": False,
}


def written(made: dict[str, Any]) -> dict[str, Any]:
    """Return all settings of a job's workflow by their flat names."""
    aggregator, protocol = dict(made["aggregator"]), dict(made["protocol"])
    weighting = aggregator.get("weighting")
    flat = dict(weighting) if isinstance(weighting, dict) else {}
    return {**protocol.get("objective", {}), **flat, **aggregator, **protocol}


@pytest.mark.parametrize("method", [*METHOD_RECORDS.own(), "fedomg+ga+dim"])
def test_every_setting_reaches_the_job_as_what_it_is_also_from_text(method: str, tmp_path: Path) -> None:
    expected = {name: value for name, value in OTHER_VALUES.items() if name in settings_of(method)}
    texts = {name: str(value) for name, value in expected.items()}
    for given, folder in ((expected, "values"), (texts, "texts")):
        made = written(arguments(make_recipe(method, "pacs", **given), tmp_path / folder))
        assert [(made[name], type(made[name])) for name in expected] == [(one, type(one)) for one in expected.values()]


def test_what_is_given_holds_on_the_stand_in_too(tmp_path: Path) -> None:
    made = arguments(FDGRecipe("fedomg", rounds=20, server_lr=0.5), tmp_path / "given")
    assert {"rounds", "server_lr"}.isdisjoint(made["stand_in_protocol"])
    plans = make_plans(made["protocol"], made["stand_in_protocol"], {}, make_aggregator(made["aggregator"]))
    assert (plans.stand_in.protocol.rounds, plans.stand_in.aggregator.settings()["server_lr"]) == (20, 0.5)
    assert plans.stand_in.protocol.image_size == 32, "what is not given is the stand-in's own"


@pytest.mark.parametrize(
    ("base", "method", "parts"),
    [
        ("fedomg", "fedomg+ga+iir", {"weighting": "ga", "objective": {"name": "iir"}}),
        ("fedavg", "fedga", {"weighting": {"name": "ga"}}),
        ("fedga", "fediir+ga", {"objective": "iir"}),
    ],
)
def test_parts_become_the_method(base: str, method: str, parts: dict[str, Any], tmp_path: Path) -> None:
    made = FDGRecipe(base, **parts)
    assert made.method == method
    assert arguments(made, tmp_path / "parts") == arguments(make_recipe(method), tmp_path / "name")


def test_an_objective_has_its_settings_beside_the_defaults_of_data_set_and_company(tmp_path: Path) -> None:
    recipe = FDGRecipe("fedomg", "rotatedmnist", objective={"name": "iir", "ema": 0.5})
    found = arguments(recipe, tmp_path)["protocol"]["objective"]
    assert found == {"name": "iir", "strength": 0.01, "ema": 0.5, "probe": "extra_task"}
    protocol = arguments(FDGRecipe("feddim", target="photo", objective={"name": "dim", "target": "feature"}), tmp_path)
    assert (protocol["protocol"]["target"], protocol["protocol"]["objective"]["target"]) == ("photo", "feature")
    # Under FedOMG, the strength is that of FedOMG's paper.
    for method, strength in {"fediir": 0.001, "fedga+iir": 0.001, "fedomg+ga+iir": 0.0001}.items():
        assert arguments(make_recipe(method), tmp_path)["protocol"]["objective"]["strength"] == strength


def test_a_probe_that_comes_with_the_round_before_needs_no_task_of_its_own(tmp_path: Path) -> None:
    for probe, tasks in (("extra_task", {"probe", "train"}), ("previous_round", {"train"})):
        FDGRecipe("fediir", probe=probe).export(str(tmp_path))
        assert {task for _, task in filters(tmp_path / "pacs_fediir", SITE_FILE)} == tasks


def test_the_gap_is_of_the_metric_asked_for(tmp_path: Path) -> None:
    make_recipe("fedomg+ga", metric="accuracy").export(str(tmp_path))
    chain = filters(tmp_path / "pacs_fedomg_ga", SITE_FILE)["task_result_filters", "train"]
    assert chain == [("GapReportFilter", {"metric": "accuracy"})]
    with pytest.raises(SettingsError):
        make_recipe("fedomg+ga", metric="dice")


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("fedomg", {"step_size": 0.1}),
        ("fedomg", {"metric": "loss"}),
        ("fedomg", {"target": "angle_0"}),
        ("fedomg", {"model": "resnet18", "dataset": "rotatedmnist"}),
        ("fedomg", {"image_size": 40, "dataset": "vessels"}),
        ("fedomg", {"partition": "dirichlet", "dataset": "vessels"}),
        ("fedomg", {"weighting": {"step_size": 0.1}}),
        ("fedomg", {"weighting": {"name": "ga", "kappa": 0.9}}),
        ("fedomg", {"name": "../up"}),
        *(("fedomg", {"sites": sites}) for sites in ([], "photo", ["a", "a"], ["a", "server"], ["a", "b/c"])),
        ("fedomg", {"tracking": "http://elsewhere:5000"}),
        ("fedga", {"weighting": "uniform"}),
        ("feddim", {"objective": "iir"}),
        # what contradicts itself
        *((f"fednova+{part}", {}) for part in ("prox", "pac")),
        ("mofedsam", {"momentum": 0.9}),
        ("arfl", {"gap_split": "validation"}),
        ("fedavg", {"sites_per_round": 1}),
        ("stablefdg", {"travels": "head", "model": "vit_b_16"}),
    ],
)
def test_a_wrong_or_contradictory_setting_is_refused_by_name(method: str, settings: dict[str, Any]) -> None:
    with pytest.raises(SettingsError) as refused:
        FDGRecipe(method, **settings)
    assert next(iter(settings), "does not go with") in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("settings", [{"weighting": "ga"}, {"objective": "dim"}])
def test_a_recipe_by_name_is_of_that_method_and_no_other(settings: dict[str, Any]) -> None:
    with pytest.raises(SettingsError) as refused:
        make_recipe("fedomg", "pacs", **settings)
    assert refused.value.field == "method"


def check(aggregator: Any, protocol: dict[str, Any], environment: dict[str, str] | None = None) -> None:
    make_plans(protocol, {}, environment or {}, make_aggregator(aggregator))


IN_FILES = {"enable_tensor_disk_offload": True}


@pytest.mark.parametrize(
    ("aggregator", "protocol", "environment"),
    [
        ("fedavg", {"objective": "mosam", "momentum": 0.0}, {"FDG_MOMENTUM": "0.5"}),
        ({"name": "fedavg", "weighting": "arfl"}, {}, {}),
        ("fedomg", {"gap_split": "train"}, {"FDG_WEIGHTING": "arfl", "FDG_GAP_SPLIT": "validation"}),
        *(("fedavg", {"model": "convnet", "objective": one, "travels": "head"}, {}) for one in ("as", "pac", "adg")),
        ("fedavg", {"model": "convnet", "objective": "adg", "travels": {"frozen": ["generator"]}}, {}),
        ("fedavg", {"model": "convnet", "objective": "as", "trainable": "head"}, {}),
        ("fedavg", {"model": "convnet", "keep_local_models": True, "travels": "extractor"}, {}),
        ({"name": "fedavg", "weighting": "as"}, {}, {}),
        # what follows from the length of steps, and momentum that is kept
        *(("fednova", settings, {}) for settings in ({"optimizer": "adam"}, {"keep_momentum": True})),
        ("fedavg", {"keep_momentum": True, "momentum": 0.0}, {}),
        # updates in files
        ("fedavg", {**IN_FILES, "objective": "scaffold"}, {}),
        ("fedavg", {**IN_FILES, "objective": "mosam", "momentum": 0.0}, {}),
    ],
)
def test_server_refuses_contradictions(aggregator: Any, protocol: dict[str, Any], environment: dict[str, str]) -> None:
    with pytest.raises(SettingsError):
        check(aggregator, protocol, environment)


@pytest.mark.parametrize(
    ("objective", "settings"),
    [
        ("as", {"travels": {"frozen": ["extractor.0"]}}),
        ("pac", {"travels": {"personal": ["extractor"]}}),
        ({"name": "adg", "classification_weight": 1}, {"trainable": "head"}),
        ("adg", {"travels": "extractor"}),
        ("erm", {"sites_per_round": 1, "min_sites": 1}),
    ],
)
def test_objective_with_a_trained_part_is_accepted(objective: Any, settings: dict[str, Any]) -> None:
    check("fedavg", {"model": "convnet", "objective": objective, **settings})


def test_job_names_the_tracker_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = arguments(FDGRecipe("fedomg"), tmp_path / "before")
    monkeypatch.setenv("FDG_ROUNDS", "3")
    assert arguments(FDGRecipe("fedomg"), tmp_path / "after") == before
    assert arguments(FDGRecipe("fedomg", tracking="mlflow"), tmp_path / "tracked") == {**before, "tracking": "mlflow"}
