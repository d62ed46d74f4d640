# SPDX-License-Identifier: Apache-2.0
"""The syntax of ``--set``: ``name=value``, ``name=value,value``, ``method:name=value``; values are JSON or words."""

import json
import re
from typing import Any

from fdg_plugins.errors import SettingsError, shorten

_KEY = re.compile(r"(?:(?P<method>[a-z0-9_+]+):)?(?P<name>[a-z][a-z0-9_]*)")
_JSON = json.JSONDecoder()


def read_settings(texts: list[str]) -> dict[str, tuple[Any, ...]]:
    """Return the values of each setting by its key, ``name`` or ``method:name``, in the order given.

    Raises ``SettingsError`` for invalid syntax, and for a repeated setting or value.
    """
    settings: dict[str, tuple[Any, ...]] = {}
    for text in texts:
        key, equals, values = text.partition("=")
        key = key.strip()
        if not equals or not _KEY.fullmatch(key):
            form = "name=value, name=value,value or method:name=value"
            raise SettingsError(f"--set is {shorten(text)}, expected {form}.")
        if key in settings:
            raise SettingsError(f"--set names {key!r} twice, expected once, with all of its values.")
        settings[key] = split_values(values, key)
    return settings


def split_key(key: str) -> tuple[str | None, str]:
    """Return the method in a key, None if it applies to all, and the setting."""
    method, colon, name = key.rpartition(":")
    return (method if colon else None), name


def split_values(text: str, key: str) -> tuple[Any, ...]:
    """Return the comma-separated values in ``text``; commas inside a JSON object, list or string do not separate."""
    values: list[Any] = []
    rest = text.strip()
    while True:
        value, end = _first_value(rest, key)
        if as_json(value) in map(as_json, values):
            raise SettingsError(f"--set {key} names the value {as_json(value)} twice.")
        values.append(value)
        after = rest[end:].lstrip()
        if value == "" or after[:1] not in ("", ","):
            raise SettingsError(f"--set {key} is {shorten(text)}, expected values with commas between them.")
        if not after:
            return tuple(values)
        rest = after[1:].lstrip()


def as_json(value: Any) -> str:
    """Return ``value`` as JSON, the same text for equal values."""
    return json.dumps(value, sort_keys=True)


def _first_value(text: str, key: str) -> tuple[Any, int]:
    """Return the first value, in which ``1.0`` is ``1`` so that both spellings have one name, and where it ends."""
    try:
        if text.startswith(("{", "[", '"')):
            return _JSON.raw_decode(text)
        word = text.partition(",")[0]
        try:
            value = json.loads(word, parse_constant=str)  # NaN and the infinities are words
        except ValueError:
            value = word.strip()
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"--set {key} is {shorten(text)}, expected valid JSON: {error}.") from error
    is_whole = isinstance(value, float) and value.is_integer() and abs(value) < 2**53
    return int(value) if is_whole else value, len(word)
