# SPDX-License-Identifier: Apache-2.0
"""Fields of records and of settings, checked by their annotations: no later error would name the field."""

import inspect
from collections.abc import Hashable, Mapping
from dataclasses import fields
from functools import cache
from typing import Annotated, Any, cast, get_type_hints

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from fdg_plugins.errors import LARGEST, SettingsError

NotNegative = Annotated[float, Field(ge=0, le=LARGEST, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, le=LARGEST, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]

_STRICT = ConfigDict(strict=True, arbitrary_types_allowed=True)


def check_fields(record: Any, whose: str = "") -> None:
    """Raise ``SettingsError`` for the first field of a dataclass whose value is not what its annotation says."""
    adapters = _adapters(cast("Hashable", type(record)))
    _check({one.name: getattr(record, one.name) for one in fields(record)}, adapters, f" of {whose}" if whose else "")


def check_parameters(made: Any) -> None:
    """Raise ``SettingsError`` for an attribute that is not what the constructor's parameter of its name says."""
    names = [name for name in inspect.signature(type(made)).parameters if hasattr(made, name)]
    _check({name: getattr(made, name) for name in names}, _adapters(type(made).__init__), "")


def check_value(name: str, value: Any, kind: Any) -> None:
    """Raise ``SettingsError`` unless ``value`` is what the annotation ``kind`` says."""
    _check({name: value}, {name: TypeAdapter(kind, config=_STRICT)}, "")


def _check(values: Mapping[str, Any], adapters: Mapping[str, TypeAdapter[Any]], whose: str) -> None:
    for name in (one for one in values if one in adapters):
        try:
            adapters[name].validate_python(values[name])
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            expected = problem["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
            raise SettingsError(field=name + whose, value=problem["input"], expected=expected) from None


@cache
def _adapters(annotated: Any) -> dict[str, TypeAdapter[Any]]:
    try:
        hints = get_type_hints(annotated, include_extras=True)
    except NameError:  # somebody's own class, with names that are there for a type checker alone
        return {}
    names = {one.name for one in fields(annotated)} if isinstance(annotated, type) else hints.keys()
    models = {one for one in names if {"__pydantic_core_schema__", "__dataclass_fields__"} & {*dir(hints[one])}}
    return {one: TypeAdapter(hints[one], config=None if one in models else _STRICT) for one in names}
