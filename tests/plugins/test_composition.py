# SPDX-License-Identifier: Apache-2.0
"""Compositions: their names, which parts go together, what a job runs of them, and what leaves a site."""

import itertools
from typing import Any

import pytest

from fdg_plugins.aggregators import make_aggregator
from fdg_plugins.cli.explain import run_of, variables_of
from fdg_plugins.errors import SettingsError
from fdg_plugins.objectives import make_objective
from fdg_plugins.plugins.composition import PLAIN, Composition, compositions, parse_method, parts
from fdg_plugins.plugins.methods import METHODS
from fdg_plugins.recipes import METHODS as WITH_JOBS
from fdg_plugins.record.method_settings import protocol_settings
from fdg_plugins.settings.protocol import environment_settings, part_settings

EVERY_METHOD = compositions()
TRIED = sorted({*METHODS.names(), *WITH_JOBS, "fednova+ga", "fedcsa+iir"})


def test_the_name_of_a_composition_names_it_and_no_other() -> None:
    names = [made.name for made in EVERY_METHOD]
    assert [parse_method(name) for name in names] == EVERY_METHOD
    assert len(set(names)) == len(names)
    assert set(WITH_JOBS) <= set(names)


def test_every_weighting_goes_with_every_objective_unless_one_method_has_both() -> None:
    pairs = {(made.weighting, made.objective) for made in EVERY_METHOD if made.direction == "fedavg"}
    every = itertools.product((None, *parts("weighting")), (PLAIN, *parts("objective")))
    assert pairs == {pair for pair in every if (pair[0] == "as") is (pair[1] == "as")}
    assert parse_method("as") == Composition("fedavg", "as", "as")
    assert parse_method("as+omg").name == "fedomg+as"
    assert [record.key for record in parse_method("fedomg+as").records] == ["fedomg", "fedas"]


def test_order_case_spaces_and_fed_change_nothing() -> None:
    for text in ["FedOMG + GA+ dim", "dim+ga+omg", "fedomg+fedga+feddim", "feddim+OMG+ga", "fedga+fedomg+dim"]:
        assert parse_method(text) == parse_method("fedomg+ga+dim")
        assert [record.key for record in parse_method(text).records] == ["fedomg", "fedga", "feddim"]
    for text, name in {"fedavg+ga": "fedga", "fedavg+dim": "feddim", "fedga+dim": "feddim+ga"}.items():
        assert parse_method(text).name == name


def test_a_direction_may_start_from_another_rule_than_fedavg() -> None:
    for text in ("fedomg+nova", "FedNova+omg"):
        assert parse_method(text) == Composition("fedomg", over="fednova")
    made = parse_method("dim+nova+ga+omg")
    assert (made.name, made.over) == ("fedomg+nova+ga+dim", "fednova")
    assert [record.key for record in made.records] == ["fedomg", "fednova", "fedga", "feddim"]
    assert run_of(made, "pacs").aggregator["over"] == "fednova"
    assert not run_of(made, "pacs").said.plans.real.protocol.keep_momentum
    for text in ("fedomg+csa", "fednova+csa", "fedomg+avg", "fedomg+nova+csa", "fedomg+omg"):
        with pytest.raises(SettingsError) as caught:
            parse_method(text)
        assert caught.value.field == "method"


@pytest.mark.parametrize("text", TRIED)
def test_a_job_accepts_what_is_said_of_it_and_the_variables_named_are_those_that_the_workflow_takes(text: str) -> None:
    run = run_of(parse_method(text), "pacs")
    aggregator, objective = make_aggregator(run.aggregator), make_objective(run.objective)
    assert aggregator.settings() == {name: value for name, value in run.aggregator.items() if name != "name"}
    assert objective.settings() == run.objective
    of_server, of_sites = set(run.aggregator) - {"name"}, set(run.objective) - {"name"}
    parted = part_settings(environment_settings(dict.fromkeys(variables_of(run), "1")), of_server, of_sites, "test")
    of_records = {name for record in parse_method(text).records for name in protocol_settings(record)}
    assert set(parted.protocol) == of_records
    assert set(parted.aggregator) | set(parted.objective) == of_server | of_sites - {"target"}


@pytest.mark.parametrize(
    "text", ["fedmog", "fedomg+samples", "", "../fedomg", None, ["fedomg"], "fedomg+fedavg", "dim+ga+iir", "ga+ga"]
)
def test_what_is_no_composition_is_refused(text: Any) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_method(text)
    assert (caught.value.field, caught.value.value) == ("method", text)
