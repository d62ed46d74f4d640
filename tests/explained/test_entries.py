# SPDX-License-Identifier: Apache-2.0
"""The explanations against the code, the allow list and the page on security: nothing is missing, nothing is stale."""

import inspect
import re
from dataclasses import fields
from pathlib import Path

import pydantic
import pytest

from fdg_plugins.aggregators import AGGREGATORS, WEIGHTINGS
from fdg_plugins.errors import SettingsError
from fdg_plugins.explained import Explanation, method_names, read_explanation
from fdg_plugins.explained.composition import BASE
from fdg_plugins.explained.entry import Difference, Differences
from fdg_plugins.explained.in_code import settings_of
from fdg_plugins.flare.components import COMPONENTS, METHODS
from fdg_plugins.objectives import OBJECTIVES

SECURITY = Path(__file__).parents[2] / "docs" / "security.md"


@pytest.fixture(params=method_names())
def name(request: pytest.FixtureRequest) -> str:
    """Each method that is explained."""
    return str(request.param)


@pytest.fixture
def explanation(name: str) -> Explanation:
    """What is said of it."""
    return read_explanation(name)


def test_every_method_that_can_be_allowed_is_explained_and_no_other() -> None:
    assert set(method_names()) == set(METHODS)


def test_every_component_of_the_code_belongs_to_an_explanation() -> None:
    components = [read_explanation(name).components for name in method_names()]
    assert {one.aggregator for one in components} - {None} == set(AGGREGATORS)
    assert {weighting for one in components for weighting in one.weightings} == set(WEIGHTINGS)
    assert {one.objective for one in components} - {None} == set(OBJECTIVES)


def test_every_setting_in_the_code_has_its_sources_and_none_is_explained_that_is_not_there(
    explanation: Explanation,
) -> None:
    in_code = [setting.name for setting in settings_of(explanation.components)]
    explained = [source.name for source in explanation.settings]
    assert len(set(explained)) == len(explained)
    assert set(explained) == set(in_code)


def test_every_setting_says_where_its_value_comes_from(explanation: Explanation) -> None:
    for source in explanation.settings:
        assert source.paper or source.code, source.name


def test_no_setting_of_a_component_is_overlooked(explanation: Explanation) -> None:
    read = {setting.name for setting in settings_of(explanation.components)}
    parts = explanation.components
    for callable_ in (
        *[AGGREGATORS[one] for one in (parts.aggregator,) if one],
        *[WEIGHTINGS[one] for one in parts.weightings],
    ):
        assert set(inspect.signature(callable_).parameters) <= read
    for objective in [OBJECTIVES[one] for one in (parts.objective,) if one]:
        assert {field.name for field in fields(objective)} <= read


def test_defaults_are_those_of_a_component_that_is_built_without_settings(explanation: Explanation) -> None:
    components = explanation.components
    built: dict[str, object] = {f"weighting {name}": WEIGHTINGS[name]() for name in components.weightings}
    if components.aggregator is not None:
        built[f"aggregator {components.aggregator}"] = AGGREGATORS[components.aggregator]()
    if components.objective is not None:
        built[f"objective {components.objective}"] = OBJECTIVES[components.objective]()
    checked = [setting for setting in settings_of(components) if setting.owner in built]
    assert checked or not explanation.settings
    for setting in checked:
        assert getattr(built[setting.owner], setting.name) == setting.default


def test_a_weighting_and_the_aggregator_that_has_it_agree_on_their_defaults() -> None:
    components = read_explanation("fedga").components
    alone = {setting.name: setting.default for setting in settings_of(components)}
    under = settings_of(components.model_copy(update={"aggregator": None}))
    assert {setting.name: setting.default for setting in under}.items() <= alone.items()
    assert [setting for setting in under if setting.owner == "weighting ga"]


def test_filters_are_those_that_the_allow_list_has_for_the_method(name: str, explanation: Explanation) -> None:
    own = [one.path for one in COMPONENTS if name in one.methods and set(one.methods) != set(METHODS)]
    filters = [path.rpartition(".")[2] for path in own if ".filters." in path]
    assert list(explanation.components.filters) == filters


def test_what_a_site_may_forbid_is_what_the_code_reports(explanation: Explanation) -> None:
    reports = {leaving.report for leaving in explanation.leaves} - {None}
    objective = explanation.components.objective
    expected = {OBJECTIVES[objective].report} - {None} if objective else set()
    expected |= {WEIGHTINGS[weighting].shares for weighting in explanation.components.weightings} - {None}
    assert reports == expected


def test_what_leaves_a_site_is_what_the_page_on_security_says(name: str, explanation: Explanation) -> None:
    leaves = explanation.leaves if name == BASE else (*read_explanation(BASE).leaves, *explanation.leaves)
    explained = {(leaving.what, leaving.shape) for leaving in leaves if leaving.when != "once per job"}
    assert explained == set(rows_on_security(name))


def rows_on_security(name: str) -> list[tuple[str, str]]:
    """Return what the table of docs/security.md marks as leaving with a method, and its shape."""
    lines = [line for line in SECURITY.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    start = next(index for index, line in enumerate(lines) if line.startswith("| what | shape |"))
    head, *rows = [re.split(r" *\| *", line.strip("| ").replace("*", "")) for line in lines[start:]]
    table = [row for row in rows if len(row) == len(head)]
    column = head.index("with")
    return [(row[0], row[1]) for row in table if row[column] == "every method" or f"`{name}`" in row[column]]


def test_symbols_of_settings_are_introduced_before_the_formulas(explanation: Explanation) -> None:
    introduced = re.split(r"\W+", explanation.letters)
    for source in explanation.settings:
        assert source.symbol is None or source.symbol in introduced


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"method is 'fedfoo', expected one of am, .*scaffold\."):
        read_explanation("fedfoo")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"acts": ["magic"]}, "acts"),
        ({"acts": []}, "acts"),
        ({"kapa": 1}, "Extra inputs"),
        ({"line": "  "}, "line"),
        ({"equations": []}, "equations"),
    ],
)
def test_a_file_that_is_not_an_explanation_is_refused(change: dict[str, object], sentence: str) -> None:
    whole = read_explanation("fedomg").model_dump(by_alias=True)
    assert Explanation.model_validate(whole) == read_explanation("fedomg")
    with pytest.raises(pydantic.ValidationError, match=sentence):
        Explanation.model_validate({**whole, **change})


@pytest.mark.parametrize(("compared", "code"), [("authors' code", None), ("", "plus")])
def test_a_difference_names_the_code_exactly_if_code_was_compared(compared: str, code: str | None) -> None:
    row = Difference(point="sign", paper="minus", code=code, ours="plus")
    with pytest.raises(pydantic.ValidationError, match="point 'sign' must say"):
        Differences(compared=compared, rows=(row,))
