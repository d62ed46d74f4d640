# SPDX-License-Identifier: Apache-2.0
"""Methods by name: one name for one method, in whatever order its parts are written."""

import doctest
import itertools

import pytest

from fdg_plugins.aggregators import AGGREGATORS, WEIGHTINGS
from fdg_plugins.errors import SettingsError
from fdg_plugins.objectives import OBJECTIVES
from fdg_plugins.plugins import composition
from fdg_plugins.plugins.composition import OBJECTIVE_PARTS, PUBLISHED, WEIGHTING_PARTS, Method, parse_method
from fdg_plugins.recipes import METHODS

EVERY_METHOD = [
    Method(direction, weighting, objective)
    for direction in ("fedavg", "fedomg", "fednova", "fedcsa")
    for weighting in (None, *WEIGHTING_PARTS)
    for objective in ("erm", *OBJECTIVE_PARTS)
]


def test_the_module_page_is_true() -> None:
    assert doctest.testmod(composition).failed == 0


@pytest.mark.parametrize("made", EVERY_METHOD, ids=lambda made: made.name)
def test_the_name_of_a_method_names_it(made: Method) -> None:
    assert parse_method(made.name) == made


def test_no_two_methods_share_a_name() -> None:
    names = [made.name for made in EVERY_METHOD]
    assert len(set(names)) == len(names)
    assert set(METHODS) <= set(names)


@pytest.mark.parametrize("base", PUBLISHED)
@pytest.mark.parametrize("parts", [["ga"], ["dim"], ["ga", "dim"], ["ga", "iir"]], ids="+".join)
def test_the_order_of_the_parts_makes_no_difference_and_a_second_of_a_kind_is_refused(
    base: str, parts: list[str]
) -> None:
    texts = ["+".join([base, *order]) for order in itertools.permutations(parts)]
    taken = PUBLISHED[base]
    clash = ("ga" in parts and taken.weighting is not None) or (
        taken.objective != "erm" and not {"dim", "iir"}.isdisjoint(parts)
    )
    if clash:
        for text in texts:
            with pytest.raises(SettingsError, match=r"it has the (weighting|objective)"):
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


@pytest.mark.parametrize("made", EVERY_METHOD, ids=lambda made: made.name)
def test_a_method_is_made_of_parts_that_exist(made: Method) -> None:
    assert made.aggregator in AGGREGATORS
    assert made.objective in OBJECTIVES
    assert made.weighting is None or WEIGHTINGS[made.weighting].learns


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fedfoo", r"method is 'fedfoo', expected one of fedavg, .*fedomg, .*fedsr, or one and parts"),
        ("", "method is '', expected"),
        ("ga+fedomg", r"method is 'ga\+fedomg', expected"),
        ("fedomg+", "method 'fedomg' cannot take '', expected one of ga, arfl, dim, iir, prox, "),
        ("fedomg+samples", "cannot take 'samples', expected one of ga, arfl, dim, iir, prox, "),
        ("fedomg+fedga", "cannot take 'fedga'"),
        ("fedomg+dim+iir", r"method 'fedomg\+dim' cannot take 'iir': it has the objective 'dim'"),
        ("fedomg+ga+ga", r"method 'fedomg\+ga' cannot take 'ga': it has the weighting 'ga'"),
        (None, "method is None, expected"),
        (["fedomg"], r"method is \['fedomg'\], expected"),
    ],
)
def test_what_names_no_method_is_refused(text: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        parse_method(text)
