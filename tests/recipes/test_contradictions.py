# SPDX-License-Identifier: Apache-2.0
"""Compositions that contradict themselves are refused when they are made, with the reason, and at the server again."""

from typing import Any

import pytest

from fdg_plugins.aggregators import make_aggregator
from fdg_plugins.errors import SettingsError
from fdg_plugins.plans.compatibility import check_settings
from fdg_plugins.plans.plans import make_plans
from fdg_plugins.recipes import make_recipe


@pytest.mark.parametrize(
    ("method", "settings", "reason"),
    [
        ("arfl+ga", {}, r"method is 'arfl\+ga', but arfl and fedga both set the weighting; expected one of them\."),
        ("fedga+arfl", {}, r"but fedga and arfl both set the weighting"),
        ("fedomg+fednova", {}, r"but fedomg and fednova both set the direction"),
        ("fedprox+scaffold", {}, r"but fedprox and scaffold both set the objective"),
        ("fednova+prox", {}, r"objective 'prox' does not go with aggregator FedNovaAggregator: "),
        ("mofedsam", {"momentum": 0.9}, r"momentum \(FDG_MOMENTUM\) is 0\.9, expected 0: objective 'mosam' is defined"),
        ("arfl", {"gap_split": "validation"}, r"gap_split \(FDG_GAP_SPLIT\) is 'validation', expected 'train'"),
    ],
)
def test_a_contradiction_is_refused_with_its_reason(method: str, settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(SettingsError, match=reason) as refused:
        make_recipe(method, **settings)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("aggregator", "protocol", "environment", "reason"),
    [
        ("fednova", {"objective": "prox"}, {}, "objective 'prox' does not go with"),
        (
            "fedavg",
            {"objective": "mosam", "momentum": 0.0},
            {"FDG_MOMENTUM": "0.5"},
            r"momentum \(FDG_MOMENTUM\) is 0\.5",
        ),
        ({"name": "fedavg", "weighting": "arfl"}, {}, {}, "gap_split"),
        ("fedomg", {"gap_split": "train"}, {"FDG_WEIGHTING": "arfl", "FDG_GAP_SPLIT": "validation"}, "gap_split"),
    ],
    ids=str,
)
def test_a_job_or_an_environment_that_contradicts_itself_is_refused_by_the_server(
    aggregator: Any, protocol: dict[str, Any], environment: dict[str, str], reason: str
) -> None:
    made = make_aggregator(aggregator)
    in_force = made.settings()
    plans = make_plans(protocol, {}, environment, made.setting_names())
    with pytest.raises(SettingsError, match=reason):
        check_settings(made, plans)
    made.configure(in_force)


@pytest.mark.parametrize("method", ["fednova+sam", "fednova+dim", "scaffold", "fedcsa+arfl", "fedomg+arfl"])
def test_what_only_looks_like_a_contradiction_is_made(method: str) -> None:
    assert make_recipe(method).method == method
