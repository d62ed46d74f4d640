# SPDX-License-Identifier: Apache-2.0
"""Compositions: which go together, what a job says for them, and what leaves a site."""

import itertools

import pytest

from fdg_plugins.aggregators import make_aggregator, make_weighting
from fdg_plugins.errors import SettingsError
from fdg_plugins.explained import compose, method_names, read_explanation
from fdg_plugins.explained.composition import OWN_IDEA
from fdg_plugins.explained.in_code import job_of, settings_in, variables_of
from fdg_plugins.objectives import make_objective
from fdg_plugins.settings.protocol import environment_settings, part_settings


def compositions() -> list[str]:
    """Return every composition of one, two or three methods, of which no two act at the same point."""
    found = []
    for count in (1, 2, 3):
        for names in itertools.combinations(method_names(), count):
            points = [point for name in names for point in read_explanation(name).acts]
            if len(set(points)) == len(points):
                found.append("+".join(names))
    return found


@pytest.mark.parametrize("text", compositions())
def test_a_job_accepts_what_is_said_of_it(text: str) -> None:
    job = job_of(compose(text))
    aggregator, objective = make_aggregator(job["aggregator"]), make_objective(job["objective"])
    defaults = {name: value for name, value in job["aggregator"].items() if name != "name"}
    assert aggregator.settings() == defaults
    assert objective.settings() == job["objective"]


@pytest.mark.parametrize("text", compositions())
def test_the_variables_named_are_those_that_the_workflow_takes(text: str) -> None:
    job = job_of(compose(text))
    aggregator, objective = set(job["aggregator"]) - {"name"}, set(job["objective"]) - {"name"}
    values = environment_settings(dict.fromkeys(variables_of(compose(text)), "1"))
    parted = part_settings(values, aggregator, objective, "test")
    measured_on_a_split = {"fedga", "arfl"} & set(text.split("+"))
    assert set(parted.protocol) == ({"gap_split"} if measured_on_a_split else set())
    assert set(parted.aggregator) | set(parted.objective) == aggregator | objective - {"target"}


def test_the_parts_of_a_composition_land_where_they_act() -> None:
    job = job_of(compose("fedomg+ga+dim"))
    assert job["aggregator"]["name"] == "fedomg"
    assert make_weighting(job["aggregator"]["weighting"]).needs_reports
    assert job["objective"]["name"] == "dim"
    assert job_of(compose("ga+dim"))["aggregator"]["name"] == "fedga"
    assert job_of(compose("avg+ga"))["aggregator"]["weighting"]["name"] == "ga"
    assert job_of(compose("dim"))["aggregator"]["name"] == "fedavg"


def test_weights_under_another_direction_bring_no_aggregator_of_their_own() -> None:
    alone, under = compose("fedga"), compose("fedomg+fedga")
    assert "server_lr" in {setting.name for setting in settings_in(alone, "fedga")}
    assert "server_lr" not in {setting.name for setting in settings_in(under, "fedga")}
    (weighting,) = [setting for setting in settings_in(under, "fedomg") if setting.name == "weighting"]
    assert weighting.default == "ga"
    assert settings_in(compose("fedomg+dim"), "fedomg") == settings_in(compose("fedomg"), "fedomg")


def test_order_case_spaces_and_fed_change_nothing() -> None:
    assert list(compose("FedOMG + GA+ dim").methods) == ["fedomg", "fedga", "feddim"]
    assert job_of(compose("dim+ga+omg")) == job_of(compose("fedomg+fedga+feddim"))


def test_what_leaves_with_a_composition_is_what_leaves_with_its_parts() -> None:
    together = compose("fedomg+ga+iir").leaves()
    apart = [leaving for part in ("fedomg", "ga", "iir") for leaving in compose(part).leaves()]
    assert sorted(leaving.what for leaving in together) == sorted({leaving.what for leaving in apart})


def test_who_has_used_two_methods_together_is_found_from_either_side() -> None:
    ((*_, source),) = compose("fedomg+fediir").together()
    ((*_, reverse),) = compose("fediir+fedomg").together()
    assert source == reverse != OWN_IDEA
    assert [source for *_, source in compose("fedomg+feddim").together()] == [OWN_IDEA]
    assert compose("fedavg+feddim").together() == []


@pytest.mark.parametrize("name", method_names())
def test_methods_named_as_company_exist_and_fit(name: str) -> None:
    for together in read_explanation(name).together:
        assert set(compose(f"{name}+{together.method}").methods) == {name, together.method}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("fedmog", r"method is 'fedmog', did you mean fedomg\? Known are am, arfl, "),
        ("omgg", r"method is 'omgg', did you mean fedomg"),
        ("fedomg+gaa", r"method is 'gaa', did you mean fedga"),
        ("quantum", r"method is 'quantum', expected one of am, .*, or several joined by \+\."),
        ("", r"method is '', expected one of"),
        ("fedomg+", r"method is '', expected one of"),
        ("../fedomg", r"method is '../fedomg', did you mean"),
        ("fedomg+fedavg", r"method is 'fedomg\+fedavg', but fedomg and fedavg both set the direction"),
        ("dim+ga+iir", r"but feddim and fediir both set the objective; expected one of them\."),
        ("ga+ga", r"but fedga and fedga both set the weighting"),
    ],
)
def test_what_is_no_composition_is_refused_in_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        compose(text)
