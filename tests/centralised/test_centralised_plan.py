# SPDX-License-Identifier: Apache-2.0
"""From names and values to one run: defaults of paper, quick and stand-in; what contradicts itself is refused."""

from dataclasses import replace
from typing import Any, cast

import pytest
import torch

from fdg_plugins.data import dataset_spec
from fdg_plugins.data.catalogue import DATASETS
from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.centralised import ALGORITHMS
from fdg_plugins.lab.centralised.plan import Plan, make_plan, setting_names
from fdg_plugins.lab.centralised.schedule import SHARED_SETTINGS, Schedule
from fdg_plugins.objectives import build_network
from fdg_plugins.plans.plans import make_plans
from fdg_plugins.plugins.own_dataset import OwnDataset
from fdg_plugins.settings.families import dataset_protocol
from fdg_plugins.settings.named_protocols import protocol_settings
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.settings.site_config import SiteConfig
from fdg_plugins.training.precision import device_policy
from fdg_plugins.training.site_images import SiteImages

CPU = torch.device("cpu")
# What shapes network or images and is not a setting: arguments of a run, the method, and what one site a domain leaves.
SET_OTHERWISE = {
    *("dataset", "target", "seed", "task", "objective", "batch_size"),
    *("partition", "dirichlet_alpha", "least_images"),
}


def plan(algorithm: str = "irm", dataset: str = "pacs", target: str = "sketch", **changes: Any) -> Plan:
    return make_plan(algorithm, dataset, target, 0, **changes)


def test_on_photographs_the_defaults_are_domainbeds() -> None:
    found = plan()
    assert found.schedule == Schedule("adam", 5001, 300)
    assert found.settings() == {
        "optimizer": "adam", "steps": 5001, "checkpoint_every": 300, "strength": 100.0, "warm_up": 500,
    }  # fmt: skip
    protocol = found.protocol
    assert (protocol.learning_rate, protocol.batch_size, protocol.weight_decay, protocol.momentum) == (5e-5, 32, 0, 0)
    assert (protocol.dataset, protocol.target, protocol.seed) == ("pacs", "sketch", 0)


def test_on_digits_rate_and_batch_are_larger() -> None:
    for dataset in ("rotatedmnist", "rotatedmnist_7k", "rotateddigits"):
        protocol = plan(dataset=dataset, target="angle_0").protocol
        assert (protocol.learning_rate, protocol.batch_size) == (1e-3, 64)


def test_a_round_is_a_checkpoint_and_the_rate_never_falls() -> None:
    protocol = plan().protocol
    assert protocol.rounds == 17
    assert {protocol.learning_rate_at(number) for number in range(17)} == {5e-5}


@pytest.mark.parametrize(("steps", "every", "parts"), [(10, 4, [4, 4, 2]), (8, 4, [4, 4]), (3, 4, [3]), (1, 1, [1])])
def test_checkpoints_share_the_steps_and_the_last_takes_the_rest(steps: int, every: int, parts: list[int]) -> None:
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
    protocol = plan(dataset="rotateddigits", target="angle_0", given={"trainable": "adapters"}).protocol
    watched = ReadProtocol(protocol)
    seen = cast(Protocol, watched)
    build_network(seen, 10)
    device_policy(seen, CPU)
    images = SiteImages("angle_15", SiteConfig(device="cpu"), seen, CPU, None, frozenset(), None)
    next(iter(next(images.epochs(1, 0))))
    assert {"normalization", "preset", "image_size", "model"} <= watched.fields, "the watch sees what is read"
    assert watched.fields - SET_OTHERWISE <= set(SHARED_SETTINGS)


@pytest.mark.parametrize("name", SHARED_SETTINGS)
def test_what_is_shared_can_be_set_for_every_reference(name: str) -> None:
    assert all(name in setting_names(algorithm) for algorithm in ALGORITHMS)


