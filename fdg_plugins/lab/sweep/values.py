# SPDX-License-Identifier: Apache-2.0
"""The syntax of ``--set``: ``name=value``, ``name=value,value``, ``method:name=value``; values are JSON or words."""

import json
import re
from typing import Any

from fdg_plugins.errors import SettingsError

_KEY = re.compile(r"(?:(?P<method>[a-z0-9_+]+):)?(?P<name>[a-z][a-z0-9_]*)")


def read_settings(texts: list[str]) -> dict[str, tuple[Any, ...]]:
    """Return the values of each setting by its key, ``name`` or ``method:name``, in the order given."""
    settings: dict[str, tuple[Any, ...]] = {}
    for text in texts:
        key, equals, values = text.partition("=")
        key = key.strip()
        if not equals or not _KEY.fullmatch(key):
            form = "name=value, name=value,value or method:name=value"
            raise SettingsError(field="--set", value=text, expected=form)
        if key in settings:
            raise SettingsError(field="--set", value=key, expected="each setting once, with all of its values")
        settings[key] = split_values(values, key)
    return settings


def split_key(key: str) -> tuple[str | None, str]:
    """Return the method in a key, None if it applies to all, and the setting."""
    method, colon, name = key.rpartition(":")
    return (method if colon else None), name


def split_values(text: str, key: str) -> tuple[Any, ...]:
    """Return the comma-separated values in ``text``: JSON values, or numbers and words.

    ``1.0`` is ``1``, so that both spellings have one name.
    """
    try:
        try:
            values = json.loads(f"[{text}]", parse_constant=str)  # NaN and the infinities are words
        except (ValueError, RecursionError):
            values = [_number_or_word(word.strip()) for word in text.split(",")]
        if not values:
            raise ValueError
    except ValueError as error:
        expected = "numbers, words or valid JSON, with commas between them"
        raise SettingsError(field=f"--set {key}", value=text, expected=expected) from error
    found = [int(one) if isinstance(one, float) and one.is_integer() and abs(one) < 2**53 else one for one in values]
    if len({as_json(value) for value in found}) < len(found):
        raise SettingsError(field=f"--set {key}", value=text, expected="each value once")
    return tuple(found)


def _number_or_word(text: str) -> Any:
    """Return a value outside of JSON; raise ``ValueError`` for a piece of JSON that is not valid."""
    try:
        return json.loads(text, parse_constant=str)
    except ValueError:
        if text[:1] in ("", "{", "[", '"'):
            raise
        return text


def as_json(value: Any) -> str:
    """Return ``value`` as JSON, the same text for equal values."""
    return json.dumps(value, sort_keys=True)
