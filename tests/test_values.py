# SPDX-License-Identifier: Apache-2.0
"""Values of settings: too large, too deep or of another kind is one short sentence, at every entry to a run."""

import json
import math
from collections.abc import Callable
from typing import Any

import pytest

from fdg_plugins.aggregators import AGGREGATORS, make_aggregator, make_weighting
from fdg_plugins.errors import FDGError, SettingsError
from fdg_plugins.lab.centralised.plan import make_plan
from fdg_plugins.lab.sweep.values import read_settings
from fdg_plugins.messages import TaskRequest
from fdg_plugins.objectives import OBJECTIVES, make_objective
from fdg_plugins.plans.plans import make_plans
from fdg_plugins.plugins.composition import parse_method
from fdg_plugins.recipes.settings import job_settings
from fdg_plugins.settings.protocol import MOST_ROUNDS, Protocol, environment_settings, make_protocol
from fdg_plugins.values import (
    LARGEST,
    check_choice,
    check_count,
    check_number,
    check_settings_known,
    check_truth,
    is_number,
    read_like,
    shorten,
)

LEVELS = 100_000
LONG = "x" * 3_000_000
LONGEST_SENTENCE = 1_000
ABSURD: list[Any] = [10**400, 10**6000, 1e308, math.inf, math.nan, True, "many", [1], {"a": 1}, LONG]


def kind_of(value: Any) -> str:
    """Return the name of a case; pytest's own would be the value."""
    return type(value).__name__


def nested(levels: int = LEVELS, kind: type = dict) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value} if kind is dict else [value]
    return value


# --- the sentence -----------------------------------------------------------------------------------


def test_no_value_makes_a_sentence_long_or_raises() -> None:
    cases: list[Any] = [
        LONG,
        LONG.encode(),
        nested(),
        nested(kind=list),
        10**400,
        10**6000,
        [10**6000],
        [LONG] * 9,
        "\n" * 99,
    ]
    for value in cases:
        assert len(shorten(value)) <= 80
        assert "\n" not in shorten(value)


def test_what_is_a_number() -> None:
    cases: list[tuple[Any, bool]] = [
        (0, True),
        (-1.5, True),
        (LARGEST, True),
        (2 * LARGEST, False),
        (10**400, False),
        (math.nan, False),
        (True, False),
    ]
    for value, expected in cases:
        assert is_number(value) is expected


# --- depth, at every entry --------------------------------------------------------------------------


def deep_json() -> str:
    return '{"a":' * LEVELS + "1" + "}" * LEVELS


DEEP: dict[str, Callable[[], object]] = {
    "objective of a job": lambda: make_plans({"objective": {"name": "dim", "strength": nested()}}, {}, {}, []),
    "objective's name": lambda: make_plans({"objective": {"name": nested()}}, {}, {}, []),
    "another setting of a job": lambda: make_plans({"rounds": nested(kind=list)}, {}, {}, []),
    "stand-in protocol": lambda: make_plans({}, {"objective": nested()}, {}, []),
    "setting of an aggregator, stand-in": lambda: make_plans({}, {"weighting": nested()}, {}, ["weighting"]),
    "environment": lambda: make_plans({}, {}, {"FDG_OBJECTIVE": deep_json()}, []),
    "a list in the environment": lambda: make_protocol([{"objective": '{"name":' + "[" * LEVELS}]),
    "environment, a few levels": lambda: make_protocol([{"objective": json.dumps(nested(20))}]),
    "request of the server": lambda: TaskRequest.read(
        {"protocol": {"objective": nested()}, "stand_in": False, "run": "r"}, "task request", SettingsError
    ),
    "aggregator": lambda: make_aggregator({"name": "fedomg", "weighting": nested()}),
    "aggregator's name": lambda: make_aggregator({"name": nested()}),
    "weighting": lambda: make_weighting({"name": "ga", "step_size": nested()}),
    "weighting's name": lambda: make_weighting({"name": nested(kind=list)}),
    "objective": lambda: make_objective({"name": "iir", "strength": nested()}),
    "recipe": lambda: job_settings(parse_method("fedomg"), "pacs", {"weighting": nested()}),
    "recipe's objective": lambda: job_settings(
        parse_method("fedavg"), "pacs", {"objective": {"name": "dim", "strength": nested()}}
    ),
    "recipe's rounds": lambda: job_settings(parse_method("fedavg"), "pacs", {"rounds": nested()}),
    "sweep": lambda: read_settings([f"objective={deep_json()}"]),
    "sweep, a few levels": lambda: read_settings([f"objective={json.dumps(nested(20))}"]),
    "centralised": lambda: make_plan("erm", "pacs", "photo", 0, {"batch_size": nested()}),
    "centralised, of the algorithm": lambda: make_plan("irm", "pacs", "photo", 0, {"strength": nested()}),
}


