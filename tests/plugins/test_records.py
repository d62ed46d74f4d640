# SPDX-License-Identifier: Apache-2.0
"""The records of methods against the code and the census: nothing missing, nothing stale."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fdg_plugins
from fdg_plugins import filters
from fdg_plugins.aggregators import AGGREGATORS, WEIGHTINGS
from fdg_plugins.cli.explain import run_of, settings_in
from fdg_plugins.errors import SettingsError
from fdg_plugins.flare.components import components, filters_of
from fdg_plugins.messages import CensusReply
from fdg_plugins.methods.fedga import FedDGGAWeighting
from fdg_plugins.objectives import OBJECTIVES, Objective
from fdg_plugins.plugins.classes import parameters_of
from fdg_plugins.plugins.composition import BASE, PLAIN, combined, parse_method
from fdg_plugins.plugins.method import Method, Reference
from fdg_plugins.plugins.methods import METHODS
from fdg_plugins.plugins.reports import REPORT_STATISTICS

PACKAGE = Path(fdg_plugins.__file__).parent


def test_every_class_of_the_code_belongs_to_a_record() -> None:
    assert {class_ for record in METHODS.all() for class_ in record.classes} == {
        *AGGREGATORS.values(),
        *(rule for rule in WEIGHTINGS.values() if rule.shares),
        *(objective for name, objective in OBJECTIVES.items() if name != PLAIN),
    }


def complaints(record: Method) -> Iterator[str]:
    """Yield what does not hold of a record."""
    run = settings_in(run_of(parse_method(record.key), "pacs"), record)
    explained = [source.name for source in record.settings]
    shared = {class_.report for class_ in record.classes if issubclass(class_, Objective)}
    shared |= {class_.shares for class_ in record.classes if class_ in WEIGHTINGS.values()}
    if "reestimate" in {entry.protocol.get("batch_norm") for entry in record.defaults}:
        shared.add(REPORT_STATISTICS)
    text = ast.get_docstring(ast.parse((PACKAGE / "methods" / f"{record.key}.py").read_text(encoding="utf-8"))) or ""
    checks = {
        "the name of its objective": record.objective is None or record.objective.name in record.names,
        "its aggregator under a weighting": None in (record.aggregator, record.weighting)
        or issubclass(AGGREGATORS[record.key], AGGREGATORS[BASE]),
        "each setting once": len(set(explained)) == len(explained),
        "the settings of its job": set(explained) == set(run),
        "the settings of its classes": all(set(parameters_of(class_)) <= set(run) for class_ in record.classes),
        "the sources of its settings": all(source.paper or source.code for source in record.settings),
        "its symbols": {one.symbol for one in record.settings} - {None} <= set(re.split(r"\W+", record.letters)),
        "its filters": all(hasattr(filters, name) for name in filters_of(record.key)),
        "whether it has filters": bool(filters_of(record.key))
        == bool(set(record.reports) - {"training_loss", REPORT_STATISTICS}),
        "its reports": set(record.reports) == shared - {None},
        "its module's text": text.startswith(record.title),
    }
    yield from (name for name, holds in checks.items() if not holds)


def test_every_record_is_sound() -> None:
    assert {record.key: found for record in METHODS.all() if (found := list(complaints(record)))} == {}
    for pair in combined():
        assert {record.key for record in parse_method("+".join(pair)).records} == pair


def test_a_method_is_named_by_its_own_file_alone() -> None:
    files = Path(fdg_plugins.__file__).parent.rglob("*.py")
    assert [file.name for file in files if "fedprox" in file.read_text(encoding="utf-8").lower()] == ["fedprox.py"]


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
    "threads": "threads",
    "compiled": "whether it compiles",
    "keeps_state": "whether it has kept anything of the run",
    "versions": "versions",
}


def test_what_a_census_tells_is_declared_field_by_field() -> None:
    (line,) = [line for line in METHODS.get("fedavg").leaves if line.what.startswith("census: ")]
    assert IN_THE_CENSUS.keys() == CensusReply.model_fields.keys()
    assert [words for words in IN_THE_CENSUS.values() if words not in line.what] == []


class MineWeighting(FedDGGAWeighting):
    """GA's weights by another name."""


def made(**changes: Any) -> Method:
    paper = Reference(authors="A", title="B", venue="C", year=2024)
    whole = {"key": "mine", "title": "Mine", "line": "does it", "reference": paper, "classes": (MineWeighting,)}
    return Method(**{**whole, **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {"key": "Mine"},
        {"part": 1},
        *({"classes": classes} for classes in ((), (int,), (MineWeighting, FedDGGAWeighting), (Objective,))),
    ],
)
def test_a_record_that_cannot_be_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(SettingsError):
        made(**changes)


def test_a_method_that_is_added_later_composes_is_allowed_and_is_forgotten() -> None:
    METHODS.add(made(part="mi"))
    try:
        assert parse_method("omg+MINE").name == "fedomg+mi"
        assert METHODS.get("mine").part_title == "Mi"
        assert any("mine" in (one.methods or ()) for one in components())
    finally:
        METHODS.remove("mine")
    with pytest.raises(SettingsError):
        parse_method("fedomg+mi")
