# SPDX-License-Identifier: Apache-2.0
"""The fields of a record that somebody writes, checked when it is made: no later error would name the field."""

import dataclasses
from collections.abc import Iterator, Mapping, MutableMapping
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints
from weakref import WeakKeyDictionary

from fdg_plugins.errors import SettingsError
from fdg_plugins.values import shorten

_Fields = tuple[tuple[str, Any, frozenset[type]], ...]
_FIELDS: MutableMapping[type, _Fields] = WeakKeyDictionary()  # read once of each class, which a file may replace


def check_fields(record: Any, whose: str = "") -> None:
    """Raise ``SettingsError`` for a field of a record, a dataclass, whose value is not what its annotation says.

    ``whose``: the record in words; default: its type and its first field. Annotations that are neither plain types,
    dataclasses, ``Literal``, tuples, mappings nor unions of them are not checked.
    """
    for name, kind, exact in _fields_of(type(record)):
        value = getattr(record, name)
        if type(value) in exact or _fits(value, kind):
            continue
        odd, wanted = _first_odd(value, kind)
        verb = "is" if odd is value else "has"
        raise SettingsError(f"{name} of {whose or _called(record)} {verb} {described(odd)}, expected {wanted}.")


def described(value: object) -> str:
    """Return a value that stands in the wrong place: ``the function small_net``, ``an instance of RootWeighting``."""
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, str):
        return f"the text {value[:40]!r}"
    kind = type(value).__name__
    if isinstance(value, int | float):
        return f"the number {shorten(value, 40)}"
    if isinstance(value, list | tuple | set | frozenset):
        return f"the {kind} {shorten(value, 40)}"
    name = getattr(value, "__qualname__", None)
    return f"an instance of {kind}" if name is None else f"the {kind} {name}"


def _fields_of(class_: type[Any]) -> _Fields:
    """Return name and annotation of each field of a dataclass, and the types whose every value fits it."""
    if class_ not in _FIELDS:
        _FIELDS[class_] = _read_fields(class_)
    return _FIELDS[class_]


def _read_fields(class_: type[Any]) -> _Fields:
    try:
        hints = get_type_hints(class_)
    except (NameError, TypeError):  # somebody's own subclass, with names that are there for a type checker alone
        hints = {}
    found = ((one.name, hints.get(one.name, one.type)) for one in dataclasses.fields(class_))
    return tuple((name, kind, frozenset(_exact(kind))) for name, kind in found)


def _exact(kind: Any) -> Iterator[type]:
    for one in _alternatives(kind):
        if isinstance(one, type) and get_origin(one) is None:
            yield one


def _alternatives(kind: Any) -> tuple[Any, ...]:
    """Return the members of a union, or the annotation alone."""
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _fits(value: object, kind: Any) -> bool:
    """Return whether a value is what an annotation says; true for annotations of another form."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any(_fits(value, one) for one in inner)
    if origin is Literal:
        return value in inner
    if origin is tuple:
        return isinstance(value, tuple) and (inner[-1] is not ... or all(_fits(one, inner[0]) for one in value))
    if origin is Mapping:
        return isinstance(value, Mapping) and all(
            _fits(name, inner[0]) and _fits(one, inner[1]) for name, one in value.items()
        )
    if kind in (int, float):
        return isinstance(value, int if kind is int else int | float) and not isinstance(value, bool)
    return not isinstance(kind, type) or kind is Any or isinstance(value, kind)


def _first_odd(value: object, kind: Any) -> tuple[object, str]:
    """Return the part of a value that does not fit its annotation, and what was expected there, in words."""
    for one in _alternatives(kind):
        if get_origin(one) is tuple and isinstance(value, tuple):
            inner = get_args(one)[0]
            return _first_odd(next(each for each in value if not _fits(each, inner)), inner)
    words = " or ".join(_in_words(one, value) for one in _alternatives(kind))
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value, f"{words}, such as {str(value)!r}" if is_number and _fits("", kind) else words


def _in_words(kind: Any, value: object) -> str:
    """Return an annotation in words, for the end of a message about a value that does not fit it."""
    if get_origin(kind) is tuple:
        return f"a tuple, such as ({value!r},)" if _fits(value, get_args(kind)[0]) else "a tuple, such as (one,)"
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(str, get_args(kind)))}"
    if get_origin(kind) is Mapping:
        return "a mapping with names as keys, such as {'name': value}"
    plain = {str: "text", int: "a whole number", float: "a number", bool: "True or False", NoneType: "None"}
    return plain.get(kind) or f"{kind.__name__}(...)"


def _called(record: Any) -> str:
    """Return a record in words: its type with its first field, ``SettingSource(name='strength')``."""
    first = dataclasses.fields(record)[0].name
    value, kind = getattr(record, first), type(record).__name__
    return f"{kind}({first}={shorten(value, 40)})" if isinstance(value, str) else f"a record {kind}"
