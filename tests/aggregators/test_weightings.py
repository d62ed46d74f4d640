# SPDX-License-Identifier: Apache-2.0
"""Weightings by name: p on the simplex from a round's contributions."""

from typing import Any

import pytest

from fdg_plugins.aggregators import make_weighting
from fdg_plugins.errors import SettingsError


def test_an_unknown_weighting_is_refused_with_what_there_is() -> None:
    cases: list[tuple[Any, str]] = [
        ("median", "weighting is 'median', expected one of arfl, as, ga, samples, uniform"),
        ("", "weighting is '', expected one of"),
        ({}, "weighting is None, expected one of"),
        ({"name": "median"}, "weighting is 'median', expected one of"),
        ({"name": ["uniform"]}, r"weighting is \['uniform'\], expected one of"),
        ({"name": "uniform", "power": 2}, r"weighting 'uniform' has no setting 'power'"),
        (None, "weighting is None, expected a name or a mapping"),
        (0.5, "weighting is 0.5, expected a name or a mapping"),
    ]
    for spec, message in cases:
        with pytest.raises(SettingsError, match=message):
            make_weighting(spec)
