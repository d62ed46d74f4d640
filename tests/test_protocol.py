# SPDX-License-Identifier: Apache-2.0
"""The protocol: the paper's values by default, the operator's word last, and a refusal that says where to look."""

import math
from typing import Any

import pytest

from fdg_plugins.errors import SettingsError
from fdg_plugins.settings.protocol import OTHER_VARIABLES, Protocol, environment_settings, make_protocol, part_settings

AGGREGATOR = ["kappa", "server_lr", "rescale", "weighting"]


def test_the_defaults_are_those_of_the_paper_for_pacs() -> None:
    protocol = Protocol()
    assert (protocol.dataset, protocol.model, protocol.image_size) == ("pacs", "resnet18", 224)
    assert (protocol.rounds, protocol.local_epochs, protocol.batch_size) == (100, 5, 16)
    assert protocol.learning_rate == 1e-3
    assert (protocol.precision, protocol.channels_last, protocol.max_samples_per_domain) == ("float32", False, None)


# --- layers -----------------------------------------------------------------------------------------


def test_later_layers_win_field_by_field() -> None:
    protocol = make_protocol([{"rounds": 50, "seed": 1}, {"rounds": 7, "batch_size": 8}, {"batch_size": "4"}])
    assert (protocol.rounds, protocol.seed, protocol.batch_size, protocol.local_epochs) == (7, 1, 4, 5)
    assert make_protocol([]) == Protocol()


# --- environment ------------------------------------------------------------------------------------


def test_variables_become_settings_by_lower_case_name_and_others_are_left_to_their_readers() -> None:
    environment = {"FDG_ROUNDS": "3", "FDG_KAPPA": "0.5", "HOME": "/root", "NVFLARE_FDG_ROUNDS": "9", "fdg_seed": "1"}
    environment |= dict.fromkeys(OTHER_VARIABLES, "x")
    assert environment_settings(environment) == {"rounds": "3", "kappa": "0.5"}


def test_text_of_the_environment_is_read_as_the_type_of_its_field() -> None:
    cases: list[tuple[str, str, Any]] = [
        ("FDG_ROUNDS", "3", 3),
        ("FDG_LEARNING_RATE", "1e-2", 0.01),
        ("FDG_WEIGHT_DECAY", "0", 0.0),
        ("FDG_MAX_SAMPLES_PER_DOMAIN", "140", 140),
        ("FDG_PRETRAINED", "none", "none"),
        ("FDG_CHANNELS_LAST", "true", True),
        ("FDG_CHANNELS_LAST", "0", False),
        ("FDG_PRECISION", "bfloat16", "bfloat16"),
        ("FDG_SITES_PER_ROUND", "5", 5),
        ("FDG_SITES_PER_ROUND", "none", None),
        ("FDG_PATIENCE", " None ", None),
        ("FDG_PLUGINS", "fair, ,nearer,", ("fair", "nearer")),
        ("FDG_OBJECTIVE", "dim", {"name": "dim"}),
        ("FDG_OBJECTIVE", '{"name": "dim", "strength": 0.1}', {"name": "dim", "strength": 0.1}),
    ]
    for variable, text, value in cases:
        protocol = make_protocol([environment_settings({variable: text})])
        read = getattr(protocol, variable.removeprefix("FDG_").lower())
        assert read == value
        assert type(read) is type(value)


def test_a_value_out_of_range_is_refused_by_field_variable_and_value() -> None:
    cases: list[tuple[str, Any]] = [
        ("rounds", "0"),
        ("rounds", "2.5"),
        ("rounds", "many"),
        ("local_epochs", 0),
        ("batch_size", -1),
        ("learning_rate", "0"),
        ("learning_rate", "nan"),
        ("learning_rate", math.inf),
        ("weight_decay", "inf"),
        ("weight_decay", -1e-4),
        ("momentum", 1.0),
        ("lr_decay_at", 1.1),
        ("lr_decay_factor", 0),
        ("image_size", 15),
        ("max_samples_per_domain", 13),
        ("seed", 2**31),
        ("precision", "float16"),
        ("pretrained", "yes"),
        ("min_sites", 0),
        ("task_timeout", 0),
        ("target", 3),
    ]
    for name, value in cases:
        with pytest.raises(SettingsError) as caught:
            make_protocol([{name: value}])
        text = str(caught.value)
        assert text.startswith(f"setting {name} (FDG_{name.upper()}) is {value!r}: input should be ")
        assert "\n" not in text
        assert text.endswith(".")


# --- parting ----------------------------------------------------------------------------------------


def test_settings_are_parted_into_those_of_protocol_aggregator_and_objective() -> None:
    given = {"rounds": 3, "kappa": "0.4", "seed": 1, "strength": "0.1"}
    parted = part_settings(given, AGGREGATOR, ["strength", "kappa", "seed"], "test")
    assert parted.protocol == {"rounds": 3, "seed": 1}
    assert parted.aggregator == {"kappa": "0.4"}
    assert parted.objective == {"strength": "0.1"}


def test_an_unknown_setting_is_refused_with_the_nearest_known_one() -> None:
    cases: list[tuple[str, str]] = [
        ("round", "rounds"),
        ("learning-rate", "learning_rate"),
        ("kapa", "kappa"),
        ("data_rot", "data_root"),
    ]
    for wrong, meant in cases:
        with pytest.raises(
            SettingsError, match=rf"environment: there is no setting '{wrong}'; did you mean '{meant}'\?$"
        ):
            part_settings({wrong: "1"}, AGGREGATOR, [], "environment")


# --- learning rate ----------------------------------------------------------------------------------


def test_the_learning_rate_falls_once_at_its_fraction_of_the_rounds() -> None:
    cases: list[tuple[int, float, int]] = [(100, 0.8, 80), (90, 0.7, 63), (10, 0.5, 5), (4, 0.8, 3), (3, 0.8, 2)]
    for rounds, at, first in cases:
        protocol = Protocol(rounds=rounds, lr_decay_at=at, learning_rate=0.5, lr_decay_factor=0.25)
        rates = [protocol.learning_rate_at(number) for number in range(rounds)]
        assert rates == [0.5] * first + [0.125] * (rounds - first)


def test_the_environment_can_lift_a_limit_on_samples_and_the_rate_never_falls_in_the_first_round() -> None:
    limited = {"max_samples_per_domain": 100, "rounds": 5, "lr_decay_at": 0.1}
    protocol = make_protocol([limited, {"max_samples_per_domain": "none"}])
    assert protocol.max_samples_per_domain is None
    rates = [protocol.learning_rate_at(number) for number in range(5)]
    assert rates == pytest.approx([1e-3, 1e-4, 1e-4, 1e-4, 1e-4])


def test_a_site_has_parameters_of_its_own_by_the_rule_of_what_travels_or_that_of_batch_norm() -> None:
    ways: list[dict[str, Any]] = [{}, {"travels": "body"}, {"batch_norm": "local"}, {"batch_norm": "reestimate"}]
    assert [Protocol(**way).keeps_personal for way in ways] == [False, True, True, False]
