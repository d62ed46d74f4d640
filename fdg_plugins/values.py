# SPDX-License-Identifier: Apache-2.0
"""What the value of a setting may be, wherever it comes from, and how a sentence shows one that it may not be."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from fdg_plugins.errors import SettingsError

LARGEST = 1e30
"""The largest number that a factor or strength may be: times a loss, it is still finite in float32."""

MOST_LEVELS = 8
"""Levels of objects and lists within the value of one setting."""

SHOWN = 80


def shorten(value: Any, limit: int = SHOWN) -> str:
    """Return ``repr(value)``, cut to ``limit`` characters; never raises, however deep, long or large the value is."""
    if isinstance(value, Mapping):
        return f"a mapping of {len(value)} keys"
    if isinstance(value, str | bytes):
        value = value[: limit + 1]  # there is no need to quote megabytes
    elif isinstance(value, list | tuple | set | frozenset) and len(value) > limit:
        return f"a {type(value).__name__} of {len(value)}"
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # too many levels; an integer of more digits than Python writes out
        return f"a very large {type(value).__name__}"
    return text if len(text) <= limit else text[: limit - 3] + "..."


def visible(text: str) -> str:
    """Return ``text`` with every character that is not printable written out, as Python does.

    So a file's name, or what somebody else says, forges no line of a log and commands no terminal.
    """
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


def is_utf8(text: str) -> bool:
    """Return whether ``text`` can be written in UTF-8: file names on Linux, which are bytes, may hold others."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_number(value: Any) -> bool:
    """Return whether ``value`` is an integer or float, no truth value, not NaN, and from -LARGEST to LARGEST."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -LARGEST <= value <= LARGEST


def too_large(value: Any) -> str:
    """Return the end of a sentence on a number that is finite and beyond the largest; else nothing."""
    finite = isinstance(value, int | float) and not isinstance(value, bool) and value not in (math.inf, -math.inf)
    return f", and of at most {LARGEST:g}" if finite and value > LARGEST else ""


def check_depth(name: str, value: Any) -> None:
    """Raise ``SettingsError`` if ``value`` has more than ``MOST_LEVELS`` levels of mappings and lists."""
    if depth_exceeds(value, MOST_LEVELS):
        raise SettingsError(
            f"{name[:120]} is nested in more than {MOST_LEVELS} levels, expected no more of them.", public=True
        )


def depth_exceeds(value: Any, levels: int) -> bool:
    """Return whether lists and mappings, such as a JSON value's, are nested in each other more than ``levels`` deep."""
    level = _containers([value])
    for _ in range(levels):
        if not level:
            return False
        level = _containers(child for one in level for child in (one.values() if isinstance(one, Mapping) else one))
    return bool(level)


def _containers(values: Iterable[Any]) -> list[Any]:
    return [value for value in values if isinstance(value, Mapping | list | tuple)]
