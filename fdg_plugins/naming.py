# SPDX-License-Identifier: Apache-2.0
"""Names that a user wrote and nobody knows: the nearest ones, or all there are."""

import difflib
from collections.abc import Iterable
from typing import Any

LONGEST_GUESS = 100  # characters of a name that are compared
LONGEST_LIST = 100  # names that a sentence lists


def nearest(name: Any, known: Iterable[str], most: int = 1, cutoff: float = 0.6) -> list[str]:
    """Return the names that a misspelt one may have meant, the nearest first."""
    if not isinstance(name, str):
        return []
    return difflib.get_close_matches(name[:LONGEST_GUESS], list(known), n=most, cutoff=cutoff)


def did_you_mean(name: Any, known: Iterable[str]) -> str:
    """Return the end of a sentence on an unknown name: what was meant if anything is near, else what there is."""
    names = list(dict.fromkeys(known))
    near = nearest(name, names)
    return f"did you mean {near[0]!r}?" if near else f"known are {_listed(names)}."


def expected_one_of(name: Any, known: Iterable[str]) -> str:
    """Return the end of a sentence on an unknown name: what was meant, if anything is near, and what there is."""
    names = list(dict.fromkeys(known))
    near = nearest(name, names)
    listed = _listed(names)
    return f"did you mean {near[0]!r}? Known are {listed}." if near else f"expected one of {listed}."


def _listed(names: list[str]) -> str:
    listed = ", ".join(names[:LONGEST_LIST]) or "nothing: there is none"
    return listed if len(names) <= LONGEST_LIST else f"{listed} and {len(names) - LONGEST_LIST} more"
