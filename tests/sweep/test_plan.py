# SPDX-License-Identifier: Apache-2.0
"""From the text of ``--set`` and a request to its runs, and which request may go on with a folder."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.lab.sweep.execute import Store
from fdg_plugins.lab.sweep.plan import (
    LONGEST_NAME,
    DataFound,
    PlannedRun,
    Request,
    SweepFile,
    as_json,
    read_settings,
    run_name,
    split_values,
)
from fdg_plugins.lab.sweep.prepare import check_continues, runs_of

DATA = DataFound(stand_in=False, images={"photo": 10, "sketch": 20})
GRID = {"kappa": (0.1, 0.3), "rounds": (10,)}


def request(**changes: Any) -> Request:
    plain = {"methods": ("fedavg", "fedomg"), "targets": ("photo", "sketch"), "seeds": (0, 1)}
    return Request(**{"dataset": "pacs", "protocol": "paper", **plain, **changes})


def plan_of(asked: Request) -> tuple[PlannedRun, ...]:
    return runs_of(asked)[0]


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


@given(axis_values)
def test_what_is_written_as_json_is_read_as_it_was(values: list[Any]) -> None:
    assert list(split_values(" , ".join(map(json.dumps, values)), "name")) == values


def test_a_value_is_read_as_what_it_looks_like() -> None:
    given = ["rounds=10,1.0", "rescale=true", "fedomg+ga:model=convnet, NaN", 'objective={"name": "a,b"}, null']
    assert read_settings(given) == {
        "rounds": (10, 1),
        "rescale": (True,),
        "fedomg+ga:model": ("convnet", "NaN"),
        "objective": ({"name": "a,b"}, None),
    }


@pytest.mark.parametrize(
    "texts", [["kappa"], ["=1"], ["kappa="], ["kappa=1,"], ['o={"a": 1'], ["a=1,1.0"], ["a=1", "a=2"], ["a b=1"]]
)
def test_another_form_is_refused(texts: list[str]) -> None:
    with pytest.raises(SettingsError):
        read_settings(texts)


@given(requests, requests)
def test_runs_have_names_of_their_own_which_stay_when_lists_grow(asked: Request, more: Request) -> None:
    names = [run.name for run in plan_of(asked)]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[A-Za-z0-9_.+-]+", name) and len(name) <= LONGEST_NAME for name in names)
    axes = {name: values for name, values in asked.settings.items() if len(values) > 1}
    asked = asked.model_copy(update={"settings": axes})
    grown = {name: tuple(dict.fromkeys((*getattr(asked, name), *getattr(more, name)))) for name in ("methods", "seeds")}
    wider = {name: (*values, "another") for name, values in axes.items()}
    after = {run.name: run for run in plan_of(asked.model_copy(update={**grown, "settings": wider}))}
    assert all(after[run.name] == run for run in plan_of(asked))


def test_a_table_fills_evenly_and_a_name_tells_what_varies() -> None:
    order = [(run.seed, run.target, run.method) for run in plan_of(request())]
    assert order == [(s, t, m) for s in (0, 1) for t in ("photo", "sketch") for m in ("fedavg", "fedomg")]
    asked = request(targets=("sketch",), seeds=(0,), settings={"kappa": (0.5, 1), "rounds": (10,)})
    names = [run.name for run in plan_of(asked)]
    assert names == ["fedavg-sketch-seed0", "fedomg-sketch-seed0-kappa0.5", "fedomg-sketch-seed0-kappa1"]
    long = {run_name("fedavg", "photo", 0, {"a" * 90: "b" * 20, "c" * 30: value}) for value in (1, 2)}
    assert [len(name) for name in long] == [LONGEST_NAME] * 2


def test_a_methods_own_setting_wins_over_that_for_all_and_that_over_the_protocols() -> None:
    own = {"fedomg:rounds": (20,), "rounds": (10,)}
    fedavg, fedomg = plan_of(request(settings=own, targets=("photo",), seeds=(0,), protocol="quick"))
    assert [(run.settings["rounds"], run.settings["image_size"]) for run in (fedavg, fedomg)] == [(10, 64), (20, 64)]


@pytest.mark.parametrize("key", ["kapa", "fedavg:kappa", "feddim:strength", "target", "fedavg:seed"])
def test_what_makes_no_plan_is_refused(key: str) -> None:
    with pytest.raises(SettingsError):
        plan_of(request(settings={key: (1,)}))


def begun(data: DataFound = DATA, **changes: Any) -> SweepFile:
    return SweepFile(request=request(**{"settings": GRID, **changes}), data=data, pretrained="")


@pytest.mark.parametrize(
    ("changes", "goes_on"),
    [
        ({}, True),
        ({"methods": ("feddim", "fedomg", "fedavg"), "settings": {**GRID, "feddim:strength": (0.1, 1.0)}}, True),
        ({"targets": ("photo", "sketch", "cartoon"), "seeds": (0, 1, 2)}, True),
        ({"settings": {"rounds": (10,), "kappa": (0.1, 0.2, 0.3)}}, True),
        ({"dataset": "rotateddigits"}, False),
        ({"seeds": (1, 2)}, False),
        ({"settings": {**GRID, "fedomg:server_lr": (1,)}}, False),
        ({"settings": {**GRID, "kappa": (0.1, 0.5)}}, False),
        ({"settings": {**GRID, "rounds": (10, 20)}}, False),
    ],
)
def test_lists_may_grow_and_whatever_would_change_or_leave_out_a_run_is_refused(
    changes: dict[str, Any], goes_on: bool
) -> None:
    if goes_on:
        check_continues(begun(), begun(**changes), "sweep")
    else:
        with pytest.raises(SettingsError):
            check_continues(begun(), begun(**changes), "sweep")


def test_other_images_or_weights_are_refused() -> None:
    weights = begun().model_copy(update={"pretrained": "ab12"})
    stand_in, fewer = DataFound(stand_in=True, images=DATA.images), DataFound(stand_in=False, images={"photo": 10})
    for other in (begun(data=stand_in), begun(data=fewer), weights):
        with pytest.raises(DataError):
            check_continues(begun(), other, "sweep")
    check_continues(begun().model_copy(update={"pretrained": None}), weights, "sweep")  # not kept then


def test_the_file_is_read_back_and_a_damaged_one_refused(tmp_path: Path) -> None:
    written = begun(settings={"objective": ({"name": "dim"},), "patience": (None,)})
    store = Store(tmp_path)
    assert store.read() is None
    store.write(written, [])
    assert store.read() == written
    for content in ("{", '{"format": 2}'):
        (tmp_path / "sweep.json").write_text(content)
        with pytest.raises(DataError):
            store.read()
