# SPDX-License-Identifier: Apache-2.0
"""The protocol: the paper's values by default, the operator's word last, and a refusal that says where to look."""

import math
from typing import Any

import pytest

from fdg_plugins.errors import SettingsError
from fdg_plugins.settings.protocol import OTHER_VARIABLES, Protocol, environment_settings, make_protocol, part_settings


def test_the_defaults_are_those_of_the_paper_for_pacs_and_later_layers_win_field_by_field() -> None:
    protocol = make_protocol([])
    assert (protocol.dataset, protocol.model, protocol.image_size) == ("pacs", "resnet18", 224)
    assert (protocol.rounds, protocol.local_epochs, protocol.batch_size) == (100, 5, 16)
    protocol = make_protocol([{"rounds": 50, "seed": 1}, {"rounds": 7, "batch_size": 8}, {"batch_size": "4"}])
    assert (protocol.rounds, protocol.seed, protocol.batch_size, protocol.local_epochs) == (7, 1, 4, 5)


def test_variables_become_settings_by_lower_case_name_and_others_are_left_to_their_readers() -> None:
    environment = {"FDG_ROUNDS": "3", "FDG_KAPPA": "0.5", "HOME": "/root", "NVFLARE_FDG_ROUNDS": "9", "fdg_seed": "1"}
    environment |= dict.fromkeys(OTHER_VARIABLES, "x")
    assert environment_settings(environment) == {"rounds": "3", "kappa": "0.5"}


@pytest.mark.parametrize(
    ("variable", "text", "value"),
    [
        ("FDG_LEARNING_RATE", "1e-2", 0.01),
        ("FDG_CHANNELS_LAST", "true", True),
        ("FDG_SITES_PER_ROUND", "none", None),
        ("FDG_PATIENCE", " None ", None),
        ("FDG_PLUGINS", "fair, ,nearer,", ("fair", "nearer")),
        ("FDG_OBJECTIVE", "dim", {"name": "dim"}),
        ("FDG_OBJECTIVE", '{"name": "dim", "strength": 0.1}', {"name": "dim", "strength": 0.1}),
        ("FDG_TRAVELS", '{"frozen": ["extractor"]}', {"frozen": ("extractor",)}),
    ],
)
def test_text_of_the_environment_is_read_as_the_type_of_its_field(variable: str, text: str, value: Any) -> None:
    read = getattr(make_protocol([environment_settings({variable: text})]), variable.removeprefix("FDG_").lower())
    assert (read, type(read)) == (value, type(value))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rounds", "0"),
        ("rounds", 10**400),
        ("learning_rate", "nan"),
        ("weight_decay", math.inf),
        ("momentum", 1.0),
        ("max_samples_per_domain", 13),
        ("travels", {"shared": ["extractor"]}),
        ("travels", {}),
        ("dataset", {"name": "own"}),
        ("plugins", ["../x"]),
    ],
)
def test_a_value_out_of_range_is_refused_by_field_and_variable(name: str, value: Any) -> None:
    with pytest.raises(SettingsError) as caught:
        make_protocol([{name: value}])
    assert (caught.value.field, caught.value.value) == (name, value)
    assert str(caught.value).startswith(f"setting {name} (FDG_{name.upper()}) is ")
    assert "\n" not in str(caught.value)


def test_every_number_of_the_protocol_is_bounded_on_both_sides() -> None:
    for name, field in Protocol.model_fields.items():
        if field.annotation in (int, float, int | None, float | None):
            bounds = {type(bound).__name__ for bound in field.metadata}
            assert bounds & {"Ge", "Gt"}, name
            assert bounds & {"Le", "Lt"}, name


def test_an_unknown_setting_is_refused_with_the_nearest_known_one() -> None:
    for wrong, meant in {"learning-rate": "learning_rate", "kapa": "kappa", "data_rot": "data_root"}.items():
        with pytest.raises(SettingsError) as caught:
            part_settings({wrong: "1"}, ["kappa"], [], "environment")
        assert caught.value.field == wrong
        assert f"did you mean '{meant}'" in str(caught.value)


@pytest.mark.parametrize(
    ("rounds", "at", "first"), [(100, 0.8, 80), (90, 0.7, 63), (4, 0.8, 3), (3, 0.8, 2), (5, 0.1, 1)]
)
def test_the_learning_rate_falls_once_at_its_fraction_of_the_rounds(rounds: int, at: float, first: int) -> None:
    protocol = Protocol(rounds=rounds, lr_decay_at=at, learning_rate=0.5, lr_decay_factor=0.25)
    assert [protocol.learning_rate_at(number) for number in range(rounds)] == [0.5] * first + [0.125] * (rounds - first)
