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


def test_a_protocol_cannot_be_changed_after_it_was_made() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Protocol().rounds = 3  # type: ignore[misc]


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


@pytest.mark.parametrize("empty", ["", " ", "\t"])
def test_an_empty_variable_counts_as_unset(empty: str) -> None:
    assert environment_settings({"FDG_ROUNDS": empty}) == {}


def test_blanks_and_line_ends_around_a_variable_do_not_count() -> None:
    assert environment_settings({"FDG_MODEL": " resnet18\r\n"}) == {"model": "resnet18"}


@pytest.mark.parametrize(
    ("variable", "text", "value"),
    [
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
    ],
)
def test_text_of_the_environment_is_read_as_the_type_of_its_field(variable: str, text: str, value: Any) -> None:
    protocol = make_protocol([environment_settings({variable: text})])
    read = getattr(protocol, variable.removeprefix("FDG_").lower())
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
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
    ],
)
def test_a_value_out_of_range_is_refused_by_field_variable_and_value(name: str, value: Any) -> None:
    with pytest.raises(SettingsError) as caught:
        make_protocol([{name: value}])
    text = str(caught.value)
    assert text.startswith(f"setting {name} (FDG_{name.upper()}) is {value!r}: input should be ")
    assert "\n" not in text
    assert text.endswith(".")


@pytest.mark.parametrize(
    ("layer", "text"),
    [
        ({"objective": "{no"}, "setting objective (FDG_OBJECTIVE) is '{no': it is not valid JSON: Expecting "),
        ({"plugins": ["fine", "My"]}, "setting plugins.1 (FDG_PLUGINS) is 'My': string should match pattern "),
        ({"dataset": 3}, "setting dataset (FDG_DATASET) is 3: input should be a valid string."),
        (
            {"dataset": {"name": "x", "domains": ["../Alpha", "B"], "classes": ["a", "b"]}},
            "setting dataset (FDG_DATASET) is a mapping of 3 keys: dataset: domains.0 is '../Alpha', but it should be ",
        ),
    ],
)
def test_what_is_said_against_a_value_keeps_its_capitals_and_names_the_variable_of_the_field(
    layer: dict[str, Any], text: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        make_protocol([layer])
    assert str(caught.value).startswith(text)
    assert "alue error" not in str(caught.value)
    assert not str(caught.value).endswith("..")


# --- parting ----------------------------------------------------------------------------------------


def test_settings_are_parted_into_those_of_protocol_aggregator_and_objective() -> None:
    given = {"rounds": 3, "kappa": "0.4", "seed": 1, "strength": "0.1"}
    parted = part_settings(given, AGGREGATOR, ["strength", "kappa", "seed"], "test")
    assert parted.protocol == {"rounds": 3, "seed": 1}
    assert parted.aggregator == {"kappa": "0.4"}
    assert parted.objective == {"strength": "0.1"}


def test_a_name_that_is_no_text_is_refused_as_unknown() -> None:
    job: Any = {3: 1}  # as YAML may have it
    with pytest.raises(SettingsError, match="environment: there is no setting 3; known are"):
        part_settings(job, AGGREGATOR, [], "environment")


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [("round", "rounds"), ("learning-rate", "learning_rate"), ("kapa", "kappa"), ("data_rot", "data_root")],
)
def test_an_unknown_setting_is_refused_with_the_nearest_known_one(wrong: str, meant: str) -> None:
    with pytest.raises(SettingsError, match=rf"environment: there is no setting '{wrong}'; did you mean '{meant}'\?$"):
        part_settings({wrong: "1"}, AGGREGATOR, [], "environment")


def test_an_unknown_setting_like_no_other_is_refused_with_all_known_ones() -> None:
    with pytest.raises(SettingsError, match=r"there is no setting 'xyzzy'; known are .*batch_size.*kappa.*rounds"):
        part_settings({"xyzzy": 1}, AGGREGATOR, [], "config")


def test_a_setting_of_an_aggregator_is_unknown_where_none_is_asked_for() -> None:
    with pytest.raises(SettingsError, match="no setting 'kappa'"):
        part_settings({"kappa": 0.5}, [], [], "config of the job, protocol")


# --- learning rate ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rounds", "at", "first"), [(100, 0.8, 80), (90, 0.7, 63), (10, 0.5, 5), (4, 0.8, 3), (3, 0.8, 2)]
)
def test_the_learning_rate_falls_once_at_its_fraction_of_the_rounds(rounds: int, at: float, first: int) -> None:
    protocol = Protocol(rounds=rounds, lr_decay_at=at, learning_rate=0.5, lr_decay_factor=0.25)
    rates = [protocol.learning_rate_at(number) for number in range(rounds)]
    assert rates == [0.5] * first + [0.125] * (rounds - first)


def test_the_learning_rate_never_falls_in_a_single_round_or_at_the_end_of_all() -> None:
    assert Protocol(rounds=1, learning_rate=0.5).learning_rate_at(0) == 0.5
    protocol = Protocol(rounds=5, learning_rate=0.5, lr_decay_at=1.0)
    assert {protocol.learning_rate_at(number) for number in range(5)} == {0.5}


def test_the_environment_can_lift_a_limit_on_samples_and_the_rate_never_falls_in_the_first_round() -> None:
    limited = {"max_samples_per_domain": 100, "rounds": 5, "lr_decay_at": 0.1}
    protocol = make_protocol([limited, {"max_samples_per_domain": "none"}])
    assert protocol.max_samples_per_domain is None
    rates = [protocol.learning_rate_at(number) for number in range(5)]
    assert rates == pytest.approx([1e-3, 1e-4, 1e-4, 1e-4, 1e-4])


def test_a_site_has_parameters_of_its_own_by_the_rule_of_what_travels_or_that_of_batch_norm() -> None:
    ways: list[dict[str, Any]] = [{}, {"travels": "body"}, {"batch_norm": "local"}, {"batch_norm": "reestimate"}]
    assert [Protocol(**way).keeps_personal for way in ways] == [False, True, True, False]