def test_what_is_nested_too_deep_is_one_sentence() -> None:
    for entry in DEEP.values():
        with pytest.raises(FDGError) as caught:
            entry()
        assert len(str(caught.value)) < LONGEST_SENTENCE
        assert "\n" not in str(caught.value)


# --- numbers, at every entry ------------------------------------------------------------------------

COUNTS = [
    "rounds",
    "local_epochs",
    "batch_size",
    "image_size",
    "max_samples_per_domain",
    "sites_per_round",
    "min_sites",
    "task_timeout",
    "seed",
]
RATES = [
    "learning_rate",
    "momentum",
    "weight_decay",
    "lr_decay_at",
    "lr_decay_factor",
    "patience",
    "outlier_ratio",
    "clip_to_median",
]


def test_no_number_of_the_protocol_may_be_absurd() -> None:
    for name in COUNTS + RATES:
        for value in ABSURD:
            with pytest.raises(SettingsError, match=rf"^setting {name} \(FDG_{name.upper()}\) is ") as caught:
                make_protocol([{name: value}])
            assert len(str(caught.value)) < LONGEST_SENTENCE
            assert "\n" not in str(caught.value)


def test_a_count_of_the_environment_that_memory_could_not_hold_is_refused() -> None:
    for name in COUNTS:
        for text in ("9" * 20, "9" * 400, "9" * 6000, "3000000000"):
            with pytest.raises(SettingsError, match=f"^setting {name} "):
                make_protocol([environment_settings({f"FDG_{name.upper()}": text})])


def test_every_number_of_the_protocol_is_bounded_on_both_sides() -> None:
    for name, field in Protocol.model_fields.items():
        if field.annotation in (int, float, int | None, float | None):
            bounds = {type(bound).__name__ for bound in field.metadata}
            assert bounds & {"Ge", "Gt"}, name
            assert bounds & {"Le", "Lt"}, name


def absurd_for(default: object) -> list[Any]:
    numbers = [10**400, 10**6000, 1e308, -1, math.inf, math.nan, True, "many", None, [1], nested(3), LONG]
    return [2, 1e308, "yes", None] if isinstance(default, bool) else numbers


def test_no_setting_of_an_objective_may_be_absurd() -> None:
    for name in sorted(OBJECTIVES):
        for setting, default in make_objective(name).settings().items():
            if setting == "name" or isinstance(default, str):
                continue
            for value in absurd_for(default):
                with pytest.raises(SettingsError, match=f"^{setting} is ") as caught:
                    make_objective({"name": name, setting: value})
                assert len(str(caught.value)) < LONGEST_SENTENCE


def test_no_setting_of_an_aggregator_may_be_absurd() -> None:
    for name in sorted(AGGREGATORS):
        for setting, default in make_aggregator(name).settings().items():
            if isinstance(default, int | float):
                for value in absurd_for(default):
                    with pytest.raises(SettingsError, match=f"^{setting} is ") as caught:
                        make_aggregator({"name": name, setting: value})
                    assert len(str(caught.value)) < LONGEST_SENTENCE


