# SPDX-License-Identifier: Apache-2.0
"""A plan is checked to the last setting before anything is written, with the real recipes, references and data."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdg_plugins.cli.options import read_values
from fdg_plugins.data import PACS, ROTATED_DIGITS, ROTATED_MNIST
from fdg_plugins.errors import DataError, FDGError, SettingsError
from fdg_plugins.lab.centralised import ALGORITHMS
from fdg_plugins.lab.centralised.plan import make_plan
from fdg_plugins.lab.sweep.execute import Store
from fdg_plugins.lab.sweep.kinds import FDG, FEDERATED, IN_ONE_PROCESS, REFERENCE, kind_of
from fdg_plugins.lab.sweep.plan import PlannedRun
from fdg_plugins.lab.sweep.prepare import Prepared, make_request, prepare
from fdg_plugins.lab.sweep.request import DataFound
from fdg_plugins.plugins.files import load_file
from fdg_plugins.plugins.own_dataset import OwnDataset
from fdg_plugins.recipes import settings_of
from fdg_plugins.settings.defaults import protocol_settings
from fdg_plugins.settings.protocol import Protocol

FOUND = DataFound(stand_in=False, images=dict.fromkeys(PACS.domains, 300))
DIGITS = {"dataset": "rotateddigits", "methods": ("fedavg", "fedomg+dim+ga"), "targets": ("angle_0",)}
BOTH = {**DIGITS, "methods": ("fedavg", "irm"), "protocol": "quick"}


def prepared(folder: Path, **changes: Any) -> Prepared:
    return prepare({**DIGITS, **changes}, Store(folder), {})


def finish(store: Store, run: PlannedRun) -> None:
    """Leave ``run`` as one that has finished."""
    kind_of(run.method).write_job(run, FOUND, store.runs / run.name)
    (store.runs / run.name / "results.json").write_text("{}")


def test_every_run_has_its_settings_and_nothing_is_written(tmp_path: Path) -> None:
    objectives = ({"name": "dim", "target": "feature"}, {"name": "dim", "target": "insight"})
    settings = {"rounds": (3, 5), "kappa": (0.1,), "feddim:objective": objectives}
    found = prepared(tmp_path, methods=("fedavg", "fedomg+dim+ga", "feddim"), settings=settings)
    assert [run.name for run in found.plan[:4]] == [
        "fedavg-angle_0-seed0-rounds3",
        "fedavg-angle_0-seed0-rounds5",
        "fedomg+ga+dim-angle_0-seed0-rounds3",
        "fedomg+ga+dim-angle_0-seed0-rounds5",
    ]
    assert len(found.plan) == 2 + 2 + 4
    assert sum(found.content.data.images.values()) == 1797, "all of scikit-learn's digits"
    assert list(found.content.data.images) == list(ROTATED_DIGITS.domains)
    assert list(tmp_path.iterdir()) == []


def test_a_data_root_is_looked_into_and_without_one_the_stand_in_is_drawn(tmp_path: Path, data_root: Path) -> None:
    store, asked = Store(tmp_path / "sweep"), {"methods": ("fedavg",)}
    found = prepare(asked, store, {"FDG_DATA_ROOT": str(data_root)}).content.data
    assert found == DataFound(stand_in=False, images=dict.fromkeys(PACS.domains, 28))
    assert prepare(asked, store, {"FDG_CACHE": str(tmp_path / "cache")}).content.data.stand_in
    with pytest.raises(DataError):
        prepare(asked, store, {"FDG_DATA_ROOT": "/nowhere"})


@pytest.mark.parametrize(
    "changes",
    [
        {"methods": None},
        {"methods": ("fedomh",)},
        {"methods": ("fedomg+ga", "fedomg+ga")},
        {"methods": ("erm+ga",)},
        {"dataset": "packs"},
        {"dataset": ""},
        {"targets": ("photo",)},
        {"protocol": "short"},
        {"seeds": (2**31,)},
        *({"settings": {name: (value,)}} for name, value in (("round", 1), ("kappa", -1), ("sites_per_domain", 100))),
        {"settings": {"fedomg+ga+dim:kappa": (0.1,), "ga+fedomg+dim:kappa": (0.5,)}},
        {"settings": {"rounds": (10, 0)}},
        {"settings": {"model": ("resnet18",)}},
        {**BOTH, "settings": {"irm:gap_split": ("train",)}},
        {**BOTH, "settings": {"strength": (-1,)}},
        {**BOTH, "settings": {"irm:momentum": (0.9,)}},
    ],
)
def test_whatever_is_wrong_is_refused_before_anything_is_written(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(FDGError):
        prepared(tmp_path / "sweep", **changes)
    assert not (tmp_path / "sweep").exists()


@pytest.mark.parametrize(("name", "hint"), [("irmm", "'irm'"), ("fedomgg+ga", "'fedomg'"), ("zzz", "fedavg, fedga,")])
def test_a_name_that_is_of_no_kind_gets_a_hint(name: str, hint: str) -> None:
    with pytest.raises(SettingsError) as refused:
        kind_of(name)
    assert hint in str(refused.value)


def test_a_request_takes_from_the_folder_what_is_not_said_and_has_one_name_for_a_method() -> None:
    before = make_request({**DIGITS, "seeds": (0, 1), "settings": {"kappa": (0.1, 0.3)}}, None)
    assert make_request({}, before) == before
    grown = make_request({"seeds": (0, 1, 2), "settings": {"rounds": (5,)}}, before)
    assert (grown.seeds, grown.settings) == ((0, 1, 2), {"kappa": (0.1, 0.3), "rounds": (5,)})
    spelt = make_request({"methods": ("fedavg+ga",), "settings": {"fedavg+ga:step_size": (0.1,)}}, None)
    assert (spelt.methods, spelt.targets, [*spelt.settings]) == (("fedga",), PACS.domains, ["fedga:step_size"])
    assert make_request({"methods": ("erm",), "dataset": "mnist"}, None).targets == ("test",)


@pytest.mark.parametrize("asked", [{**DIGITS, "settings": {"rounds": (3,)}}, BOTH])
def test_a_finished_run_is_accepted_only_with_its_settings(tmp_path: Path, asked: dict[str, Any]) -> None:
    store = Store(tmp_path)
    first = prepare(asked, store, {})
    for run in first.plan:
        finish(store, run)
    store.write(first.content, [])
    first = replace(first, earlier=first.content)
    assert prepare(asked, store, {}) == first
    last = first.plan[-1]
    other = {"strength": 7} if last.method == "irm" else {"rounds": 4}
    kind_of(last.method).write_job(last._replace(settings={**last.settings, **other}), FOUND, store.runs / last.name)
    with pytest.raises(SettingsError):
        prepare(asked, store, {})


def test_each_run_is_one_process(tmp_path: Path) -> None:
    plan = prepare(DIGITS, Store(tmp_path), {}).plan
    assert kind_of("fedomg+ga", in_one_process=True) is IN_ONE_PROCESS
    assert {kind_of(name, in_one_process=True) for name in ALGORITHMS} == {REFERENCE}
    assert tuple(FEDERATED.words(plan[0], 2, 101))[-2:] == ("-m", "101")
    assert "-m" not in FEDERATED.words(plan[0], 2, 100)


def test_a_reference_makes_as_many_passes_as_the_rounds_unless_steps_are_named(tmp_path: Path) -> None:
    three = {"rounds": (3,), "local_epochs": (2,), "max_samples_per_domain": (100,), "irm:strength": (1, 10)}
    federated, *pooled = prepare({**BOTH, "settings": three}, Store(tmp_path), {}).plan
    images = 2 * 90  # two passes over the nine tenths of 100 images that train
    for run in pooled:
        protocol = REFERENCE.planned(run, FOUND).protocol
        assert protocol.rounds == federated.settings["rounds"] == 3
        assert 0 <= run.settings["checkpoint_every"] * protocol.batch_size - images < protocol.batch_size
        assert run.settings["steps"] == 3 * run.settings["checkpoint_every"]
    named = prepare({**BOTH, "settings": {**three, "steps": (7,)}}, Store(tmp_path), {}).plan[1]
    assert (named.settings["steps"], "checkpoint_every" in named.settings) == (7, False)


def test_on_the_stand_in_a_reference_is_planned_as_it_runs_there(tmp_path: Path) -> None:
    run = PlannedRun("run", "pacs", "paper", "irm", "photo", 3, {})
    written = REFERENCE.write_job(run, DataFound(stand_in=True, images={}), tmp_path)
    assert written.protocol == make_plan("irm", "pacs", "photo", 3, stand_in=True).protocol
    settings = json.loads((tmp_path / "job" / "plan.json").read_text())["settings"]
    assert set(settings) == set(REFERENCE.settings_of("irm"))
    assert settings["steps"] == 300


json_values = st.one_of(
    st.integers(-(2**40), 2**40),
    st.booleans(),
    st.none(),
    st.floats(allow_nan=False, allow_infinity=False).filter(lambda value: not value.is_integer()),
    st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=3),
    st.text(min_size=1, max_size=12),
)


@given(st.dictionaries(st.sampled_from(["strength", "warm_up", "model"]), json_values))
def test_a_command_line_carries_every_value_as_it_is(settings: dict[str, Any]) -> None:
    words = REFERENCE.words(PlannedRun("run", "pacs", "paper", "irm", "photo", 3, settings), 1, 1)
    start = [*FDG, "run", "irm", "--dataset", "pacs", "--target", "photo", "--protocol", "paper", "--set", "seed=3"]
    assert list(words[: len(start)]) == start
    assert list(words[-2:]) == ["--to", "workspace"]
    assert set(words[len(start) : -2 : 2]) <= {"--set"}
    assert read_values(list(words[len(start) + 1 : -2 : 2])) == settings


def test_a_data_set_that_a_file_brings_goes_with_the_command(tmp_path: Path) -> None:
    text = "from dataclasses import replace\nfrom fdg_plugins.data import PACS\nONE = replace(PACS, name='seasons')\n"
    (tmp_path / "seasons.py").write_text(text, encoding="utf-8")
    load_file(tmp_path / "seasons.py")
    words = REFERENCE.words(PlannedRun("run", "seasons", "paper", "irm", "photo", 3, {}), 1, 1)
    assert words[words.index("--plugin") + 1] == str(tmp_path / "seasons.py")


def quick(folder: Path, dataset: Any, method: str, target: str) -> Protocol:
    """Return the protocol of a run under ``quick``."""
    settings = {k: v for k, v in protocol_settings("quick", dataset).items() if k in settings_of(method)}
    run = PlannedRun("run", dataset, "quick", method, target, 0, settings)
    return FEDERATED.write_job(run, FOUND, folder).protocol


@pytest.mark.parametrize("spec", [PACS, ROTATED_DIGITS, ROTATED_MNIST], ids=lambda spec: spec.name)
def test_quick_is_a_protocol_that_the_recipes_of_every_data_set_take(tmp_path: Path, spec: Any) -> None:
    protocol = quick(tmp_path, spec.name, "fedomg+ga+dim", spec.domains[0])
    assert protocol.rounds * protocol.local_epochs <= 20
    assert protocol.max_samples_per_domain is not None
    assert protocol.max_samples_per_domain <= 600


@pytest.mark.parametrize(("channels", "dims", "size"), [(3, 2, 64), (1, 3, 32)])
def test_quick_on_masks_is_small_and_keeps_optimizer_rate_and_batch(
    tmp_path: Path, channels: Any, dims: Any, size: int
) -> None:
    form: dict[str, Any] = {"task": "segmentation", "channels": channels, "dims": dims, "preset": "mri_patches"}
    scans = OwnDataset(name="scans", domains=("a", "b", "c"), classes=("background", "lesion"), **form)
    protocol = quick(tmp_path, scans, "fedavg", "a")
    assert (protocol.image_size, protocol.rounds * protocol.local_epochs) == (size, 10)
    assert (protocol.optimizer, protocol.learning_rate, protocol.batch_size) == ("adam", 1e-3, 4)
