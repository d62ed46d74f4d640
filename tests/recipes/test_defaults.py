# SPDX-License-Identifier: Apache-2.0
"""One meaning of default, what the job runs: constructors, records, recipes and the pages' tables say the same."""

import inspect
import json
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fdg_plugins.aggregators import AGGREGATORS, make_aggregator
from fdg_plugins.cli.method_settings import run_of, settings_in
from fdg_plugins.data import DATASETS
from fdg_plugins.errors import SettingsError
from fdg_plugins.objectives import OBJECTIVES
from fdg_plugins.plugins.composition import parse_method
from fdg_plugins.plugins.method import ANY_DATASET, Method
from fdg_plugins.plugins.methods import METHODS as RECORDS
from fdg_plugins.plugins.target import load_target
from fdg_plugins.recipes import JOBS, METHODS
from fdg_plugins.recipes.settings import METRIC, job_settings
from fdg_plugins.settings.families import dataset_protocol
from fdg_plugins.settings.method_defaults import method_defaults
from fdg_plugins.tasks import TASKS

ROOT = Path(__file__).parents[2]
PIECE = re.compile(r"`([^`]*)`(?: on ([^(]+?))?(?: with ([^(]+?))?(?: under the plain mean)?(?: \(.*\))?")


@pytest.fixture(params=RECORDS.own())
def record(request: pytest.FixtureRequest) -> Method:
    """Every published method."""
    return RECORDS.get(request.param)


@pytest.fixture(params=DATASETS.own())
def dataset(request: pytest.FixtureRequest) -> str:
    """Every data set; the methods are looped over, since each costs less than a test of its own."""
    return str(request.param)


@cache
def is_refused(method: str, dataset: str) -> bool:
    """Return whether a method does not fit a data set's task, or the optimizer of its protocol."""
    parsed = parse_method(method)
    protocol = {**dataset_protocol(dataset).protocol, **method_defaults(parsed, dataset).protocol}
    objective = OBJECTIVES[parsed.objective]
    reads_steps = objective.reads_step_lengths or AGGREGATORS[parsed.aggregator].reads_effective_steps
    task = TASKS.get(protocol.get("task", "classification"))
    if objective.needs_labelled_images and not task.one_class_per_image:
        return True
    return reads_steps and protocol.get("optimizer", "sgd") != "sgd"


def fitting(dataset: str, methods: Iterable[str] = METHODS) -> list[str]:
    """Return those of ``methods`` that fit a data set."""
    return [method for method in methods if not is_refused(method, dataset)]


def test_a_method_has_no_job_on_a_data_set_that_it_does_not_fit(dataset: str) -> None:
    for method in METHODS:
        if is_refused(method, dataset):
            with pytest.raises(SettingsError, match=r"needs one class per image|expected 'sgd'"):
                job_settings(parse_method(method), dataset, {})
        else:
            assert job_settings(parse_method(method), dataset, {}).protocol["dataset"] == dataset, method


@cache
def runs(method: str, dataset: str) -> dict[str, Any]:
    """Return all that the job of a method runs on a data set, flat, also what it leaves to the classes."""
    made = job_settings(parse_method(method), dataset, {})
    aggregator = make_aggregator(made.aggregator_spec).settings()
    weighting = aggregator["weighting"] if isinstance(aggregator.get("weighting"), dict) else {}
    if made.method.weighting is not None:
        weighting = {**constructor(RECORDS.get(made.method.weighting).weighting), **weighting}
    metric = {} if made.gap_metric is None else {METRIC: made.gap_metric}
    objective = {name: value for name, value in made.objective.settings().items() if name != "name"}
    protocol = {"gap_split": "validation", "momentum": 0.9, "optimizer": "sgd", **made.protocol}
    return {**protocol, **weighting, **aggregator, **objective, **metric}


def constructor(target: Any) -> dict[str, Any]:
    """Return the defaults of a class by name."""
    return {name: one.default for name, one in inspect.signature(load_target(target)).parameters.items()}


def test_a_class_that_is_built_without_settings_has_what_the_record_says_for_any_data_set(record: Method) -> None:
    of_class = {
        role: constructor(target)
        for role, target in (
            ("server", record.aggregator),
            ("weighting", record.weighting),
            ("objective", record.objective),
        )
        if target is not None
    }
    for entry in record.defaults:
        if entry.on == ANY_DATASET and entry.beside is None:
            for role, defaults in of_class.items():
                said = getattr(entry, role)
                assert {name: defaults[name] for name in said} == said


