# SPDX-License-Identifier: Apache-2.0
"""Checks for the values of settings from any source, and how an error message shows an invalid value."""

import json
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fdg_plugins.errors import SettingsError
from fdg_plugins.naming import did_you_mean, nearest

if TYPE_CHECKING:
    import pydantic

LARGEST = 1e30
"""The largest allowed value of a factor or strength; its product with a loss is still finite in float32."""

MOST_LEVELS = 8
"""The most levels of nested objects and lists in the value of one setting."""

SHOWN = 80

LONGEST_QUOTE = 200
"""The most characters of another participant's text that a message quotes."""

LONGEST_REASON = 400

_TRUTH = {"true": True, "1": True, "false": False, "0": False}


def shorten(value: Any, limit: int = SHOWN) -> str:
    """Return ``repr(value)``, cut to ``limit`` characters; never raise, however deep, long or large the value is."""
    if isinstance(value, Mapping):
        return f"a mapping of {len(value)} keys"
    if isinstance(value, list | tuple | set | frozenset) and len(value) > limit:
        return f"a {type(value).__name__} of {len(value)}"
    return _short_repr(value, limit)


def _short_repr(value: Any, limit: int) -> str:
    try:
        text = repr(value[: limit + 1] if isinstance(value, str | bytes) else value)  # not of megabytes
    except (RuntimeError, ValueError):  # too many levels; an integer of too many digits; a broken sparse tensor
        return f"a very large {type(value).__name__}"
    return text if len(text) <= limit else text[: limit - 3] + "..."


def visible(text: str) -> str:
    """Return ``text`` with every non-printable character escaped, as Python does.

    A file name or another participant's text can then neither forge log lines nor control a terminal.
    """
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


def counted(number: int | float, one: str, several: str = "") -> str:
    """Return a number with its noun: ``1 round``, ``2 rounds``, ``1,000 images``.

    ``several``: the plural, if it is not regular.
    """
    digits = f"{number:,}" if isinstance(number, int) else f"{number:g}"
    return f"{digits} {one if number == 1 else several or one + 's'}"


def one_line(text: str, limit: int = LONGEST_REASON) -> str:
    """Return another participant's text as one printable line, cut to ``limit`` characters plus the original length.

    Control characters, line breaks and bidirectional marks are escaped (``\\n``, ``\\x1b``), so a site can neither
    forge log lines nor control a terminal.
    """
    printable = visible(text[:limit])
    if len(text) <= limit and len(printable) <= limit:
        return printable
    return f"{printable[:limit]}... ({len(text)} characters)"


def first_problem(error: "pydantic.ValidationError", known: Collection[str] = ()) -> str:
    """Return pydantic's first error as one sentence: field, actual value, expected value.

    ``known``: the fields there are, for a person who has misspelt one.
    """
    detail = error.errors(include_url=False)[0]
    field = one_line(".".join(str(part) for part in detail["loc"]) or "value", LONGEST_QUOTE)
    if detail["type"] == "extra_forbidden":
        unknown = f"unknown field {field!r}"
        return f"{unknown}: {did_you_mean(field, known)}" if known and len(detail["loc"]) == 1 else f"{unknown}."
    if detail["type"] == "missing":
        return f"field {field!r} is missing."
    return f"{field} is {shorten(detail['input'])}, but {objection(detail)}."


def objection(detail: Mapping[str, Any]) -> str:
    """Return what one of pydantic's errors says against a value, as the end of a sentence without its full stop."""
    said = str(detail["msg"]).removeprefix("Value error, ").rstrip(".")
    hint = ""
    if detail.get("type") in ("literal_error", "enum") and (
        near := nearest(detail["input"], re.findall("'(.*?)'", said))
    ):
        hint = f" (did you mean {near!r}?)"
    return said[:1].lower() + said[1:] + hint  # no further: it may quote a name


def parsed_object(value: Any) -> Any:
    """Return the object in a text that is one in JSON; anything else as it is."""
    if isinstance(value, str) and value.strip().startswith("{"):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def is_utf8(text: str) -> bool:
    """Return whether ``text`` can be encoded in UTF-8; file names on Linux, which are bytes, may not be."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_number(value: Any) -> bool:
    """Return whether ``value`` is an integer or float (not a boolean or NaN) in [-LARGEST, LARGEST]."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -LARGEST <= value <= LARGEST