def test_a_reference_on_masks_trains_the_network_of_the_federated_runs() -> None:
    assert plan("erm", "vessels", "drive").protocol.normalization == "batch"
    assert plan("erm", "vessels", "drive", given={"normalization": "group"}).protocol.normalization == "group"
    assert plan("erm", "vessels", "drive", given={"preset": "photo_patches"}).protocol.preset == "photo_patches"


def scans(**changes: Any) -> OwnDataset:
    """Return the description of images with masks."""
    fields: dict[str, Any] = {"name": "scans", "domains": ("a", "b", "c"), "classes": ("background", "lesion")}
    return OwnDataset(**{**fields, "task": "segmentation", "channels": 1, **changes})


@pytest.mark.parametrize("dataset", [scans(), scans(channels=3), scans(dims=3, preset="mri_patches"), "vessels"])
@pytest.mark.parametrize("protocol", ["paper", "quick"])
def test_on_masks_a_reference_takes_rate_and_batch_of_the_federated_runs(dataset: Any, protocol: str) -> None:
    target = "drive" if dataset == "vessels" else "a"
    found = make_plan("erm", dataset, target, 0, protocol=protocol).protocol
    assert (found.optimizer, found.learning_rate, found.batch_size, found.weight_decay) == ("adam", 1e-3, 4, 0)


@pytest.mark.parametrize("kind", ["pacs", "rotateddigits", "vessels"])
@pytest.mark.parametrize("protocol", ["paper", "quick"])
def test_what_the_record_of_a_data_set_says_of_steps_comes_before_domainbed(kind: str, protocol: str) -> None:
    adam = {"batch_size": 3, "optimizer": "adam", "learning_rate": 3e-4, "weight_decay": 1e-2}
    spec = dataset_spec(kind)
    for number, (own, expected) in enumerate(((adam, (3e-4, 1e-2)), ({**adam, "optimizer": "sgd"}, (None, 0.0)))):
        name = f"{kind}_{protocol}_{number}"
        DATASETS.add(replace(spec, name=name, protocol={**spec.protocol, **own}))
        found = plan("erm", name, spec.domains[0], protocol=protocol).protocol
        DATASETS.remove(name)
        plain = plan("erm", kind, spec.domains[0], protocol=protocol).protocol
        batch = protocol_settings(protocol, kind).get("batch_size", 3)  # a protocol by name comes before a record
        assert (found.batch_size, found.optimizer) == (batch, "adam")
        assert (found.learning_rate, found.weight_decay) == (expected[0] or plain.learning_rate, expected[1])


@pytest.mark.parametrize("dataset", ["pacs", "vlcs", "officehome", "rotatedmnist", "rotateddigits", "vessels"])
@pytest.mark.parametrize("protocol", ["paper", "quick"])
@pytest.mark.parametrize("stand_in", [False, True])
def test_network_and_images_are_those_of_the_federated_runs(dataset: str, protocol: str, stand_in: bool) -> None:
    target = {"pacs": "photo", "vlcs": "sun09", "officehome": "art", "vessels": "drive"}.get(dataset, "angle_0")
    own = plan("erm", dataset, target, protocol=protocol, stand_in=stand_in).protocol
    defaults, base = dataset_protocol(dataset), protocol_settings(protocol, dataset)
    base = {name: value for name, value in base.items() if name in Protocol.model_fields}
    # as a recipe lays them over each other: what a sweep sets holds on the stand-in too
    drawn = (
        {name: value for name, value in defaults.stand_in.items() if name in Protocol.model_fields} if stand_in else {}
    )
    job = {"dataset": dataset, "target": target, **defaults.protocol, **drawn, **base}
    federated = make_plans(job, {}, {}, []).real.protocol
    assert {name: getattr(own, name) for name in SHARED_SETTINGS} == {
        name: getattr(federated, name) for name in SHARED_SETTINGS
    }


