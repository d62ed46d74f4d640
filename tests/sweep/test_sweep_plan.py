# SPDX-License-Identifier: Apache-2.0
"""From a request to its runs: how many, in which order, under which names, with which settings."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.sweep.plan import LONGEST_NAME, PlannedRun, make_grids, make_plan, methods_with, run_name
from fdg_plugins.lab.sweep.request import Request
from fdg_plugins.lab.sweep.values import as_json
from tests.sweep.sweep_stubs import request, settings_of


def plan_of(asked: Request, base: dict[str, Any] | None = None) -> tuple[PlannedRun, ...]:
    return make_plan(asked, lambda _: base or {}, settings_of)


axis_values = st.lists(
    st.one_of(
        st.integers(-5, 5),
        st.floats(-1e6, 1e6, allow_nan=False).filter(lambda value: not value.is_integer()),
        st.booleans(),
        st.none(),
        st.text(min_size=1, max_size=30),
        st.dictionaries(st.sampled_from(["name", "target"]), st.text(max_size=4), max_size=2),
    ),
    min_size=1,
    max_size=4,
    unique_by=as_json,
)


def lists(values: list[Any]) -> Any:
    return st.lists(st.sampled_from(values), min_size=1, unique=True).map(tuple)


requests = st.builds(
    request,
    methods=lists(["fedavg", "fedomg", "feddim"]),
    targets=lists(["art_painting", "cartoon", "photo", "sketch"]),
    seeds=lists([0, 1, 7, 12]),
    settings=st.fixed_dictionaries({"rounds": axis_values.map(tuple), "image_size": axis_values.map(tuple)}),
)


@given(requests)
def test_there_is_one_run_for_each_combination(asked: Request) -> None:
    plan = plan_of(asked)
    points = len(asked.settings["rounds"]) * len(asked.settings["image_size"])
    assert len(plan) == len(asked.seeds) * len(asked.targets) * len(asked.methods) * points
    combinations = {(run.seed, run.target, run.method, as_json(run.settings)) for run in plan}
    assert len(combinations) == len(plan)


@given(requests)
def test_names_are_unique_and_safe_for_files(asked: Request) -> None:
    names = [run.name for run in plan_of(asked)]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[A-Za-z0-9_.+-]+", name) and len(name) <= LONGEST_NAME for name in names)


@given(requests, requests)
def test_a_run_keeps_its_name_and_settings_when_lists_grow(asked: Request, more: Request) -> None:
    axes = {name: values for name, values in asked.settings.items() if len(values) > 1}
    asked = asked.model_copy(update={"settings": axes})
    grown = {name: tuple(dict.fromkeys((*getattr(asked, name), *getattr(more, name)))) for name in ("methods", "seeds")}
    wider = {name: (*values, "another") for name, values in axes.items()}
    after = {run.name: run for run in plan_of(asked.model_copy(update={**grown, "settings": wider}))}
    for run in plan_of(asked):
        assert after[run.name] == run


def test_a_table_fills_evenly() -> None:
    order = [(run.seed, run.target, run.method) for run in plan_of(request())]
    assert order == [(s, t, m) for s in (0, 1) for t in ("photo", "sketch") for m in ("fedavg", "fedomg")]


def test_a_name_tells_what_varies_and_nothing_else() -> None:
    asked = request(targets=("sketch",), seeds=(0,), settings={"kappa": (0.5, 1), "rounds": (10,)})
    assert [run.name for run in plan_of(asked)] == [
        "fedavg-sketch-seed0",
        "fedomg-sketch-seed0-kappa0.5",
        "fedomg-sketch-seed0-kappa1",
    ]


def test_the_order_in_which_axes_are_given_changes_no_name() -> None:
    axes = {"rounds": (1, 2), "image_size": (16, 32)}
    turned = dict(reversed(axes.items()))
    assert [run.name for run in plan_of(request(settings=axes))] == [
        run.name for run in plan_of(request(settings=turned))
    ]


def test_a_long_name_is_cut_and_stays_unique() -> None:
    points = [{"a" * 90: "b" * 20, "c" * 30: value} for value in (1, 2)]
    names = [run_name("fedavg", "photo", 0, point) for point in points]
    assert len(set(names)) == 2
    assert {len(name) for name in names} == {LONGEST_NAME}


def test_an_axis_is_for_the_methods_that_have_it() -> None:
    asked = request(targets=("photo",), seeds=(0,), settings={"kappa": (0.1, 0.3)})
    plan = plan_of(asked)
    assert [dict(run.settings) for run in plan] == [{}, {"kappa": 0.1}, {"kappa": 0.3}]
    assert methods_with("kappa", make_grids(asked, lambda _: {}, settings_of)) == ["fedomg"]


def test_a_methods_own_setting_wins_over_that_for_all_and_that_over_the_protocols() -> None:
    base = {"rounds": 5, "server_lr": 1, "strength": 3}
    asked = request(settings={"fedomg:rounds": (20,), "rounds": (10,)}, targets=("photo",), seeds=(0,))
    fedavg, fedomg = plan_of(asked, base)
    assert fedavg.settings == {"rounds": 10, "server_lr": 1}
    assert fedomg.settings == {"rounds": 20, "server_lr": 1}


def test_a_protocol_may_set_other_things_for_each_method() -> None:
    base: dict[str, dict[str, Any]] = {"fedavg": {"rounds": 5}, "fedomg": {"rounds": 7, "kappa": 0.1}}
    fedavg, fedomg = make_plan(request(targets=("photo",), seeds=(0,)), base.__getitem__, settings_of)
    assert (fedavg.settings, fedomg.settings) == (base["fedavg"], base["fedomg"])
    assert {run.protocol for run in (fedavg, fedomg)} == {"paper"}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"settings": {"kapa": (1,)}}, r"no method of fedavg, fedomg has a setting 'kapa'; did you mean 'kappa'\?"),
        ({"settings": {"zzz": (1,)}}, "known are image_size, kappa, rounds, server_lr"),
        ({"settings": {"fedavg:kappa": (1,)}}, "no method of fedavg has a setting 'kappa'"),
        ({"settings": {"feddim:strength": (1,)}}, "'feddim' is not in the sweep, which has fedavg, fedomg"),
        ({"settings": {"target": ("photo",)}}, "takes from --targets"),
        ({"settings": {"fedavg:seed": (1,)}}, "takes from --seeds"),
        ({"seeds": (0, 1, 0)}, "seeds names 0 twice"),
        ({"methods": ("fedavg", "fedavg")}, "methods names fedavg twice"),
    ],
)
def test_what_makes_no_plan_is_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        plan_of(request(**changes))
