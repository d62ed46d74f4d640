# SPDX-License-Identifier: Apache-2.0
"""One meaning of default, what the job runs: constructors, records, recipes and the pages' tables say the same."""

import inspect
from typing import Any

import pytest

from fdg_plugins.aggregators import make_aggregator
from fdg_plugins.cli.explain import run_of, settings_in
from fdg_plugins.data import DATASETS
from fdg_plugins.errors import SettingsError
from fdg_plugins.plans import METRIC, JobSettings, job_settings
from fdg_plugins.plugins.composition import parse_method
from fdg_plugins.plugins.method import ANY_DATASET
from fdg_plugins.plugins.methods import METHODS as RECORDS

NAMED = {entry.on for record in RECORDS.own().values() for entry in record.defaults}
# One data set for each family, and those that a record has a default for.
KINDS = {(one.families, one.title if one.title in NAMED else ""): name for name, one in DATASETS.own().items()}.values()


def job_of(method: str, dataset: str) -> JobSettings | None:
    """Return the job of a method on a data set; None if it does not fit its task or the optimizer of its protocol."""
    try:
        return job_settings(parse_method(method), dataset, {})
    except SettingsError as error:
        if "one class per image" in str(error) or "optimizer" in str(error):
            return None
        raise


def runs(made: JobSettings) -> dict[str, Any]:
    """Return all that a job runs, flat, also what it leaves to the classes."""
    aggregator = make_aggregator(made.aggregator_spec).settings()
    weighting = aggregator["weighting"] if isinstance(aggregator.get("weighting"), dict) else {}
    if made.method.weighting is not None:
        weighting = {**constructor(RECORDS.get(made.method.weighting).weighting), **weighting}
    metric = {} if made.gap_metric is None else {METRIC: made.gap_metric}
    objective = {name: value for name, value in made.objective.settings().items() if name != "name"}
    protocol = {"gap_split": "validation", "momentum": 0.9, "optimizer": "sgd", **made.protocol}
    return {**protocol, **weighting, **aggregator, **objective, **metric}


def constructor(target: Any) -> dict[str, Any]:
    return {name: one.default for name, one in inspect.signature(target).parameters.items()}


def test_a_class_that_is_built_without_settings_has_what_the_record_says_for_any_data_set() -> None:
    for record in RECORDS.own().values():
        classes = {"server": record.aggregator, "weighting": record.weighting, "objective": record.objective}
        for entry in record.defaults:
            if entry.on == ANY_DATASET and entry.beside is None:
                for role, target in classes.items():
                    said = getattr(entry, role)
                    assert target is None or said.items() <= constructor(target).items(), record.key


@pytest.mark.parametrize("dataset", KINDS)
def test_fdg_explain_says_what_the_job_runs(dataset: str) -> None:
    for key, record in RECORDS.own().items():
        made = job_of(key, dataset)
        if made is None:
            continue
        said, wanted = settings_in(run_of(parse_method(key), dataset), record), runs(made)
        weighting = wanted.get("weighting")
        wanted["weighting"] = weighting["name"] if isinstance(weighting, dict) else weighting
        assert {source.name for source in record.settings} <= said.keys(), key
        assert said == {name: wanted[name] for name in said}, key
