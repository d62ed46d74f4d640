# SPDX-License-Identifier: Apache-2.0
"""The settings of a method as a job of this package runs them on a data set: the single meaning of default.

Imports aggregators, objectives and recipes, and with them torch and FLARE.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from fdg_plugins.aggregators import make_aggregator, make_weighting
from fdg_plugins.flare.components import GAP
from fdg_plugins.plugins.classes import parameters_of
from fdg_plugins.plugins.composition import Composition
from fdg_plugins.plugins.method import Method
from fdg_plugins.recipes.settings import JobSettings, job_settings
from fdg_plugins.record.method_settings import protocol_settings
from fdg_plugins.settings.protocol import PREFIX, Protocol

WEIGHTING = "weighting"
METRIC = "metric"


class Run(NamedTuple):
    """The settings that a job runs: every setting of its aggregator, of its weighting and of its objective, by name.

    ``aggregator`` and ``objective`` have the form of a job's config, completed by the defaults of the classes.
    ``weighting`` is empty if the aggregator's weighting has no settings.
    """

    said: JobSettings
    aggregator: dict[str, Any]
    weighting: dict[str, Any]
    objective: dict[str, Any]


def run_of(composition: Composition, dataset: str) -> Run:
    """Return the settings that a job runs for a composition; raise ``SettingsError`` if its parts are incompatible."""
    said = job_settings(composition, dataset, {})
    aggregator = make_aggregator(said.aggregator_spec).settings()
    weighting: dict[str, Any] = {}
    if WEIGHTING in aggregator:
        rule = make_weighting(aggregator[WEIGHTING])
        weighting = {name: getattr(rule, name) for name in parameters_of(type(rule)) if hasattr(rule, name)}
    if weighting:
        aggregator[WEIGHTING] = {"name": composition.weighting, **weighting}
    return Run(said, {"name": said.aggregator_spec["name"], **aggregator}, weighting, said.objective.settings())


def settings_in(run: Run, record: Method) -> dict[str, Any]:
    """Return the settings that one method contributes to a run, by name.

    A method whose weighting is combined with another's direction contributes no aggregator of its own.
    """
    found = dict(run.weighting) if record.weighting is not None else {}
    if record.key == run.aggregator["name"]:  # only the names of parts whose settings are shown separately
        own = _without_name(run.aggregator).items()
        found = {name: value["name"] if isinstance(value, Mapping) else value for name, value in own}
    if record.objective is not None:
        found |= _without_name(run.objective)
    protocol = Protocol.model_validate(run.said.protocol)
    found |= {name: getattr(protocol, name) for name in protocol_settings(record)}
    if GAP in record.reports:
        found[METRIC] = run.said.gap_metric
    return found


def _without_name(part: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in part.items() if name != "name"}


def variables_of(run: Run) -> list[str]:
    """Return the environment variables of the server that set the settings of a run's method.

    A name shared with the protocol, such as ``target``, belongs to the protocol; one shared by the aggregator and the
    objective belongs to the aggregator.
    """
    own = [name for name in (*run.aggregator, *run.objective) if name != "name" and name not in Protocol.model_fields]
    of_protocol = [name for record in run.said.method.records for name in protocol_settings(record)]
    return [PREFIX + name.upper() for name in dict.fromkeys([*own, *of_protocol])]
