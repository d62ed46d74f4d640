# SPDX-License-Identifier: Apache-2.0
"""The settings of a method as the code has them: names and defaults are read from the classes, and stand nowhere else.

Imports aggregators, objectives and filters, and with them torch and FLARE.
"""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any, NamedTuple

from fdg_plugins import filters
from fdg_plugins.aggregators import AGGREGATORS, WEIGHTINGS
from fdg_plugins.explained.composition import BASE, Composition
from fdg_plugins.explained.entry import Components, read_explanation
from fdg_plugins.objectives import OBJECTIVES
from fdg_plugins.plugins.composition import PLAIN, WEIGHTING_PARTS, Method
from fdg_plugins.settings.protocol import PREFIX, Protocol

WEIGHTING = "weighting"


class Setting(NamedTuple):
    """A setting of the code: its name, its default, and what has it, such as ``aggregator fedomg``."""

    name: str
    default: Any
    owner: str


def settings_of(components: Components) -> list[Setting]:
    """Return all settings of a method's components, in the order of the code, a name that several have once."""
    found: dict[str, Setting] = {}
    for setting in _all_settings(components):
        found.setdefault(setting.name, setting)
    return list(found.values())


def _all_settings(components: Components) -> Iterator[Setting]:
    if components.aggregator is not None:
        yield from _of_call(AGGREGATORS[components.aggregator], f"aggregator {components.aggregator}")
    for name in components.weightings:
        yield from _of_call(WEIGHTINGS[name], f"weighting {name}")
    if components.objective is not None:
        for field in fields(OBJECTIVES[components.objective]):
            yield Setting(field.name, field.default, f"objective {components.objective}")
    for name in components.protocol:
        default = Protocol.model_fields[name].get_default(call_default_factory=True, validated_data={})
        yield Setting(name, default, "protocol")
    for name in components.filters:
        yield from _of_call(getattr(filters, name), f"filter {name}")


def _of_call(callable_: Callable[..., Any], owner: str) -> Iterator[Setting]:
    for name, parameter in inspect.signature(callable_).parameters.items():
        yield Setting(name, parameter.default, owner)


def settings_in(composition: Composition, name: str) -> list[Setting]:
    """Return the settings that the method ``name`` has in a composition.

    Weights under the direction of another method come without an aggregator of their own, and are its ``weighting``.
    """
    method, weighting = composition.methods[name], _weighting_under(composition)
    if weighting is None or "objective" in method.acts:
        return settings_of(method.components)
    if "weighting" in method.acts:
        return settings_of(method.components.model_copy(update={"aggregator": None}))
    settings = settings_of(method.components)
    return [one._replace(default=weighting) if one.name == WEIGHTING else one for one in settings]


def job_of(composition: Composition) -> dict[str, Any]:
    """Return what a job's config says for a composition, settings at their defaults: ``aggregator``, ``objective``."""
    weighting, direction, objective = (composition.at(point) for point in ("weighting", "direction", "objective"))
    base = read_explanation(BASE)
    aggregator = (direction or weighting or base).components.aggregator or base.components.aggregator
    settings = {"name": aggregator, **_defaults(Components(aggregator=aggregator))}
    if (under := _weighting_under(composition)) is not None:
        settings[WEIGHTING] = {"name": under, **_defaults(Components(weightings=(under,)))}
    named = (objective or base).components.objective
    return {"aggregator": settings, "objective": {"name": named, **_defaults(Components(objective=named))}}


def method_of(composition: Composition) -> Method:
    """Return what a composition is made of, which has the one name that recipes, sweeps and reports use."""
    weighting, direction, objective = (composition.at(point) for point in ("weighting", "direction", "objective"))
    learned = [name for name in weighting.components.weightings if name in WEIGHTING_PARTS] if weighting else []
    return Method(
        (direction.components.aggregator if direction else None) or BASE,
        learned[0] if learned else None,
        (objective.components.objective if objective else None) or PLAIN,
    )


def _weighting_under(composition: Composition) -> str | None:
    """Return the weighting that goes under a direction that is not its own method's, by name, if there is one."""
    weighting, direction = composition.at("weighting"), composition.at("direction")
    if weighting is None or weighting is direction:
        return None
    stands_alone = direction is None and weighting.components.aggregator is not None
    return None if stands_alone else weighting.components.weightings[0]


def variables_of(composition: Composition) -> list[str]:
    """Return the environment variables of the server that set what belongs to a composition.

    A name that the protocol has too, such as ``target``, is the protocol's, and one of both is the aggregator's.
    """
    job = job_of(composition)
    names = dict.fromkeys([*job["aggregator"], *job["objective"]])
    own = [name for name in names if name != "name" and name not in Protocol.model_fields]
    of_protocol = [name for method in composition.methods.values() for name in method.components.protocol]
    return [PREFIX + name.upper() for name in [*own, *of_protocol]]


def _defaults(components: Components) -> dict[str, Any]:
    return {setting.name: setting.default for setting in settings_of(components)}
