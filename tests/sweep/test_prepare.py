# SPDX-License-Identifier: Apache-2.0
"""A plan is checked to the last setting before anything is written, with the real recipes, references and data."""

from pathlib import Path
from typing import Any

import pytest

from fdg_plugins.data import PACS
from fdg_plugins.data.catalogue import ROTATED_DIGITS
from fdg_plugins.errors import DataError, FDGError, SettingsError
from fdg_plugins.lab.sweep.execute import Store
from fdg_plugins.lab.sweep.jobs import make_job
from fdg_plugins.lab.sweep.machine import ENGINES, EngineName
from fdg_plugins.lab.sweep.plan import DataFound
from fdg_plugins.lab.sweep.prepare import Prepared, make_request, prepare

DIGITS = {"dataset": "rotateddigits", "methods": ("fedavg", "fedomg+dim+ga"), "targets": ("angle_0",)}
BOTH = {**DIGITS, "methods": ("fedavg", "irm"), "protocol": "quick"}


def prepared(folder: Path, **changes: Any) -> Prepared:
    return prepare({**DIGITS, **changes}, Store(folder), {})


def test_every_run_has_its_settings_and_nothing_is_written(tmp_path: Path) -> None:
    objectives = ({"name": "dim", "target": "feature"}, {"name": "dim", "target": "insight"})
    settings = {"rounds": (3, 5), "kappa": (0.1,), "feddim:objective": objectives}
    found = prepared(tmp_path, methods=("fedavg", "fedomg+dim+ga", "feddim"), settings=settings)
    assert found.plan[3].name == "fedomg+ga+dim-angle_0-seed0-rounds5"
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
        {"methods": ("erm+ga",)},
        {"dataset": "packs"},
        {"targets": ("photo",)},
        {"protocol": "short"},
        {"seeds": (2**31,)},
        *({"settings": {name: (value,)}} for name, value in (("round", 1), ("kappa", -1))),
        {"settings": {"model": ("resnet18",)}},
        {**BOTH, "settings": {"irm:gap_split": ("train",)}},
        {**BOTH, "settings": {"strength": (-1,)}},
    ],
)
def test_whatever_is_wrong_is_refused_before_anything_is_written(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(FDGError):
        prepared(tmp_path / "sweep", **changes)
    assert not (tmp_path / "sweep").exists()


def test_a_request_takes_from_the_folder_what_is_not_said_and_has_one_name_for_a_method() -> None:
    before = make_request({**DIGITS, "seeds": (0, 1), "settings": {"kappa": (0.1, 0.3)}}, None)
    assert make_request({}, before) == before
    grown = make_request({"seeds": (0, 1, 2), "settings": {"rounds": (5,)}}, before)
    assert (grown.seeds, grown.settings) == ((0, 1, 2), {"kappa": (0.1, 0.3), "rounds": (5,)})
    spelt = make_request({"methods": ("fedavg+ga", "fedga"), "settings": {"fedavg+ga:step_size": (0.1,)}}, None)
    assert (spelt.methods, spelt.targets, [*spelt.settings]) == (("fedga",), PACS.domains, ["fedga:step_size"])
    assert make_request({"methods": ("erm",), "dataset": "mnist"}, None).targets == ("test",)


def test_a_sweep_goes_on_from_its_folder_and_a_large_simulation_says_so(tmp_path: Path) -> None:
    store = Store(tmp_path)
    first = prepare(BOTH, store, {})
    store.write(first.content, [])
    assert prepare({}, store, {}) == first
    with pytest.raises(SettingsError):
        prepare({"settings": {"rounds": (4,)}}, store, {})
    command = ENGINES[EngineName.SIMULATOR].command
    assert tuple(command(2, 101))[-2:] == ("-m", "101")
    assert "-m" not in command(2, 100)


def test_a_reference_makes_as_many_passes_as_the_rounds_unless_steps_are_named(tmp_path: Path) -> None:
    three = {"rounds": (3,), "local_epochs": (2,), "max_samples_per_domain": (100,), "irm:strength": (1, 10)}
    federated, *pooled = prepare({**BOTH, "settings": three}, Store(tmp_path), {}).plan
    images = 2 * 90  # two passes over the nine tenths of 100 images that train
    for run in pooled:
        protocol = make_job(run, stand_in=False).protocol
        assert protocol.rounds == federated.settings["rounds"] == 3
        assert 0 <= run.settings["checkpoint_every"] * protocol.batch_size - images < protocol.batch_size
        assert run.settings["steps"] == 3 * run.settings["checkpoint_every"]
    named = prepare({**BOTH, "settings": {**three, "steps": (7,)}}, Store(tmp_path), {}).plan[1]
    assert (named.settings["steps"], "checkpoint_every" in named.settings) == (7, False)
