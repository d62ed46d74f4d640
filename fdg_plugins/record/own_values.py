# SPDX-License-Identifier: Apache-2.0
"""What a weighting or a direction reports of its own: values without a field in the record of a round."""

from collections.abc import Container, Mapping
from typing import Annotated, Any

import pydantic
from pydantic_core import PydanticCustomError

from fdg_plugins.errors import FDGError
from fdg_plugins.messages import MOST_NAMES, Name
from fdg_plugins.values import LONGEST_QUOTE, is_number

MOST_VALUES = 100

EXPECTED = (
    f"expected a number, a truth value, null or a text of at most {LONGEST_QUOTE} characters, or a list of them with "
    "one for each site"
)


def _checked(value: Any) -> Any:
    """Return ``value``; raise pydantic's error unless it is a single value, or one of them by site."""
    by_site = isinstance(value, Mapping) and len(value) <= MOST_NAMES and all(isinstance(site, str) for site in value)
    if not all(map(_is_single, value.values() if by_site else (value,))):
        raise PydanticCustomError("own_value", EXPECTED)
    return value


def _is_single(value: Any) -> bool:
    """Return whether ``value`` is a number, which may be NaN or infinite, a truth value, null or a short text."""
    is_text = isinstance(value, str) and len(value) <= LONGEST_QUOTE
    return value is None or isinstance(value, bool | float) or is_text or is_number(value)


OwnValues = Annotated[
    dict[Name, Annotated[Any, pydantic.AfterValidator(_checked)]], pydantic.Field(max_length=MOST_VALUES)
]
"""Numbers, truth values and short texts by name, each for the round or by site."""


def by_field(report: Mapping[str, Any], fields: Container[str]) -> dict[str, Any]:
    """Return an aggregator's report by the record's ``fields``, and under ``own`` what has none there.

    Lists ``[U]``, in the order of the report's ``sites``, become mappings by site. Raises ``FDGError`` for a list of
    another length.
    """
    named: dict[str, Any] = {}
    own: dict[str, Any] = {}
    for name, value in report.items():
        if name != "sites":
            (named if name in fields and name != "own" else own)[name] = _by_site(name, value, report["sites"])
    return {**named, "own": own or None}


def _by_site(name: str, value: Any, sites: list[str]) -> Any:
    if not isinstance(value, list):
        return value
    if len(value) != len(sites):
        raise FDGError(f"the aggregator's report: {name} has {len(value)} values, expected one for each of {sites}.")
    return dict(zip(sites, value, strict=True))
