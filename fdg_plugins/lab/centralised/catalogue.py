# SPDX-License-Identifier: Apache-2.0
"""The centralised algorithms by name, in the order of tables.

Each maps the risks of the m source domains, of shape ``[m]``, or their gradients, ``[m, P]``, to one loss or step.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.centralised.algorithm import Algorithm
from fdg_plugins.lab.centralised.erm import CentralisedERM
from fdg_plugins.lab.centralised.fish import CentralisedFish
from fdg_plugins.lab.centralised.fishr import CentralisedFishr
from fdg_plugins.lab.centralised.groupdro import CentralisedGroupDRO
from fdg_plugins.lab.centralised.iga import CentralisedIGA
from fdg_plugins.lab.centralised.irm import CentralisedIRM
from fdg_plugins.lab.centralised.vrex import CentralisedVREx
from fdg_plugins.naming import expected_one_of
from fdg_plugins.values import check_settings_known, shorten

ALGORITHMS: Mapping[str, type[Algorithm]] = {
    algorithm.name: algorithm
    for algorithm in (
        CentralisedERM,
        CentralisedIRM,
        CentralisedGroupDRO,
        CentralisedVREx,
        CentralisedIGA,
        CentralisedFish,
        CentralisedFishr,
    )
}
"""All algorithms by name, in the order of tables."""


def algorithm_settings(name: str) -> dict[str, Any]:
    """Return the settings of the algorithm ``name`` with their defaults, in the order of its fields.

    Raises ``SettingsError`` for an unknown name.
    """
    return {field.name: field.default for field in fields(_algorithm(name))}


def make_algorithm(name: str, settings: Mapping[str, Any]) -> Algorithm:
    """Return the algorithm ``name``, with ``settings`` overriding its defaults.

    An integer given for a float setting is converted. Raises ``SettingsError`` for an unknown name, an unknown setting,
    or a value out of range.
    """
    defaults = algorithm_settings(name)
    check_settings_known(f"algorithm {name!r}", settings, list(defaults))
    return _algorithm(name)(**{setting: _pointed(value, defaults[setting]) for setting, value in settings.items()})


def _pointed(value: Any, default: Any) -> Any:
    """Convert an int to a float if the default is a float, so that equal settings have equal records."""
    return float(value) if isinstance(default, float) and type(value) is int else value


def _algorithm(name: Any) -> type[Algorithm]:
    if not isinstance(name, str) or name not in ALGORITHMS:
        raise SettingsError(f"algorithm is {shorten(name)}, {expected_one_of(name, ALGORITHMS)}")
    return ALGORITHMS[name]
