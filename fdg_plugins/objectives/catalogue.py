# SPDX-License-Identifier: Apache-2.0
"""The catalogue of local objectives: by name, with their settings checked."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from fdg_plugins.errors import SettingsError
from fdg_plugins.objectives.erm import ERMObjective
from fdg_plugins.objectives.objective import Objective
from fdg_plugins.plugins.classes import ClassesOf
from fdg_plugins.values import shorten

OBJECTIVES: ClassesOf[Objective] = ClassesOf("objective", {ERMObjective.name: ERMObjective})

_TRUTH = {"true": True, "1": True, "false": False, "0": False}


def make_objective(spec: str | Mapping[str, Any]) -> Objective:
    """Return the objective that ``spec`` names: a name, or ``{"name": ..., <its settings>}``."""
    return OBJECTIVES.make(spec)


def objective_settings(name: str) -> list[str]:
    """Return the names of an objective's settings, in their order."""
    return [field.name for field in fields(OBJECTIVES.known(name))]


def read_settings(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``settings`` of the objective ``name`` with text, as from the environment, read as each one's type."""
    objective = OBJECTIVES.known(name)
    _refuse_unknown(objective, settings)
    defaults = {field.name: field.default for field in fields(objective)}
    return {setting: _like(setting, value, defaults[setting]) for setting, value in settings.items()}


def _refuse_unknown(objective: type[Objective], settings: Mapping[str, Any]) -> None:
    known = [field.name for field in fields(objective)]
    for setting in settings:
        if setting not in known:
            has = f"it has {', '.join(known)}" if known else "it has none"
            raise SettingsError(f"objective {objective.name!r} has no setting {shorten(setting)}; {has}.")


def _like(name: str, value: Any, default: Any) -> Any:
    if not isinstance(value, str):
        return value
    text = value.strip()
    if isinstance(default, str):
        return text
    try:
        return _TRUTH[text.lower()] if isinstance(default, bool) else float(text)
    except (KeyError, ValueError) as error:
        wanted = "true or false" if isinstance(default, bool) else "a number"
        raise SettingsError(f"{name} is {shorten(value)}, expected {wanted}.") from error