@pytest.mark.parametrize(("algorithm", "warm_up"), [("irm", 30), ("vrex", 30), ("fishr", 90)])
def test_a_warm_up_is_the_same_share_of_any_number_of_steps(algorithm: str, warm_up: int) -> None:
    for made in (
        plan(algorithm, protocol="quick"),
        plan(algorithm, stand_in=True),
        plan(algorithm, given={"steps": 300}),
    ):
        assert made.schedule.steps == 300
        assert made.settings()["warm_up"] == warm_up
    assert plan(algorithm, given={"steps": 300, "warm_up": 7}).settings()["warm_up"] == 7


def test_sgd_brings_rate_momentum_and_weight_decay_of_the_federated_runs() -> None:
    protocol = plan(given={"optimizer": "sgd"}).protocol
    assert (protocol.learning_rate, protocol.momentum, protocol.weight_decay) == (1e-3, 0.9, 5e-4)
    assert plan(given={"optimizer": "sgd"}, protocol="quick").protocol.learning_rate == 0.01
    assert plan(given={"optimizer": "sgd", "learning_rate": 0.5}, protocol="quick").protocol.learning_rate == 0.5
    assert plan(dataset="rotatedmnist", target="angle_0", given={"optimizer": "sgd"}).protocol.weight_decay == 0.0


def test_what_is_set_beats_every_default() -> None:
    given = {"steps": 12, "checkpoint_every": 5, "image_size": 48, "batch_size": 9, "strength": 3, "warm_up": 2}
    for changes in ({}, {"protocol": "quick"}, {"stand_in": True}):
        found = plan(given=given, **changes)
        assert found.settings() == {
            "optimizer": "adam", "steps": 12, "checkpoint_every": 5, "strength": 3.0, "warm_up": 2,
        }  # fmt: skip
        assert (found.protocol.image_size, found.protocol.batch_size, found.protocol.rounds) == (48, 9, 3)


@pytest.mark.parametrize("algorithm", list(ALGORITHMS))
def test_every_algorithm_has_a_plan_for_every_protocol(algorithm: str) -> None:
    for protocol in ("paper", "quick"):
        made = plan(algorithm, protocol=protocol)
        assert made.algorithm.name == algorithm
        assert set(made.settings()) <= set(setting_names(algorithm))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"target": "angle_0"}, "target is 'angle_0', expected a domain of pacs: art_painting"),
        ({"dataset": "imagenet"}, "data set 'imagenet' is unknown"),
        ({"algorithm": "mixup"}, "algorithm is 'mixup', expected one of erm"),
        ({"protocol": "slow"}, "protocol is 'slow', expected one of paper, quick"),
        ({"given": {"rounds": 5}}, "a centralised run of 'irm' has no setting 'rounds'; known are strength"),
        ({"given": {"stength": 5}}, "no setting 'stength'; did you mean 'strength'?"),
        ({"given": {"seed": 5}}, "seed is not a setting of a centralised run, expected it as --seed"),
        ({"given": {"steps": 0}}, "steps is 0, expected a whole number of at least 1"),
        ({"given": {"checkpoint_every": 2.5}}, "checkpoint_every is 2.5"),
        ({"given": {"optimizer": "lbfgs"}}, "optimizer is 'lbfgs', expected one of adam, adamw, sgd"),
        ({"given": {"batch_size": 1}}, "batch_size is 1, expected at least 2 images per domain"),
        ({"given": {"batch_size": "many"}}, "batch_size"),
        ({"given": {"momentum": 0.9}}, "momentum is 0.9, expected 0: it is a setting of the optimizer 'sgd'"),
        ({"given": {"warm_up": 5001}}, "warm_up is 5001 of 5001 steps, expected less: the strength 100 would never"),
        ({"given": {"model": "groupnorm_convnet"}}, "takes 1 channels, but the images of pacs have 3"),
    ],
)
def test_what_is_wrong_is_one_sentence(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingsError) as refused:
        plan(**changes)
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_penalty_that_is_off_may_wait_for_ever() -> None:
    assert plan(given={"strength": 0, "warm_up": 9999}).algorithm.restarts_at is None
