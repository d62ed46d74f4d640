# SPDX-License-Identifier: Apache-2.0
"""Methods by name: one name for one method, in whatever order its parts are written."""

import itertools

import pytest

from fdg_plugins.errors import SettingsError
from fdg_plugins.plugins import composition
from fdg_plugins.plugins.composition import (
    PLAIN,
    Composition,
    compositions,
    objective_parts,
    parse_method,
    published,
    title_of,
    weighting_parts,
)
from fdg_plugins.plugins.methods import METHODS as RECORDS
from fdg_plugins.recipes import METHODS

EVERY_METHOD = compositions()


def test_the_name_of_a_composition_names_it_and_no_other() -> None:
    assert [parse_method(made.name) for made in EVERY_METHOD] == EVERY_METHOD
    names = [made.name for made in EVERY_METHOD]
    assert len(set(names)) == len(names)
    assert set(METHODS) <= set(names)


def test_every_weighting_goes_with_every_objective_unless_one_method_has_both() -> None:
    pairs = {(made.weighting, made.objective) for made in EVERY_METHOD if made.direction == "fedavg"}
    every = set(itertools.product((None, *weighting_parts()), (PLAIN, *objective_parts())))
    apart: set[tuple[str | None, str]] = {("as", name) for name in (PLAIN, *objective_parts()) if name != "as"}
    apart |= {(name, "as") for name in (None, *weighting_parts()) if name != "as"}
    assert pairs == every - apart


def test_a_method_with_a_weighting_and_an_objective_is_named_once() -> None:
    assert parse_method("as") == Composition("fedavg", "as", "as")
    assert parse_method("as+omg").name == "fedomg+as"
    assert title_of("fedomg+as") == "FedOMG + AS"
    assert [record.key for record in parse_method("fedomg+as").records] == ["fedomg", "fedas"]


def test_the_order_of_the_parts_makes_no_difference_and_a_second_in_a_place_is_refused() -> None:
    cases_2: list[list[str]] = [["ga"], ["ga", "dim"], ["fedomg", "iir"]]
    for base in published():
        for parts in cases_2:
            texts = ["+".join(order) for order in itertools.permutations([base, *parts])]
            taken = [place for part in (base, *parts) for place in composition.places_of(RECORDS.get(part))]
            if len(set(taken)) < len(taken):
                for text in texts:
                    with pytest.raises(SettingsError, match=r"both set the (direction|weighting|objective)"):
                        parse_method(text)
            else:
                assert len({parse_method(text) for text in texts}) == 1


def test_parts_that_were_published_together_have_that_name() -> None:
    assert {text: parse_method(text).name for text in ("fedavg+ga", "fedavg+dim", "fedavg+iir", "fedga+dim")} == {
        "fedavg+ga": "fedga",
        "fedavg+dim": "feddim",
        "fedavg+iir": "fediir",
        "fedga+dim": "feddim+ga",
    }


def test_a_title_is_the_name_as_people_write_it_and_what_nobody_knows_stays() -> None:
    assert title_of("fedga") == "FedDG-GA"
    assert title_of("fedprox+ga") == "FedProx + GA"
    assert title_of("Mine+dim") == "Mine + DIM"


def test_a_part_is_added_where_there_is_room() -> None:
    assert parse_method("fedomg").plus("dim").name == "fedomg+dim"
    with pytest.raises(SettingsError, match="feddim and fediir both set the objective"):
        parse_method("fedomg+dim").plus("iir")