def test_no_setting_of_a_weighting_may_be_absurd() -> None:
    cases: list[dict[str, Any]] = [{"name": "ga", "step_size": 0}, {"name": "arfl", "strength": 0}]
    for spec in cases:
        setting = list(spec)[1]
        for value in absurd_for(0.0):
            with pytest.raises(SettingsError, match=f"^{setting} is ") as caught:
                make_weighting({**spec, setting: value})
            assert len(str(caught.value)) < LONGEST_SENTENCE


def test_a_centralised_run_has_no_more_checkpoints_than_a_federated_one_rounds() -> None:
    with pytest.raises(SettingsError, match=r"^checkpoint_every is 1, expected at most 100,000 checkpoints"):
        make_plan("erm", "pacs", "photo", 0, {"steps": 10 * MOST_ROUNDS, "checkpoint_every": 1})


# --- names ------------------------------------------------------------------------------------------

NAMES: dict[str, Callable[[], object]] = {
    "setting of a job": lambda: make_plans({LONG: 1}, {}, {}, []),
    "setting of the stand-in": lambda: make_plans({}, {LONG: 1}, {}, []),
    "variable": lambda: make_plans({}, {}, {f"FDG_{LONG}": "1"}, []),
    "data set": lambda: make_plans({"dataset": LONG}, {}, {}, []),
    "target": lambda: make_plans({"target": LONG}, {}, {}, []),
    "model": lambda: make_plans({"model": LONG}, {}, {}, []),
    "objective": lambda: make_plans({"objective": LONG}, {}, {}, []),
    "setting of an objective": lambda: make_objective({"name": "dim", LONG: 1}),
    "aggregator": lambda: make_aggregator(LONG),
    "setting of an aggregator": lambda: make_aggregator({"name": "fedavg", LONG: 1}),
    "weighting": lambda: make_weighting(LONG),
    "setting of a weighting": lambda: make_weighting({"name": "ga", LONG: 1}),
    "recipe": lambda: job_settings(parse_method("fedavg"), "pacs", {LONG: 1}),
    "sweep": lambda: read_settings([f"rounds=[{LONG}"]),
}


def test_a_name_of_megabytes_is_quoted_in_part() -> None:
    for entry in NAMES.values():
        with pytest.raises(FDGError) as caught:
            entry()
        assert len(str(caught.value)) < 2 * LONGEST_SENTENCE


# --- checks -----------------------------------------------------------------------------------------


def test_a_number_out_of_range_is_refused_with_its_range() -> None:
    cases: list[tuple[Any, dict[str, float], str]] = [
        (0.0, {"above": 0.0}, r"^x is 0\.0, expected a finite number above 0\.0\.$"),
        (-1, {}, r"^x is -1, expected a finite number of at least 0\.$"),
        (1.5, {"at_most": 1.0}, r"^x is 1\.5, expected a number from 0 to 1\.0\.$"),
        (math.nan, {}, "x is nan"),
        (True, {}, "x is True"),
        ("1", {}, "x is '1'"),
        (1e31, {}, "of at least 0, and of at most 1e"),
    ]
    for value, limits, says in cases:
        with pytest.raises(SettingsError, match=says):
            check_number("x", value, **limits)


def test_the_ends_of_a_range_belong_to_it() -> None:
    check_number("x", 0)
    check_number("x", 1, at_most=1.0)
    check_number("x", 1e-300, above=0.0)
    check_count("x", 3, at_least=3, at_most=3)
    check_choice("x", "a", ("b", "a"))
    check_truth("x", False)
    check_settings_known("it", ["a"], ["a", "b"])


def test_text_is_read_as_a_value_of_the_same_kind() -> None:
    assert read_like("x", " 1e-3 ", 1.0) == 1e-3
    assert [read_like("x", text, False) for text in ("True", "0")] == [True, False]
    assert read_like("x", " a ", "b") == "a"
    assert read_like("x", "a", {}) == "a"
    assert read_like("x", [1], 1.0) == [1]


def test_a_number_with_a_fraction_is_not_cut_to_the_whole_number_that_it_stands_for() -> None:
    values = [read_like("x", text, 1) for text in ("3", "3.0", "1e3", "2.5")]
    assert [(value, type(value)) for value in values] == [(3, int), (3, int), (1000, int), (2.5, float)]
