# SPDX-License-Identifier: Apache-2.0
"""From names and values to one run: defaults of paper, quick and stand-in; what contradicts itself is refused."""

from typing import Any

import pytest

from fdg_plugins.centralised import ALGORITHMS
from fdg_plugins.centralised.plan import Plan, make_plan, setting_names
from fdg_plugins.centralised.schedule import SHARED_SETTINGS, Schedule
from fdg_plugins.errors import SettingsError
from fdg_plugins.plans.plans import make_plans
from fdg_plugins.settings.families import dataset_protocol
from fdg_plugins.settings.named_protocols import protocol_settings
from fdg_plugins.settings.protocol import Protocol


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


@pytest.mark.parametrize("dataset", ["pacs", "vlcs", "officehome", "rotatedmnist", "rotateddigits"])
@pytest.mark.parametrize("protocol", ["paper", "quick"])
@pytest.mark.parametrize("stand_in", [False, True])
def test_network_and_images_are_those_of_the_federated_runs(dataset: str, protocol: str, stand_in: bool) -> None:
    target = {"pacs": "photo", "vlcs": "sun09", "officehome": "art"}.get(dataset, "angle_0")
    own = plan(dataset=dataset, target=target, protocol=protocol, stand_in=stand_in).protocol
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
        ({"given": {"seed": 5}}, "seed is no setting of a centralised run, expected it as --seed"),
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
