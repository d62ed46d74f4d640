# SPDX-License-Identifier: Apache-2.0
"""The syntax of ``--set``: ``name=value``, ``name=value,value``, ``method:name=value``; values are JSON or words."""

import json
import re
from typing import Any

from fdg_plugins.errors import SettingsError
from fdg_plugins.values import MOST_LEVELS, check_depth, shorten

_KEY = re.compile(r"(?:(?P<method>[a-z0-9_+]+):)?(?P<name>[a-z][a-z0-9_]*)")
_JSON_STARTS = ("{", "[", '"')


def read_settings(texts: list[str]) -> dict[str, tuple[Any, ...]]:
    """Return the values of each setting by its key, ``name`` or ``method:name``, in the order given.

    Raises ``SettingsError`` for invalid syntax, and for a repeated setting or value.
    """
    settings: dict[str, tuple[Any, ...]] = {}
    for text in texts:
        key, values = _key_and_values(text)
        if key in settings:
            raise SettingsError(f"--set names {key!r} twice, expected once, with all of its values.")
        settings[key] = split_values(values, key)
    return settings


def _key_and_values(text: str) -> tuple[str, str]:
    key, equals, values = text.partition("=")
    if not equals or not _KEY.fullmatch(key.strip()):
        raise SettingsError(f"--set is {shorten(text)}, expected name=value, name=value,value or method:name=value.")
    return key.strip(), values


def split_key(key: str) -> tuple[str | None, str]:
    """Return the method in a key, None if it applies to all, and the setting."""
    method, colon, name = key.rpartition(":")
    return (method if colon else None), name


def split_values(text: str, key: str) -> tuple[Any, ...]:
    """Return the comma-separated values in ``text``; commas inside a JSON object, list or string do not separate."""
    values: list[Any] = []
    rest = text.strip()
    while True:
        value, rest = _first_value(rest, key)
        if as_json(value) in map(as_json, values):
            raise SettingsError(f"--set {key} names the value {as_json(value)} twice.")
        values.append(value)
        if not rest:
            return tuple(values)
        rest = rest[1:].lstrip()


def as_json(value: Any) -> str:
    """Return ``value`` as JSON, the same text for equal values."""
    return json.dumps(value, sort_keys=True)


def _first_value(text: str, key: str) -> tuple[Any, str]:
    """Return the first value, and the rest of the text from the comma that ends the value, empty at the end."""
    if text.startswith(_JSON_STARTS):
        value, end = _first_json(text, key)
    else:
        word = text.partition(",")[0]
        value, end = _plain(word.strip()), len(word)
    rest = text[end:].lstrip()
    if value == "" or rest[:1] not in ("", ","):
        raise SettingsError(
            f"--set {key}: {shorten(text)} does not begin with a value and a comma or the end after it."
        )
    return _whole(value), rest


def _first_json(text: str, key: str) -> tuple[Any, int]:
    """Return the JSON value at the start of the text, and the index of its end."""
    try:
        value, end = json.JSONDecoder(parse_constant=_refuse).raw_decode(text)
    except RecursionError as error:
        raise SettingsError(f"--set {key} is nested in more than {MOST_LEVELS} levels.") from error
    except ValueError as error:
        raise SettingsError(f"--set {key}: {shorten(text)} is not valid JSON: {error}.") from error
    check_depth(f"--set {key}", value)
    return value, end


def _plain(text: str) -> Any:
    """Return a number, a truth value or null as such, and any other word as text."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except ValueError:
        return text


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON value")


def _whole(value: Any) -> Any:
    """Return ``1.0`` as ``1``, so that both spellings are one value with one name."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value
