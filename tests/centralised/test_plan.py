# SPDX-License-Identifier: Apache-2.0
"""From names and values to one run: defaults of paper, quick and stand-in; what contradicts itself is refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from fdg_plugins.data import dataset_spec
from fdg_plugins.data.catalogue import DATASETS
from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.centralised import ALGORITHMS
from fdg_plugins.lab.centralised.plan import (
    CUSTOM,
    SHARED_SETTINGS,
    Plan,
    Schedule,
    make_plan,
    read_plan,
    setting_names,
    write_plan,
)
from fdg_plugins.methods.fedavg import FedAvgAggregator
from fdg_plugins.objectives import build_network
from fdg_plugins.plans import make_plans
from fdg_plugins.plugins.files import load_file
from fdg_plugins.settings.defaults import dataset_protocol, protocol_settings
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.settings.site_config import SiteConfig
from fdg_plugins.training.loop import device_policy
from fdg_plugins.training.site_images import SiteImages

CPU = torch.device("cpu")
# What shapes network or images and is not a setting: arguments of a run, the method, and what one site a domain leaves.
SET_OTHERWISE = {
    *("dataset", "target", "seed", "task", "objective", "batch_size"),
    *("partition", "dirichlet_alpha", "mix_share", "least_images"),
}


def plan(algorithm: str = "irm", dataset: Any = "pacs", target: str = "sketch", **changes: Any) -> Plan:
    return make_plan(algorithm, dataset, target, 0, **changes)


def test_the_defaults_are_domainbeds() -> None:
    found = plan()
    assert found.schedule == Schedule("adam", 5001, 300)
    own = {"strength": 100.0, "warm_up": 500}
    assert found.settings() == {"optimizer": "adam", "steps": 5001, "checkpoint_every": 300, **own}
    protocol = found.protocol
    assert (protocol.learning_rate, protocol.batch_size, protocol.weight_decay, protocol.momentum) == (5e-5, 32, 0, 0)
    assert protocol.rounds == 17
    assert {protocol.learning_rate_at(number) for number in range(17)} == {5e-5}
    digits = plan(dataset="rotatedmnist", target="angle_0").protocol
    assert (digits.learning_rate, digits.batch_size) == (1e-3, 64)
    for steps, every, parts in ((10, 4, [4, 4, 2]), (8, 4, [4, 4]), (3, 4, [3])):
        schedule = Schedule(steps=steps, checkpoint_every=every)
        assert [schedule.steps_of(number) for number in range(1, schedule.checkpoints + 1)] == parts


class ReadProtocol:
    """A protocol that remembers which of its fields were read."""

    def __init__(self, protocol: Protocol) -> None:
        self.protocol, self.fields = protocol, set[str]()

    def __getattr__(self, name: str) -> Any:
        if name in Protocol.model_fields:
            self.fields.add(name)
        return getattr(self.protocol, name)


@pytest.mark.usefixtures("no_fdg_variables")
def test_every_setting_that_shapes_network_or_images_is_shared_with_the_federated_runs() -> None:
    protocol = plan(dataset="rotateddigits", target="angle_0", given={"trainable": "head"}).protocol
    watched = ReadProtocol(protocol)
    seen = cast(Protocol, watched)
    build_network(seen, 10)
    device_policy(seen, CPU)
    images = SiteImages("angle_15", SiteConfig(device="cpu"), seen, CPU, None, frozenset(), None)
    next(iter(next(images.epochs(1, 0))))
    assert {"normalization", "preset", "image_size", "model"} <= watched.fields, "the watch sees what is read"
    assert watched.fields - SET_OTHERWISE <= set(SHARED_SETTINGS)
    assert all({*SHARED_SETTINGS} <= {*setting_names(algorithm)} for algorithm in ALGORITHMS)


@pytest.mark.parametrize("protocol", ["paper", "quick"])
def test_what_the_record_of_a_data_set_says_of_steps_comes_before_domainbed(protocol: str) -> None:
    adam = {"batch_size": 3, "optimizer": "adam", "learning_rate": 3e-4, "weight_decay": 1e-2}
    spec, plain = dataset_spec("pacs"), plan("erm", "pacs", protocol=protocol).protocol
    for own, rate, decay in ((adam, 3e-4, 1e-2), ({**adam, "optimizer": "sgd"}, plain.learning_rate, 0.0)):
        DATASETS.add(replace(spec, name=f"with_{own['optimizer']}", protocol={**spec.protocol, **own}))
        found = plan("erm", f"with_{own['optimizer']}", protocol=protocol).protocol
        assert (found.batch_size, found.optimizer) == (3, "adam")
        assert (found.learning_rate, found.weight_decay) == (rate, decay)


@pytest.mark.parametrize(("dataset", "target"), [("pacs", "photo"), ("rotatedmnist", "angle_0"), ("vessels", "drive")])
@pytest.mark.parametrize("protocol", ["paper", "quick"])
@pytest.mark.parametrize("stand_in", [False, True])
def test_network_is_the_federated_runs(dataset: str, target: str, protocol: str, stand_in: bool) -> None:
    own = plan("erm", dataset, target, protocol=protocol, stand_in=stand_in).protocol
    defaults = dataset_protocol(dataset)
    # as a recipe lays them over each other: what a sweep sets holds on the stand-in too
    layers = (defaults.protocol, defaults.stand_in if stand_in else {}, protocol_settings(protocol, dataset))
    job = {name: value for layer in layers for name, value in layer.items() if name in Protocol.model_fields}
    federated = make_plans({"dataset": dataset, "target": target, **job}, {}, {}, FedAvgAggregator()).real.protocol
    assert all(getattr(own, name) == getattr(federated, name) for name in SHARED_SETTINGS)


@pytest.mark.parametrize(("algorithm", "warm_up"), [("irm", 30), ("fishr", 90)])
def test_a_warm_up_is_the_same_share_of_any_number_of_steps(algorithm: str, warm_up: int) -> None:
    for changes in ({"protocol": "quick"}, {"stand_in": True}, {"given": {"steps": 300}}):
        made = plan(algorithm, **changes)
        assert (made.schedule.steps, made.settings()["warm_up"]) == (300, warm_up)
    assert plan(algorithm, given={"steps": 300, "warm_up": 7}).settings()["warm_up"] == 7
    assert plan(algorithm, given={"strength": 0, "warm_up": 9999}).algorithm.restarts_at is None


def test_sgd_brings_rate_momentum_and_weight_decay_of_the_federated_runs() -> None:
    protocol = plan(given={"optimizer": "sgd"}).protocol
    assert (protocol.learning_rate, protocol.momentum, protocol.weight_decay) == (1e-3, 0.9, 5e-4)
    assert plan(given={"optimizer": "sgd"}, protocol="quick").protocol.learning_rate == 0.01
    assert plan(dataset="rotatedmnist", target="angle_0", given={"optimizer": "sgd"}).protocol.weight_decay == 0.0


@pytest.mark.parametrize(
    "changes",
    [
        {"algorithm": "mixup"},
        {"dataset": "vessels", "target": "drive"},
        *({"given": {name: 5}} for name in ("rounds", "stength", "seed")),
        *({"given": {"checkpoint_every": value}} for value in (0, 2.5)),
        *({"given": {"batch_size": value}} for value in (1, "many")),
        {"given": {"warm_up": 5001}},
        {"given": {"model": "groupnorm_convnet"}},
    ],
)
def test_what_is_wrong_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(SettingsError):
        plan(**changes)


@pytest.mark.parametrize(
    ("algorithm", "changes"),
    [
        ("irm", {"given": {"strength": 0.5, "warm_up": 3, "max_samples_per_domain": None, "scores": "f1+auroc"}}),
        ("fish", {"protocol": "quick"}),
        ("erm", {"stand_in": True, "given": {"optimizer": "sgd"}}),
        ("local", {"protocol": "quick", "stand_in": True, "given": {"max_samples_per_domain": "none"}}),
    ],
)
def test_a_plan_is_read_as_it_was_written(algorithm: str, changes: dict[str, Any], tmp_path: Path) -> None:
    made = plan(algorithm, **changes)
    write_plan(made, tmp_path)
    assert read_plan(tmp_path) == made


def test_a_data_set_that_a_file_brings_goes_with_the_plan(tmp_path: Path) -> None:
    text = "from dataclasses import replace\nfrom fdg_plugins.data import PACS\nONE = replace(PACS, name='seasons')\n"
    (tmp_path / "seasons.py").write_text(text, encoding="utf-8")
    load_file(tmp_path / "seasons.py")
    write_plan(plan(dataset="seasons"), tmp_path / "job")
    assert (tmp_path / "job" / CUSTOM / "seasons.py").read_text() == text
    assert read_plan(tmp_path / "job").protocol.dataset == "seasons"
