# SPDX-License-Identifier: Apache-2.0
"""Compositions: which go together, what a job runs of them, and what leaves a site."""

import itertools
from typing import Any

import pytest

from fdg_plugins.aggregators import make_aggregator, make_weighting
from fdg_plugins.cli.method_settings import run_of, settings_in, variables_of
from fdg_plugins.errors import SettingsError
from fdg_plugins.objectives import make_objective
from fdg_plugins.plugins.composition import OWN_IDEA, parse_method, places_of
from fdg_plugins.plugins.methods import METHODS
from fdg_plugins.settings.protocol import environment_settings, part_settings

CONTRADICTION = "fednova+prox"


def compositions() -> list[str]:
    """Return a composition of every method with FedOMG, with FedDG-GA and with FedDIM, and of all three."""
    company = (("fedomg",), ("fedga",), ("feddim",), ("fedomg", "fedga", "feddim"))
    found = {"fednova+fedga", "fedcsa+fediir"}
    for name, others in itertools.product(METHODS.names(), company):
        records = [METHODS.get(one) for one in dict.fromkeys((*others, name))]
        places = [place for record in records for place in places_of(record)]
        if len(set(places)) == len(places):
            found.add("+".join(record.key for record in records))
    return sorted({*METHODS.names(), *found})


def test_a_job_accepts_what_is_said_of_it() -> None:
    for text in compositions():
        run = run_of(parse_method(text), "pacs")
        aggregator, objective = make_aggregator(run.aggregator), make_objective(run.objective)
        assert aggregator.settings() == {name: value for name, value in run.aggregator.items() if name != "name"}
        assert objective.settings() == run.objective


def test_the_variables_named_are_those_that_the_workflow_takes() -> None:
    for text in compositions():
        run = run_of(parse_method(text), "pacs")
        aggregator, objective = set(run.aggregator) - {"name"}, set(run.objective) - {"name"}
        parted = part_settings(
            environment_settings(dict.fromkeys(variables_of(run), "1")), aggregator, objective, "test"
        )
        fields = {"fedga": {"gap_split", "batch_norm"}, "arfl": {"gap_split"}, "fediir": {"batch_norm"}}
        fields |= {"fedbabu": {"travels"}}
        assert set(parted.protocol) == set().union(*(fields.get(part, set()) for part in text.split("+")))
        assert set(parted.aggregator) | set(parted.objective) == aggregator | objective - {"target"}


def test_the_parts_of_a_composition_land_where_they_act() -> None:
    run = run_of(parse_method("fedomg+ga+dim"), "pacs")
    assert run.aggregator["name"] == "fedomg"
    assert make_weighting(run.aggregator["weighting"]).needs_reports
    assert run.objective["name"] == "dim"
    assert run_of(parse_method("ga+dim"), "pacs").aggregator["name"] == "fedga"
    assert run_of(parse_method("dim"), "pacs").aggregator["name"] == "fedavg"


def test_weights_under_another_direction_bring_no_aggregator_of_their_own() -> None:
    weights, direction = METHODS.get("fedga"), METHODS.get("fedomg")
    alone, under = run_of(parse_method("fedga"), "pacs"), run_of(parse_method("fedomg+fedga"), "pacs")
    assert settings_in(alone, weights).keys() - settings_in(under, weights).keys() == {"server_lr"}
    assert settings_in(under, direction)["weighting"] == "ga"
    apart = run_of(parse_method("fedomg+dim"), "pacs")
    assert settings_in(apart, direction) == settings_in(run_of(parse_method("fedomg"), "pacs"), direction)


def test_parts_that_contradict_each_other_are_refused_with_the_reason() -> None:
    with pytest.raises(SettingsError, match="'prox' does not go with aggregator FedNovaAggregator"):
        run_of(parse_method(CONTRADICTION), "pacs")


def test_order_case_spaces_and_fed_change_nothing() -> None:
    for text in ["FedOMG + GA+ dim", "dim+ga+omg", "fedomg+fedga+feddim", "feddim+OMG+ga", "fedga+fedomg+dim"]:
        assert parse_method(text) == parse_method("fedomg+ga+dim")
        assert [record.key for record in parse_method(text).records] == ["fedomg", "fedga", "feddim"]


def test_what_leaves_with_a_composition_is_what_leaves_with_its_parts() -> None:
    together = parse_method("fedomg+ga+iir").leaves()
    apart = [leaving for part in ("fedomg", "ga", "iir") for leaving in parse_method(part).leaves()]
    assert sorted(leaving.what for leaving in together) == sorted({leaving.what for leaving in apart})


def test_who_has_used_two_methods_together_is_found_from_either_side() -> None:
    ((*_, source),) = parse_method("fedomg+fediir").together()
    assert source != OWN_IDEA
    assert [source for *_, source in parse_method("fedprox+fedga").together()] != [OWN_IDEA]
    assert [source for *_, source in parse_method("fedomg+feddim").together()] == [OWN_IDEA]
    assert parse_method("fedavg+feddim").together() == []


def test_what_is_no_composition_is_refused_in_one_sentence() -> None:
    cases: list[tuple[Any, str]] = [
        (
            "fedmog",
            r"^method is 'fedmog', did you mean 'fedomg'\? Known are fedavg, .*, or several joined by \+",
        ),
        ("omgg", r"^method is 'omgg', did you mean 'fedomg'"),
        ("fedomg+gaa", r"^method is 'fedomg\+gaa', in which 'gaa' is unknown: did you mean '(fed)?ga'"),
        ("quantum", r"^method is 'quantum', expected one of fedavg, .*, or several joined by \+"),
        ("fedomg+samples", r"in which 'samples' is unknown: "),
        ("", r"^method is '', expected one of"),
        ("fedomg+", r"^method is 'fedomg\+', in which '' is unknown: expected one of"),
        ("../fedomg", r"^method is '../fedomg', expected one of"),
        (None, "^method is None, expected"),
        (["fedomg"], r"^method is \['fedomg'\], expected"),
        ("fedomg+fedavg", r"^method is 'fedomg\+fedavg', but fedomg and fedavg both set the direction"),
        ("dim+ga+iir", r"but feddim and fediir both set the objective; expected one of them\.$"),
        ("ga+ga", r"but fedga and fedga both set the weighting"),
    ]
    for text, sentence in cases:
        with pytest.raises(SettingsError, match=sentence):
            parse_method(text)