def test_a_job_names_the_defaults_and_nothing_else(dataset: str) -> None:
    for method in fitting(dataset):
        parsed = parse_method(method)
        made, said = job_settings(parsed, dataset, {}), method_defaults(parsed, dataset)
        spec = made.protocol.get("objective", {"name": "erm"})
        assert {name: value for name, value in spec.items() if name != "name"} == said.objective, method
        assert said.protocol.items() <= made.protocol.items(), method
        own = {name: value for name, value in made.aggregator_spec.items() if name != "name"}
        if parsed.weighting is None:
            assert own == said.server, method
        else:
            weighting = own.pop("weighting", {"name": parsed.weighting})
            assert {**own, **weighting} == {
                **{name: value for name, value in said.server.items() if name != "weighting"},
                **said.weighting,
                "name": parsed.weighting,
            }, method


@pytest.mark.parametrize(("dataset", "method"), JOBS)
def test_a_kept_job_runs_what_the_recipe_of_today_runs(dataset: str, method: str) -> None:
    folder = ROOT / "jobs" / f"{dataset}_{method.replace('+', '_')}"
    config = json.loads((folder / "app_server" / "config" / "config_fed_server.json").read_text(encoding="utf-8"))
    kept, made = config["workflows"][0]["args"], job_settings(parse_method(method), dataset, {})
    assert (kept["protocol"], kept["stand_in_protocol"]) == (made.protocol, made.stand_in)
    assert kept["aggregator"] == made.aggregator_spec


def test_fdg_explain_says_what_the_job_runs(dataset: str) -> None:
    for key in fitting(dataset, RECORDS.own()):
        record, wanted = RECORDS.get(key), dict(runs(key, dataset))
        said = settings_in(run_of(parse_method(key), dataset), record)
        weighting = wanted.get("weighting")
        wanted["weighting"] = weighting["name"] if isinstance(weighting, dict) else weighting
        assert {source.name for source in record.settings} <= said.keys(), key
        assert said == {name: wanted[name] for name in said}, key


def test_the_page_of_a_method_says_what_its_job_runs(dataset: str) -> None:
    for key in fitting(dataset, RECORDS.own()):
        table, wanted = defaults_on_page(key), runs(key, dataset)
        said = {name: value_on(cell, dataset, ()) for name, cell in table.items()}
        assert said == {name: text_of(wanted[name] if name != "target" else "insight") for name in table}, key
        assert {one.name for one in RECORDS.get(key).settings} <= set(table), key


def test_the_pages_say_what_a_composition_runs_too(dataset: str) -> None:
    for method in fitting(dataset, [name for name in METHODS if "+" in name]):
        parsed, wanted = parse_method(method), runs(method, dataset)
        places = (parsed.direction, parsed.weighting, parsed.objective)
        parts = [RECORDS.get(part) for part in places if RECORDS.find(part)]
        for record in parts:
            beside = [other.title for other in parts if other is not record]
            cells = defaults_on_page(record.key)
            names = constructor(record.objective or record.weighting or record.aggregator)
            for name in names:
                if name in cells and name not in ("weighting", "target"):
                    assert value_on(cells[name], dataset, beside) == text_of(wanted[name]), (method, record.key, name)


@cache
def defaults_on_page(key: str) -> dict[str, str]:
    """Return the cells of the column ``default`` in the table of settings on a method's page, by setting."""
    page = (ROOT / "docs" / "methods" / f"{key}.md").read_text(encoding="utf-8")
    part = page.partition("<!-- made: settings -->")[2].partition("<!-- end -->")[0]
    rows = [line.split(" | ") for line in part.splitlines() if line.startswith("| `")]
    return {row[0].partition("`")[2].partition("`")[0]: row[2] for row in rows}


def value_on(cell: str, dataset: str, beside: Any) -> str:
    """Return the value that a cell says for a data set, as a reader does: the last one that applies."""
    found = [PIECE.fullmatch(piece) for piece in cell.split("<br>")]
    assert all(found), cell
    spec = DATASETS.get(dataset)
    applies = [
        piece[1]
        for piece in found
        if piece is not None
        and piece[2] in (None, *spec.families, spec.title)
        and (piece[3] is None or piece[3] in beside)
    ]
    return applies[-1]


def text_of(value: Any) -> str:
    """Return a value as the pages write it."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.4g}" if isinstance(value, float | int) else str(value)
