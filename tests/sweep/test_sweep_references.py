# SPDX-License-Identifier: Apache-2.0
"""Centralised references in a sweep: names, settings and jobs beside those of federated methods, commands."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdg_plugins.cli.run_options import read_values
from fdg_plugins.data import PACS
from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.centralised import ALGORITHMS
from fdg_plugins.lab.centralised.plan import make_plan
from fdg_plugins.lab.sweep.jobs import FederatedRuns
from fdg_plugins.lab.sweep.kinds import KINDS, canonical_method, kind_of
from fdg_plugins.lab.sweep.plan import PlannedRun
from fdg_plugins.lab.sweep.prepare import Asked, prepare
from fdg_plugins.lab.sweep.references import FDG, ReferenceRuns
from fdg_plugins.lab.sweep.request import DataFound
from fdg_plugins.lab.sweep.store import Store
from fdg_plugins.plugins.files import load_file

BOTH = Asked(dataset="rotateddigits", methods=("fedavg", "irm"), targets=("angle_0",), protocol="quick")


def asked(**changes: Any) -> Asked:
    return Asked(**{**vars(BOTH), **changes})


def reference(method: str = "irm", **settings: Any) -> PlannedRun:
    return PlannedRun("run", "pacs", "paper", method, "photo", 3, settings)


def test_a_name_is_of_one_kind() -> None:
    names = [name for kind in KINDS for name in kind.names]
    assert len(set(names)) == len(names)
    assert isinstance(kind_of("fedomg+ga+dim"), FederatedRuns)
    assert {type(kind_of(name)) for name in ALGORITHMS} == {ReferenceRuns}
    assert [canonical_method(name) for name in ("fedavg+ga", "irm")] == ["fedga", "irm"]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("irmm", "'irmm', which is neither a federated method nor a centralised reference; did you mean 'irm'?"),
        ("fedomgg+ga", "did you mean 'fedomg'?"),
        ("zzz", "known are fedavg, fedga,"),
        ("", "known are fedavg, fedga,"),
        ("erm+ga", "method is 'erm+ga', but 'erm' is a centralised reference, which takes no parts."),
        ("fedavg+irm", "method is 'fedavg+irm', in which 'irm' is unknown: "),
    ],
)
def test_a_name_that_is_of_no_kind_is_refused_in_one_sentence(name: str, sentence: str) -> None:
    with pytest.raises(SettingsError) as refused:
        canonical_method(name)
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_values_of_quick_are_each_kinds_own(tmp_path: Path) -> None:
    prepared = prepare(asked(seeds=(0, 1)), Store(tmp_path), {})
    federated, pooled, *_ = prepared.protocols.values()
    budget = prepared.plan[1].settings
    alone = make_plan("irm", "rotateddigits", "angle_0", 0, budget, protocol="quick").protocol
    assert pooled == alone
    assert (federated.learning_rate, pooled.learning_rate) == (0.02, 0.001), "SGD's rate does not reach Adam"
    assert federated.max_samples_per_domain == pooled.max_samples_per_domain, "the images are the same"
    assert set(budget) == {"steps", "checkpoint_every"}
    assert list(tmp_path.iterdir()) == []


def test_a_reference_makes_as_many_passes_as_the_rounds_unless_steps_are_named(tmp_path: Path) -> None:
    three = {"rounds": (3,), "local_epochs": (2,), "max_samples_per_domain": (100,), "irm:strength": (1, 10)}
    prepared = prepare(asked(settings=three), Store(tmp_path), {})
    federated, *pooled = prepared.plan
    images = 2 * 90  # two passes over the nine tenths of 100 images that train
    for run in pooled:
        protocol = prepared.protocols[run.name]
        assert protocol.rounds == prepared.protocols[federated.name].rounds == 3
        assert 0 <= run.settings["checkpoint_every"] * protocol.batch_size - images < protocol.batch_size
        assert run.settings["steps"] == 3 * run.settings["checkpoint_every"]
    named = prepare(asked(settings={**three, "steps": (7,)}), Store(tmp_path), {}).plan[1]
    assert (named.settings["steps"], "checkpoint_every" in named.settings) == (7, False)


def test_a_setting_goes_to_the_methods_that_have_it(tmp_path: Path) -> None:
    given_to = {"image_size": (16,), "sites_per_round": (2,), "steps": (40,), "irm:strength": (10, 100)}
    settings = [run.settings for run in prepare(asked(settings=given_to), Store(tmp_path), {}).plan]
    own = {"image_size": 16, "steps": 40}
    assert settings[1:] == [{**own, "strength": 10}, {**own, "strength": 100}]
    assert (settings[0]["sites_per_round"], settings[0]["image_size"]) == (2, 16)
    assert "steps" not in settings[0]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"irm:sites_per_round": (2,)}, "no method of irm has a setting 'sites_per_round'"),
        ({"irm:gap_split": ("train",)}, "no method of irm has a setting 'gap_split'"),
        ({"irm:stength": (2,)}, "did you mean 'strength'"),
        ({"strength": (-1,)}, "run irm-angle_0-seed0: strength is -1"),
        ({"irm:momentum": (0.9,)}, "run irm-angle_0-seed0: momentum is 0.9, expected 0"),
        ({"erm:steps": (2,)}, "'erm' is not in the sweep, which has fedavg, irm"),
    ],
)
def test_what_a_reference_does_not_take_is_refused_before_anything_is_written(
    tmp_path: Path, settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(SettingsError, match=sentence):
        prepare(asked(settings=settings), Store(tmp_path / "sweep"), {})
    assert not (tmp_path / "sweep").exists()


def test_a_finished_reference_of_other_settings_is_refused_with_the_difference(tmp_path: Path) -> None:
    store = Store(tmp_path)
    first = prepare(BOTH, store, {})
    run = first.plan[1]
    folder = store.runs / run.name
    ReferenceRuns().write_job(run, first.content.data, folder)
    assert prepare(BOTH, store, {}) == first
    ReferenceRuns().write_job(run._replace(settings={**run.settings, "strength": 7}), first.content.data, folder)
    with pytest.raises(SettingsError, match=r"was made with other settings \(strength 7\.0 there, 100\.0 now\)"):
        prepare(BOTH, store, {})


def test_the_job_of_a_reference_holds_every_setting(tmp_path: Path) -> None:
    data = DataFound(stand_in=False, images=dict.fromkeys(PACS.domains, 50))
    ReferenceRuns().write_job(reference(strength=5), data, tmp_path)
    content = json.loads((tmp_path / "job" / "plan.json").read_text())
    settings = content.pop("settings")
    assert content == {"algorithm": "irm", "dataset": "pacs", "target": "photo", "seed": 3}
    assert set(settings) == set(ReferenceRuns().settings_of("irm"))
    assert (settings["strength"], settings["steps"], settings["model"]) == (5.0, 5001, "resnet18")


def test_on_the_stand_in_a_reference_is_planned_as_it_runs_there(tmp_path: Path) -> None:
    data = DataFound(stand_in=True, images=dict.fromkeys(PACS.domains, 50))
    written = ReferenceRuns().write_job(reference(), data, tmp_path)
    assert written.protocol == make_plan("irm", "pacs", "photo", 3, stand_in=True).protocol
    assert json.loads((tmp_path / "job" / "plan.json").read_text())["settings"]["steps"] == 300


json_values = st.one_of(
    st.integers(-(2**40), 2**40),
    st.booleans(),
    st.none(),
    st.floats(allow_nan=False, allow_infinity=False).filter(lambda value: not value.is_integer()),
    st.lists(st.integers(0, 9), max_size=3),
    st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=3),
    st.text(min_size=1, max_size=12),
)


SEASONS = """
from dataclasses import replace
from fdg_plugins.data import PACS

SEASONS = replace(PACS, name="seasons", title="Seasons", folder="seasons")
"""


def test_a_data_set_that_a_file_brings_goes_with_the_command(tmp_path: Path) -> None:
    (tmp_path / "seasons.py").write_text(SEASONS, encoding="utf-8")
    load_file(tmp_path / "seasons.py")
    command = ReferenceRuns().command(reference()._replace(dataset="seasons"), threads=1, sites=1)
    assert command[command.index("--plugin") + 1] == str(tmp_path / "seasons.py")


@given(st.dictionaries(st.sampled_from(["strength", "warm_up", "model"]), json_values))
def test_a_command_line_carries_every_value_as_it_is(settings: dict[str, Any]) -> None:
    command = ReferenceRuns().command(reference()._replace(settings=settings), threads=1, sites=1)
    start = [*FDG, "run", "irm", "--dataset", "pacs", "--target", "photo", "--seed", "3", "--protocol", "paper"]
    assert list(command[: len(start)]) == start
    assert list(command[-2:]) == ["--to", "workspace"]
    given_to = command[len(start) : -2]
    assert set(given_to[::2]) <= {"--set"}
    assert read_values(list(given_to[1::2])) == settings
