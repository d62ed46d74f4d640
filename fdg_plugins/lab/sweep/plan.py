# SPDX-License-Identifier: Apache-2.0
"""The request of a sweep, as ``sweep.json`` keeps it, its runs, and the syntax of ``--set``.

A run's name depends only on the run, so adding methods, domains, seeds or values leaves it unchanged.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, Literal

import pydantic

from fdg_plugins.errors import SettingsError
from fdg_plugins.messages import Checked
from fdg_plugins.plugins.own_dataset import OwnDataset

LONGEST_NAME = 120
_PLAIN_VALUE = re.compile(r"-?\d+(\.\d+)?(e[+-]\d+)?|[A-Za-z0-9_.]+")
_PLAIN_LENGTH = 24
_KEY = re.compile(r"(?:(?P<method>[a-z0-9_+]+):)?(?P<name>[a-z][a-z0-9_]*)")


class Request(Checked):
    """Everything that determines which runs there are and their settings; nothing that depends on the machine.

    ``settings`` has the values of ``--set`` by ``name`` or ``method:name``; several are an axis of the grid.
    """

    dataset: str | OwnDataset
    protocol: str
    methods: tuple[str, ...] = pydantic.Field(min_length=1)
    targets: tuple[str, ...] = pydantic.Field(min_length=1)
    seeds: tuple[int, ...] = pydantic.Field(min_length=1)
    settings: dict[str, tuple[Any, ...]] = pydantic.Field(default_factory=dict)


class DataFound(Checked):
    """The images of a sweep: whether they only stand in for others, and their number per domain."""

    stand_in: bool
    images: dict[str, int]


class SweepFile(Checked, extra="ignore"):
    """The content of ``sweep.json``; versions before 0.3.0 wrote more.

    ``pretrained``: the SHA-256 of ``FDG_PRETRAINED_FILE``, empty without one; None in sweeps from before this was kept.
    """

    format: Literal[1] = 1
    request: Request
    data: DataFound
    pretrained: str | None = None


class PlannedRun(Checked):
    """One run: its name and its parts. ``settings`` contains every setting that deviates from the method's own.

    ``protocol`` is the name of the sweep's protocol; if the method does not know it, its values are in ``settings``.
    """

    name: str
    dataset: str | OwnDataset
    protocol: str
    method: str
    target: str
    seed: int
    settings: dict[str, Any]


def run_name(method: str, target: str, seed: int, point: Mapping[str, Any]) -> str:
    """Return a unique name that is safe for a file: ``fedomg-sketch-seed0-kappa0.5``."""
    parts = [method, target, f"seed{seed}", *(f"{name}{_value_text(point[name])}" for name in sorted(point))]
    name = "-".join(parts)
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 9]}-{_digest(name)}"


def _value_text(value: Any) -> str:
    # Words with "-" could be mistaken for the start of the next setting, and "1" and 1 are different values.
    text = value if isinstance(value, str) else as_json(value)
    looks_like_json = isinstance(value, str) and re.match(r"-?\d|(true|false|null)$", value) is not None
    if len(text) <= _PLAIN_LENGTH and _PLAIN_VALUE.fullmatch(text) and not looks_like_json:
        return text
    words = re.sub(r"[^A-Za-z0-9.]+", "_", text).strip("_")[:_PLAIN_LENGTH]
    return f"{words}_{_digest(as_json(value))}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


# --- the syntax of --set: ``name=value``, ``name=value,value``, ``method:name=value``; values are JSON or words ---


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
    try:
        return json.loads(text, parse_constant=str)
    except ValueError:
        if text[:1] in ("", "{", "[", '"'):
            raise
        return text


def as_json(value: Any) -> str:
    """Return ``value`` as JSON, the same text for equal values."""
    return json.dumps(value, sort_keys=True)
