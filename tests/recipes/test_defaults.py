# SPDX-License-Identifier: Apache-2.0
"""One meaning of default, what the job runs: constructors, records, recipes and the pages' tables say the same."""

import inspect
from collections.abc import Iterable
from functools import cache
from typing import Any

import pytest

from fdg_plugins.aggregators import AGGREGATORS, make_aggregator
from fdg_plugins.cli.method_settings import run_of, settings_in
from fdg_plugins.data import DATASETS
from fdg_plugins.errors import SettingsError
from fdg_plugins.objectives import OBJECTIVES
from fdg_plugins.plugins.composition import parse_method
from fdg_plugins.plugins.method import ANY_DATASET
from fdg_plugins.plugins.methods import METHODS as RECORDS
from fdg_plugins.plugins.target import load_target
from fdg_plugins.recipes import METHODS
from fdg_plugins.recipes.settings import METRIC, job_settings
from fdg_plugins.settings.families import dataset_protocol
from fdg_plugins.settings.method_defaults import method_defaults
from fdg_plugins.tasks import TASKS

NAMED = {entry.on for record in RECORDS.own().values() for entry in record.defaults}
# One data set for each family, and those that a record has a default for.
KINDS = {(one.families, one.title if one.title in NAMED else ""): name for name, one in DATASETS.own().items()}.values()


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


def test_a_method_has_no_job_on_a_data_set_that_it_does_not_fit() -> None:
    for dataset in KINDS:
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


def test_a_class_that_is_built_without_settings_has_what_the_record_says_for_any_data_set() -> None:
    for record in RECORDS.own().values():
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


def test_a_job_names_the_defaults_and_nothing_else() -> None:
    for dataset in KINDS:
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


def test_fdg_explain_says_what_the_job_runs() -> None:
    for dataset in KINDS:
        for key in fitting(dataset, RECORDS.own()):
            record, wanted = RECORDS.get(key), dict(runs(key, dataset))
            said = settings_in(run_of(parse_method(key), dataset), record)
            weighting = wanted.get("weighting")
            wanted["weighting"] = weighting["name"] if isinstance(weighting, dict) else weighting
            assert {source.name for source in record.settings} <= said.keys(), key
            assert said == {name: wanted[name] for name in said}, key
