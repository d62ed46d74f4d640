# SPDX-License-Identifier: Apache-2.0
"""Compositions that contradict themselves are refused when they are made, with the reason, and at the server again."""

from typing import Any

import pytest

from fdg_plugins.aggregators import make_aggregator
from fdg_plugins.errors import SettingsError
from fdg_plugins.plans.plans import check_settings, make_plans
from fdg_plugins.recipes import make_recipe

FROZEN = {"frozen": ["extractor"]}


@pytest.mark.parametrize(
    ("method", "settings", "reason"),
    [
        *((f"fednova+{part}", {}, f"'{part}' does not go with") for part in ("prox", "pac", "as", "adg")),
        ("mofedsam", {"momentum": 0.9}, "momentum"),
        ("arfl", {"gap_split": "validation"}, "gap_split"),
        ("fedavg", {"sites_per_round": 1}, "sites_per_round"),
        # whose network, built to read what travels, would fail without a sentence on it
        ("stablefdg", {"model": "vit_b_16", "travels": "head"}, "travels"),
        ("rsc", {"model": "vit_b_16"}, "'vit_b_16'"),
        ("stablefdg", {"dataset": "mnist", "model": "cnn"}, "'cnn'"),
    ],
)
def test_a_contradiction_is_refused_with_its_reason(method: str, settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        make_recipe(method, **settings)


def check(aggregator: Any, protocol: dict[str, Any], environment: dict[str, str] | None = None) -> None:
    made = make_aggregator(aggregator)
    check_settings(made, make_plans(protocol, {}, environment or {}, list(made.settings())))


@pytest.mark.parametrize(
    ("aggregator", "protocol", "environment", "reason"),
    [
        ("fednova", {"objective": "prox"}, {}, "'prox'"),
        ("fedavg", {"objective": "mosam", "momentum": 0.0}, {"FDG_MOMENTUM": "0.5"}, "momentum"),
        ({"name": "fedavg", "weighting": "arfl"}, {}, {}, "gap_split"),
        ("fedomg", {"gap_split": "train"}, {"FDG_WEIGHTING": "arfl", "FDG_GAP_SPLIT": "validation"}, "gap_split"),
    ],
)
def test_a_job_or_an_environment_that_contradicts_itself_is_refused_by_the_server(
    aggregator: Any, protocol: dict[str, Any], environment: dict[str, str], reason: str
) -> None:
    with pytest.raises(SettingsError, match=reason):
        check(aggregator, protocol, environment)


@pytest.mark.parametrize("objective", ["as", "pac", "adg"])
@pytest.mark.parametrize("settings", [{"trainable": "head"}, {"travels": "head"}, {"travels": FROZEN}])
def test_an_objective_with_steps_on_a_part_that_is_frozen_is_refused(objective: str, settings: dict[str, Any]) -> None:
    if objective == "adg" and settings["travels" if "travels" in settings else "trainable"] == FROZEN:
        settings = {"travels": {"frozen": ["generator"]}}
    with pytest.raises(SettingsError, match=f"^{min(settings)} .*'{objective}' trains"):
        check("fedavg", {"model": "convnet", "objective": objective, **settings})


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
def test_an_objective_whose_part_is_trained_by_some_parameters_is_accepted(
    objective: Any, settings: dict[str, Any]
) -> None:
    check("fedavg", {"model": "convnet", "objective": objective, **settings})


@pytest.mark.parametrize("method", ["fednova+sam", "fednova+dim", "scaffold", "fedcsa+arfl", "fedomg+arfl"])
def test_what_only_looks_like_a_contradiction_is_made(method: str) -> None:
    assert make_recipe(method).method == method
