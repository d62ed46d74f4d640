# SPDX-License-Identifier: Apache-2.0
"""What the value of a setting may be, wherever it comes from, and how a sentence shows one that it may not be."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fdg_plugins.errors import SettingsError

if TYPE_CHECKING:
    import pydantic

LARGEST = 1e30
"""The largest number that a factor or strength may be: times a loss, it is still finite in float32."""

MOST_LEVELS = 8
"""Levels of objects and lists within the value of one setting."""

SHOWN = 80

LONGEST_QUOTE = 200
"""Characters of what somebody else says, in a sentence of ours."""

LONGEST_REASON = 400

_TRUTH = {"true": True, "1": True, "false": False, "0": False}


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


def one_line(text: str, limit: int = LONGEST_REASON) -> str:
    """Return a text of somebody else's as one printable line of at most ``limit`` characters and how many there were.

    Control characters, line ends and marks that turn the direction of writing are written out (``\\n``, ``\\x1b``), so
    that a site can forge no line of a log and colour no terminal.
    """
    printable = visible(text[:limit])
    if len(text) <= limit and len(printable) <= limit:
        return printable
    return f"{printable[:limit]}... ({len(text)} characters)"


def first_problem(error: "pydantic.ValidationError") -> str:
    """Return pydantic's first complaint as one sentence: field, what came, what was expected."""
    detail = error.errors(include_url=False)[0]
    field = one_line(".".join(str(part) for part in detail["loc"]) or "value", LONGEST_QUOTE)
    if detail["type"] == "extra_forbidden":
        return f"unknown field {field!r}."
    if detail["type"] == "missing":
        return f"field {field!r} is missing."
    expected = detail["msg"]
    return f"{field} is {shorten(detail['input'])}, but {expected[:1].lower()}{expected[1:]}."


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


def check_number(
    name: str, value: Any, *, at_least: float = 0, above: float | None = None, at_most: float = math.inf
) -> None:
    """Raise ``SettingsError`` unless ``value`` is a number in the range given and no larger than ``LARGEST``.

    ``above``, where given, stands in place of ``at_least``.
    """
    low = is_number(value) and (value > above if above is not None else value >= at_least)
    if low and value <= at_most:
        return
    if above is not None:
        wanted = f"a finite number above {above}"
    elif at_most == math.inf:
        wanted = f"a finite number of at least {at_least}"
    else:
        wanted = f"a number from {at_least} to {at_most}"
    raise SettingsError(f"{name} is {shorten(value)}, expected {wanted}{too_large(value)}.")


def check_count(name: str, value: Any, *, at_least: int, at_most: int) -> None:
    """Raise ``SettingsError`` unless ``value`` is a whole number from ``at_least`` to ``at_most``."""
    if not isinstance(value, int) or isinstance(value, bool) or value < at_least:
        raise SettingsError(f"{name} is {shorten(value)}, expected a whole number of at least {at_least}.")
    if value > at_most:
        raise SettingsError(f"{name} is {shorten(value)}, expected at most {at_most:,}.")


def check_choice(name: str, value: Any, choices: Iterable[str]) -> None:
    """Raise ``SettingsError`` unless ``value`` is one of ``choices``."""
    known = sorted(choices)
    if not isinstance(value, str) or value not in known:
        raise SettingsError(f"{name} is {shorten(value)}, expected one of {', '.join(known)}.")


def check_truth(name: str, value: Any) -> None:
    """Raise ``SettingsError`` unless ``value`` is true or false."""
    if not isinstance(value, bool):
        raise SettingsError(f"{name} is {shorten(value)}, expected true or false.")


def check_settings_known(whose: str, settings: Iterable[Any], known: Sequence[str]) -> None:
    """Raise ``SettingsError``, which begins with ``whose``, for the first setting that is not among those known."""
    for setting in settings:
        if setting not in known:
            has = ", ".join(known) or "none"
            raise SettingsError(f"{whose} has no setting {shorten(setting)}; it has {has}.")


def read_like(name: str, value: Any, like: Any) -> Any:
    """Return text, as from the environment, as a value of the kind of ``like``: a truth value, text, else a number.

    What is no text stays as it is, and so does text where ``like`` is a mapping. Raises ``SettingsError`` for text that
    cannot be read so.
    """
    if not isinstance(value, str):
        return value
    text = value.strip()
    if isinstance(like, str | Mapping):
        return text
    try:
        return _TRUTH[text.lower()] if isinstance(like, bool) else float(text)
    except (KeyError, ValueError) as error:
        wanted = "true or false" if isinstance(like, bool) else "a number"
        raise SettingsError(f"{name} is {shorten(value)}, expected {wanted}.") from error


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
