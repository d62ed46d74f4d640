# SPDX-License-Identifier: Apache-2.0
"""The settings of an aggregator as one flat list of names, those of its weighting included."""

import inspect
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from fdg_plugins.aggregators.weightings import WEIGHTINGS, weighting_name
from fdg_plugins.errors import SettingsError
from fdg_plugins.values import parsed_object, read_like

WEIGHTING = "weighting"


def weighting_names(weighting: Any) -> list[str]:
    """Return the names of the settings of a weighting, given by name or as an object with a name; none if unknown."""
    return list(_parameters(weighting))


def flat_names(settings: Mapping[str, Any], given: Mapping[str, Any] = MappingProxyType({})) -> list[str]:
    """Return the names by which the ``settings`` in force of an aggregator can be changed.

    Those of the weighting are of the one in ``given``, what is to be changed, if it names one. A name that the
    aggregator and its weighting share is the aggregator's.
    """
    if WEIGHTING not in settings:
        return list(settings)
    weighting = parsed_object(given.get(WEIGHTING, settings[WEIGHTING]))
    return list(dict.fromkeys([*settings, *weighting_names(weighting)]))


def folded(settings: Mapping[str, Any], in_force: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``settings`` with those of the weighting entered into its object.

    A weighting as text, such as from the environment, may be a JSON object. Names that neither has are returned as they
    are.
    """
    if WEIGHTING not in in_force:
        return dict(settings)
    weighting = parsed_object(settings.get(WEIGHTING, in_force[WEIGHTING]))
    own = [name for name in weighting_names(weighting) if name in settings and name not in in_force]
    entered = read_weighting(weighting, {name: settings[name] for name in own})
    left = {name: value for name, value in settings.items() if name not in own}
    if entered:
        left[WEIGHTING] = {**(weighting if isinstance(weighting, Mapping) else {"name": weighting}), **entered}
    elif WEIGHTING in left:
        left[WEIGHTING] = weighting
    return left


def read_weighting(weighting: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings of a weighting with text, such as from the environment, converted to the type of its default.

    Text that is not of that type stays as it is, for the weighting to refuse.
    """
    parameters = _parameters(weighting)
    return {key: _read(key, value, parameters[key].default) for key, value in settings.items()}


def _parameters(weighting: Any) -> Mapping[str, inspect.Parameter]:
    name = weighting_name(weighting)
    return inspect.signature(WEIGHTINGS[name]).parameters if name is not None and name in WEIGHTINGS else {}


def _read(name: str, value: Any, default: Any) -> Any:
    like = 0.0 if default in (inspect.Parameter.empty, None) else default
    try:
        return read_like(name, value, like)
    except SettingsError:
        return value
