# SPDX-License-Identifier: Apache-2.0
"""The records of methods against the code, the allow list and the page on security: nothing missing, nothing stale."""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fdg_plugins
from fdg_plugins import filters
from fdg_plugins.aggregators import AGGREGATORS, WEIGHTINGS
from fdg_plugins.cli.method_settings import run_of, settings_in
from fdg_plugins.errors import SettingsError
from fdg_plugins.flare.components import components, filters_of
from fdg_plugins.messages import CensusReply
from fdg_plugins.objectives import OBJECTIVES, LocalObjective, Objective
from fdg_plugins.plugins.classes import parameters_of
from fdg_plugins.plugins.composition import BASE, PLAIN, parse_method
from fdg_plugins.plugins.method import Method, Reference
from fdg_plugins.plugins.methods import METHODS
from fdg_plugins.plugins.reports import REPORT_STATISTICS
from fdg_plugins.plugins.target import load_target

PACKAGE = Path(fdg_plugins.__file__).parent
ROLES = ("aggregator", "weighting", "objective")


def classes_of(record: Method) -> list[type[Any]]:
    """Return the classes that a record names."""
    return [load_target(target) for role in ROLES if (target := getattr(record, role)) is not None]


def test_every_class_of_the_code_belongs_to_a_record() -> None:
    assert {class_ for record in METHODS.all() for class_ in classes_of(record)} == {
        *AGGREGATORS.values(),
        *(rule for rule in WEIGHTINGS.values() if rule.shares),
        *(objective for name, objective in OBJECTIVES.items() if name != PLAIN),
    }


def complaints(record: Method) -> Iterator[str]:
    """Yield what does not hold of a record."""
    classes = classes_of(record)
    run = settings_in(run_of(parse_method(record.key), "pacs"), record)
    explained = [source.name for source in record.settings]
    shared = {class_.report for class_ in classes if issubclass(class_, Objective)}
    shared |= {class_.shares for class_ in classes if class_ in WEIGHTINGS.values()}
    if "reestimate" in {entry.protocol.get("batch_norm") for entry in record.defaults}:
        shared.add(REPORT_STATISTICS)
    text = ast.get_docstring(ast.parse((PACKAGE / "methods" / f"{record.key}.py").read_text(encoding="utf-8"))) or ""
    together = {one.method: parse_method(f"{record.key}+{one.method}") for one in record.together}
    checks = {
        "the name of its objective": record.objective is None or load_target(record.objective).name in record.names,
        "where it acts": set(record.acts) == acts_of(record),
        "each setting once": len(set(explained)) == len(explained),
        "the settings of its job": set(explained) == set(run),
        "the settings of its classes": all(set(parameters_of(class_)) <= set(run) for class_ in classes),
        "the sources of its settings": all(source.paper or source.code for source in record.settings),
        "its symbols": {one.symbol for one in record.settings} - {None} <= set(re.split(r"\W+", record.letters)),
        "its filters": all(hasattr(filters, name) for name in filters_of(record.key)),
        "whether it has filters": bool(filters_of(record.key))
        == bool(set(record.reports) - {"training_loss", REPORT_STATISTICS}),
        "its reports": set(record.reports) == shared - {None},
        "its company": all({part.key for part in made.records} == {record.key, one} for one, made in together.items()),
        "its module's text": text.startswith(record.title),
    }
    yield from (name for name, holds in checks.items() if not holds)


def test_every_record_is_sound() -> None:
    assert {record.key: found for record in METHODS.all() if (found := list(complaints(record)))} == {}


# --- where a method acts ---


def acts_of(record: Method) -> set[str]:
    """Return where the code of a method acts: what it has of its own, or changes of FedAvg."""
    acts = {"weighting"} if record.weighting is not None else set()
    if record.objective is None:
        return acts or {"direction"}
    objective = load_target(record.objective)
    local = _own_halves(objective)
    if objective.adapt is not Objective.adapt:
        acts.add("network")
    if any(_steps_by_itself(one) for one in local):
        acts.add("step")
    if any(_has_a_loss(one) for one in local):
        acts.add("objective")
    if objective.personalises:
        acts.add("personal")
    return acts


def _own_halves(objective: type[Objective]) -> list[type[LocalObjective]]:
    """Return the local objectives that stand in an objective's module."""
    module = inspect.getmodule(objective)
    assert module is not None
    return [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, LocalObjective) and value.__module__ == module.__name__
    ]


def _steps_by_itself(local: type[LocalObjective]) -> bool:
    """Return whether a local objective changes the model by another step; what it does beside the plain one is none."""
    passed_on = ("super().step(", "self.objective.step(")
    return "step" in vars(local) and not any(call in inspect.getsource(local.step) for call in passed_on)


def _has_a_loss(local: type[LocalObjective]) -> bool:
    """Return whether a local objective has a loss of its own."""
    return "loss" in vars(local)


def test_an_aggregator_that_goes_with_a_weighting_is_no_direction_of_its_own() -> None:
    for record in METHODS.all():
        if record.aggregator is not None and record.weighting is not None:
            assert issubclass(load_target(record.aggregator), AGGREGATORS[BASE])


# --- what leaves a site ---

IN_THE_CENSUS = {
    "domain": "names of domain",
    "dataset": "data set",
    "stand_in": "data set",
    "classes": "classes",
    "class_counts": "number of images of each class",
    **dict.fromkeys(("num_train", "num_validation", "num_test"), "sizes of the splits"),
    "split": "the split's name",
    "split_hash": "hash",
    "skipped": "named only with report_names",
    "num_skipped": "numbers of files that were skipped",
    "num_damaged": "of damaged images",
    "num_other_components": "number of foreign classes on its allow list",
    "role": "role",
    "allowed_reports": "allowed reports",
    "device": "device",
    "precision": "precision",
    "compiled": "whether it compiles",
    "keeps_state": "whether it has kept anything of the run",
    "versions": "versions",
}


def test_what_a_census_tells_is_declared_field_by_field() -> None:
    (line,) = [line for line in METHODS.get("fedavg").leaves if line.what.startswith("census: ")]
    assert IN_THE_CENSUS.keys() == CensusReply.model_fields.keys()
    assert [words for words in IN_THE_CENSUS.values() if words not in line.what] == []


# --- records themselves ---


def made(**changes: Any) -> Method:
    paper = Reference(authors="A", title="B", venue="C", year=2024)
    whole = {"key": "mine", "title": "Mine", "line": "does it", "reference": paper, "acts": ("objective",)}
    return Method(**{**whole, "objective": "my_package.module:Mine", **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {"key": "Mine"},
        {"acts": ("magic",)},
        {"rank": "first"},
        {"objective": None},
    ],
)
def test_a_record_that_cannot_be_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(SettingsError):
        made(**changes)


def test_a_method_that_is_added_later_composes_is_allowed_and_is_forgotten() -> None:
    METHODS.add(made(part="mi", part_title="MI", leaves=()))
    try:
        assert parse_method("omg+MINE").name == "fedomg+mi"
        assert any("mine" in (one.methods or ()) for one in components())
    finally:
        METHODS.remove("mine")
    with pytest.raises(SettingsError):
        parse_method("fedomg+mi")
