# SPDX-License-Identifier: Apache-2.0
"""Suggestions for unknown names: the closest known names, or a list of all of them."""

import difflib
from collections.abc import Iterable
from typing import Any

LONGEST_GUESS = 100  # the most characters of a name to compare
LONGEST_LIST = 100  # the most names in a message


def nearest(name: Any, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the name in ``known`` that resembles ``name`` most, None if none does; case does not count.

    ``cutoff``: minimum similarity, in [0, 1].
    """
    if not isinstance(name, str):
        return None
    names = {other.casefold(): other for other in reversed(list(known))}
    near = difflib.get_close_matches(name[:LONGEST_GUESS].casefold(), list(names), n=1, cutoff=cutoff)
    return names[near[0]] if near else None


def did_you_mean(name: Any, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: the closest known name, or else all known names."""
    names = list(dict.fromkeys(known))
    near = nearest(name, names)
    return f"did you mean {near!r}?" if near else f"known are {_listed(names)}."


def perhaps(name: Any, known: Iterable[str]) -> str:
    """Return the end of a message that lists the known names already: the closest one, if any, and a full stop."""
    near = nearest(name, known)
    return f"; did you mean {near!r}?" if near else "."


def expected_one_of(name: Any, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: the closest known name, if any, and all known names."""
    names = list(dict.fromkeys(known))
    near = nearest(name, names)
    listed = _listed(names)
    return f"did you mean {near!r}? Known are {listed}." if near else f"expected one of {listed}."


def _listed(names: list[str]) -> str:
    listed = ", ".join(names[:LONGEST_LIST]) or "nothing: there is none"
    return listed if len(names) <= LONGEST_LIST else f"{listed} and {len(names) - LONGEST_LIST} more"
