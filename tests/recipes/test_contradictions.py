# SPDX-License-Identifier: Apache-2.0
"""Compositions that contradict themselves are refused when they are made, with the reason, and at the server again."""

from typing import Any

import pytest

from fdg_plugins.aggregators import make_aggregator
from fdg_plugins.errors import SettingsError
from fdg_plugins.plans.plans import check_settings, make_plans
from fdg_plugins.recipes import make_recipe


def test_a_contradiction_is_refused_with_its_reason() -> None:
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("arfl+ga", {}, r"method is 'arfl\+ga', but arfl and fedga both set the weighting; expected one of them\."),
        ("fedga+arfl", {}, r"but fedga and arfl both set the weighting"),
        ("fedomg+fednova", {}, r"but fedomg and fednova both set the direction"),
        ("fedprox+scaffold", {}, r"but fedprox and scaffold both set the objective"),
        (
            "fednova+prox",
            {},
            r"'prox' does not go with aggregator FedNovaAggregator",
        ),
        ("fednova+pac", {}, r"'pac' does not go with aggregator"),
        ("fednova+as", {}, r"'as' does not go with aggregator"),
        ("fednova+adg", {}, r"'adg' does not go with aggregator"),
        ("mofedsam", {"momentum": 0.9}, r"momentum is 0\.9, expected 0 for objective 'mosam'"),
        ("arfl", {"gap_split": "validation"}, r"gap_split \(FDG_GAP_SPLIT\) is 'validation', expected 'train'"),
        ("fedavg", {"sites_per_round": 1}, r"sites_per_round .* is 1, expected at least min_sites .*, which is 2"),
        (
            "stablefdg",  # whose network, built to read what travels, would fail without a sentence on it
            {"model": "vit_b_16", "travels": "head"},
            r"^travels \(FDG_TRAVELS\) is 'head': objective 'stable' needs all parameters to travel",
        ),
        (
            "rsc",
            {"model": "vit_b_16"},
            r"^objective 'rsc' does not go with model 'vit_b_16': the model's extractor has no",
        ),
        ("stablefdg", {"dataset": "mnist", "model": "cnn"}, r"^objective 'stable' does not go with model 'cnn': the"),
    ]
    for method, settings, reason in cases:
        with pytest.raises(SettingsError, match=reason) as refused:
            make_recipe(method, **settings)
        assert "\n" not in str(refused.value)


def test_a_job_or_an_environment_that_contradicts_itself_is_refused_by_the_server() -> None:
    cases: list[tuple[Any, dict[str, Any], dict[str, str], str]] = [
        ("fednova", {"objective": "prox"}, {}, "objective 'prox' does not go with"),
        (
            "fedavg",
            {"objective": "mosam", "momentum": 0.0},
            {"FDG_MOMENTUM": "0.5"},
            r"momentum is 0\.5",
        ),
        ({"name": "fedavg", "weighting": "arfl"}, {}, {}, "gap_split"),
        ("fedomg", {"gap_split": "train"}, {"FDG_WEIGHTING": "arfl", "FDG_GAP_SPLIT": "validation"}, "gap_split"),
    ]
    for aggregator, protocol, environment, reason in cases:
        made = make_aggregator(aggregator)
        in_force = made.settings()
        plans = make_plans(protocol, {}, environment, made.setting_names())
        with pytest.raises(SettingsError, match=reason):
            check_settings(made, plans)
        made.configure(in_force)


def test_a_single_site_a_round_is_accepted_where_one_update_is_enough() -> None:
    check(sites_per_round=1, min_sites=1)


FROZEN = {"frozen": ["extractor"]}


def check(**protocol: Any) -> None:
    aggregator = make_aggregator("fedavg")
    check_settings(aggregator, make_plans({"model": "convnet", **protocol}, {}, {}, aggregator.setting_names()))


def test_an_objective_with_steps_on_a_part_that_is_frozen_is_refused() -> None:
    cases: list[tuple[str, dict[str, Any], str]] = [
        *(
            (objective, settings, rf"^{setting}: objective '{objective}' trains the extractor on its own, expected")
            for objective in ("as", "pac")
            for settings, setting in (
                ({"trainable": "head"}, r"trainable \(FDG_TRAINABLE\) is 'head'"),
                ({"travels": "head"}, r"travels \(FDG_TRAVELS\) is 'head'"),
                ({"travels": FROZEN}, r"travels \(FDG_TRAVELS\) is a mapping of 1 keys"),
            )
        ),
        ("adg", {"trainable": "head"}, r"^trainable .* is 'head': objective 'adg' trains the generator on its own"),
        ("adg", {"travels": "head"}, r"^travels .* is 'head': objective 'adg' trains the generator on its own"),
        ("adg", {"travels": {"frozen": ["generator"]}}, r"^travels .*: objective 'adg' trains the generator"),
    ]
    for objective, settings, reason in cases:
        with pytest.raises(SettingsError, match=reason):
            check(objective=objective, **settings)


def test_fedadg_with_adapters_is_refused_since_its_generator_is_fixed() -> None:
    pytest.importorskip("peft")
    with pytest.raises(SettingsError, match=r"^trainable .* is 'adapters': objective 'adg' trains the generator"):
        check(objective="adg", trainable="adapters")


def test_an_objective_whose_part_is_trained_by_some_parameters_is_accepted() -> None:
    cases: list[tuple[Any, dict[str, Any]]] = [
        ("as", {"travels": {"frozen": ["extractor.0"]}}),
        ("pac", {"travels": {"personal": ["extractor"]}}),
        ({"name": "adg", "classification_weight": 1}, {"trainable": "head"}),
        ("adg", {"travels": "extractor"}),
    ]
    for objective, settings in cases:
        check(objective=objective, **settings)


def test_what_only_looks_like_a_contradiction_is_made() -> None:
    for method in ["fednova+sam", "fednova+dim", "scaffold", "fedcsa+arfl", "fedomg+arfl"]:
        assert make_recipe(method).method == method
