# SPDX-License-Identifier: Apache-2.0
"""Which entries of a model travel: one rule for each name of the state dict, shared by server and sites.

======== ===================================== ======================================================
rule     at a site                             at the server
======== ===================================== ======================================================
shared   trained, and sent as part of updates  combined, and moved by the step
personal trained, and kept by this site alone  keeps its initial value, for sites without their own
frozen   never changed                         keeps its initial value
======== ===================================== ======================================================

Buffers follow the same rule as parameters: a layer whose running statistics are frozen uses them and does not update
them.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase

from fdg_plugins.errors import SettingsError, shorten

ALL, HEAD, EXTRACTOR, BODY = "all", "head", "extractor", "body"

Travels = str | Mapping[str, Sequence[str]]
"""A name in :data:`NAMED`, or ``{"personal": [patterns], "frozen": [patterns]}``; unmatched entries are shared."""


class Rule(StrEnum):
    """How one entry of the state dict is treated."""

    SHARED = "shared"
    PERSONAL = "personal"
    FROZEN = "frozen"


# Name -> the rule for the entries of the head, and that for all others.
_BY_NAME = {
    ALL: (Rule.SHARED, Rule.SHARED),
    HEAD: (Rule.SHARED, Rule.FROZEN),
    EXTRACTOR: (Rule.PERSONAL, Rule.SHARED),
    BODY: (Rule.FROZEN, Rule.SHARED),
}
NAMED = tuple(_BY_NAME)


@dataclass(frozen=True)
class Rules:
    """The rule for every entry of a state dict, by name."""

    of: Mapping[str, Rule]

    def names(self, rule: Rule) -> tuple[str, ...]:
        """Return the names under one rule, in the order of the state dict."""
        return tuple(name for name, one in self.of.items() if one is rule)


def rules_of(travels: Travels, names: Sequence[str], trainable: Collection[str], head: Collection[str]) -> Rules:
    """Return the rules for the entries ``names`` of a state dict.

    A pattern is the beginning of a dotted name (``"extractor.layer4"``), or contains wildcards (``"*.bias"``).

    Args:
        travels: which entries are shared; see :data:`Travels`.
        names: all entries, in the order of the state dict.
        trainable: the names of the trainable parameters.
        head: the names of the entries of the head.

    Raises ``SettingsError`` for a pattern that matches nothing, two rules for one entry, or if no trainable parameter
    is shared.

    >>> names = ["extractor.0.weight", "classifier.weight"]
    >>> rules = rules_of("extractor", names, trainable=names, head=names[1:])
    >>> rules.names(Rule.SHARED), rules.names(Rule.PERSONAL)
    (('extractor.0.weight',), ('classifier.weight',))
    """
    if isinstance(travels, str):
        in_head, elsewhere = _BY_NAME[travels]
        found = {name: in_head if name in head else elsewhere for name in names}
    else:
        found = _by_patterns(travels, names)
    if not any(found[name] is Rule.SHARED for name in trainable):
        _refuse(f"is {shorten(travels)}, which leaves no trainable parameter to share, expected at least one")
    return Rules(found)


def with_fixed(rules: Rules, fixed: Collection[str], trainable: Collection[str], setting: str) -> Rules:
    """Return ``rules`` with the entries ``fixed`` frozen; ``setting``, in words, is what fixes them.

    ``trainable``: the names of the trainable parameters. Raises ``SettingsError`` if one that is fixed is personal, or
    if none that is shared is left.
    """
    if untrained := [name for name in rules.names(Rule.PERSONAL) if name in fixed]:
        _refuse(f"makes {untrained[0]!r} personal, which {setting} never trains, expected one of what it trains")
    found = {name: Rule.FROZEN if name in fixed else rule for name, rule in rules.of.items()}
    if not any(found[name] is Rule.SHARED for name in trainable):
        _refuse(f"and {setting} leave no trainable parameter to share, expected at least one")
    return Rules(found)


def _by_patterns(travels: Mapping[str, Sequence[str]], names: Sequence[str]) -> dict[str, Rule]:
    found = dict.fromkeys(names, Rule.SHARED)
    for rule, pattern in ((Rule(rule), pattern) for rule, patterns in travels.items() for pattern in patterns):
        stem = f"{pattern.rstrip('.')}."
        matched = [name for name in names if f"{name}.".startswith(stem) or fnmatchcase(name, pattern)]
        if not matched:
            _refuse(f"has the pattern {shorten(pattern)}, which names nothing of the network")
        for name in matched:
            if found[name] not in (Rule.SHARED, rule):
                _refuse(f"makes {name!r} both personal and frozen, expected one of them")
            found[name] = rule
    return found


def _refuse(reason: str) -> None:
    raise SettingsError(f"travels (FDG_TRAVELS) {reason}.", public=True)
