# SPDX-License-Identifier: Apache-2.0
"""The local objectives by name, and their settings, checked and read from text."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from fdg_plugins.objectives.erm import ERMObjective
from fdg_plugins.objectives.objective import Objective
from fdg_plugins.plugins.classes import ClassesOf
from fdg_plugins.values import check_settings_known, read_like

OBJECTIVES: ClassesOf[Objective] = ClassesOf("objective", Objective, {ERMObjective.name: ERMObjective})


def make_objective(spec: str | Mapping[str, Any]) -> Objective:
    """Return the objective that ``spec`` describes: a name, or ``{"name": ..., <its settings>}``."""
    return OBJECTIVES.make(spec)


def objective_settings(name: str) -> list[str]:
    """Return the names of the settings of the objective ``name``, in the order of its fields."""
    return [field.name for field in fields(OBJECTIVES.known(name))]


def read_settings(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``settings`` of the objective ``name``; text, as from the environment, becomes each setting's type.

    Raises ``SettingsError`` for an unknown name or setting, or for text that cannot be converted.
    """
    defaults = {field.name: field.default for field in fields(OBJECTIVES.known(name))}
    check_settings_known(f"objective {name!r}", settings, list(defaults))
    return {setting: read_like(setting, value, defaults[setting]) for setting, value in settings.items()}