def too_large(value: Any) -> str:
    """Return the end of a message about a finite number above LARGEST; an empty string for any other value."""
    is_real = isinstance(value, int | float) and not isinstance(value, bool)
    return f", and of at most {LARGEST:g}" if is_real and LARGEST < value < math.inf else ""


def check_number(
    name: str, value: Any, *, at_least: float = 0, above: float | None = None, at_most: float = math.inf
) -> None:
    """Raise ``SettingsError`` unless ``value`` is a number in [``at_least``, ``at_most``] of at most ``LARGEST``.

    If ``above`` is given, it replaces ``at_least`` as an exclusive bound.
    """
    if not is_number(value) or not _is_between(value, at_least, above, at_most):
        wanted = _range_of(at_least, above, at_most)
        raise SettingsError(f"{name} is {shorten(value)}, expected {wanted}{too_large(value)}.")


def _is_between(value: float, at_least: float, above: float | None, at_most: float) -> bool:
    is_large_enough = value >= at_least if above is None else value > above
    return is_large_enough and value <= at_most


def _range_of(at_least: float, above: float | None, at_most: float) -> str:
    """Return the words for a range of numbers."""
    if above is not None:
        return f"a finite number above {above}"
    if at_most == math.inf:
        return f"a finite number of at least {at_least}"
    return f"a number from {at_least} to {at_most}"


def check_count(name: str, value: Any, *, at_least: int, at_most: int) -> None:
    """Raise ``SettingsError`` unless ``value`` is a whole number in [``at_least``, ``at_most``]."""
    if not _is_whole(value) or value < at_least:
        raise SettingsError(f"{name} is {shorten(value)}, expected a whole number of at least {at_least}.")
    if value > at_most:
        raise SettingsError(f"{name} is {shorten(value)}, expected at most {at_most:,}.")


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


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
    """Raise ``SettingsError``, whose text begins with ``whose``, for the first setting that is not in ``known``."""
    for setting in settings:
        if setting not in known:
            has = ", ".join(known) or "none"
            raise SettingsError(f"{whose} has no setting {shorten(setting)}; it has {has}.")


def read_like(name: str, value: Any, like: Any, names: Collection[str] = ()) -> Any:
    """Convert text, such as an environment variable, to the type of ``like``: a boolean, text, or otherwise a number.

    A value that is not text is returned unchanged, and so is one of ``names``, which stand for numbers. If ``like`` is
    text or a mapping, the stripped text is returned. A whole number is an integer if ``like`` is one. Raises
    ``SettingsError`` for text that cannot be converted.
    """
    if not isinstance(value, str):
        return value
    if value.strip() in names:
        return value.strip()
    if isinstance(like, str | Mapping):
        return value.strip()
    if isinstance(like, bool):
        return _truth_in(name, value)
    number = _number_in(name, value)
    return int(number) if isinstance(like, int) and number.is_integer() else number


def _truth_in(name: str, text: str) -> bool:
    try:
        return _TRUTH[text.strip().lower()]
    except KeyError as error:
        raise SettingsError(f"{name} is {shorten(text)}, expected true or false.") from error


def _number_in(name: str, text: str) -> float:
    try:
        return float(text.strip())
    except ValueError as error:
        raise SettingsError(f"{name} is {shorten(text)}, expected a number.") from error


def check_depth(name: str, value: Any) -> None:
    """Raise ``SettingsError`` if ``value`` has more than ``MOST_LEVELS`` levels of mappings and lists."""
    if depth_exceeds(value, MOST_LEVELS):
        raise SettingsError(
            f"{name[:120]} is nested in more than {MOST_LEVELS} levels, expected no more of them.", public=True
        )


def depth_exceeds(value: Any, levels: int) -> bool:
    """Return whether lists and mappings, such as those of a JSON value, are nested more than ``levels`` deep."""
    level = _containers([value])
    for _ in range(levels):
        if not level:
            return False
        level = _containers(child for one in level for child in (one.values() if isinstance(one, Mapping) else one))
    return bool(level)


def _containers(values: Iterable[Any]) -> list[Any]:
    return [value for value in values if isinstance(value, Mapping | list | tuple)]
