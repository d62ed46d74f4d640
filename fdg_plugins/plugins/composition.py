# SPDX-License-Identifier: Apache-2.0
"""Methods composed by name: one direction of the server's step, one weighting of the sites, one local objective.

A name is one published method, or several joined by ``+`` in any order, each in any spelling: its key, its name as a
part, either without its ``fed``, in upper or lower case. Unnamed parts are FedAvg's. All of this follows from the
records of :data:`fdg_plugins.plugins.methods.METHODS`, including those of plug-ins; neither torch nor FLARE is loaded.

>>> parse_method("FedOMG + dim + fedga").name
'fedomg+ga+dim'
>>> parse_method("fedavg+ga").name
'fedga'
>>> title_of("fedomg+ga")
'FedOMG + GA'
"""

import itertools
from dataclasses import dataclass, replace
from typing import Any, Literal

from fdg_plugins.errors import SettingsError
from fdg_plugins.naming import nearest
from fdg_plugins.plugins.method import Leaving, Method
from fdg_plugins.plugins.methods import METHODS
from fdg_plugins.values import shorten

Place = Literal["direction", "weighting", "objective"]

BASE = "fedavg"  # the method in every place that no other takes
PLAIN = "erm"  # the objective of a method without one of its own
PREFIX = "fed"  # shared by most methods; may be omitted
OWN_IDEA = "reported in neither paper, offered here"


@dataclass(frozen=True)
class Composition:
    """The parts of a run's method.

    Args:
        direction: the key of the method whose aggregator determines the server's step.
        weighting: the method with the weighting, by its name as a part; None: the aggregator's own setting.
        objective: the method with the objective, by its name as a part.
    """

    direction: str = BASE
    weighting: str | None = None
    objective: str = PLAIN

    @property
    def name(self) -> str:
        """The canonical name: as published, else that of the remainder plus its weighting or its objective."""
        of_one_method = next((name for name, made in published().items() if made == self), None)
        return self._joined_name if of_one_method is None else of_one_method

    @property
    def _joined_name(self) -> str:
        if self.weighting == self.objective:  # of one method, which is named once
            return f"{self.direction}+{self.objective}"
        if self.weighting is not None and self._ends_in_weighting:
            return f"{replace(self, weighting=None).name}+{self.weighting}"
        return self.direction if self.objective == PLAIN else f"{replace(self, objective=PLAIN).name}+{self.objective}"

    @property
    def _ends_in_weighting(self) -> bool:
        """Whether what remains without the weighting has a name that the objective does not end."""
        return self.objective == PLAIN or replace(self, weighting=None) in published().values()

    @property
    def is_plain_mean(self) -> bool:
        """Whether the server's step is FedAvg's mean, under a weighting that no method sets."""
        return self.direction == BASE and self.weighting is None

    @property
    def aggregator(self) -> str:
        """The name of the aggregator: that of the method with the weighting built in, if there is one."""
        record = METHODS.find(replace(self, objective=PLAIN).name)
        return record.key if record is not None and record.aggregator is not None else self.direction

    @property
    def records(self) -> tuple[Method, ...]:
        """The records of the methods in the composition, in the order of its name; FedAvg's only if it is alone."""
        names = [name for name in (self.weighting, self.objective) if name not in (None, PLAIN)]
        if self.direction != BASE or not names:
            names = [self.direction, *names]
        found = [METHODS.get(name) for name in names]
        return tuple({record.key: record for record in found}.values())

    def plus(self, part: str) -> "Composition":
        """Return the composition with ``part`` added; raise ``SettingsError`` if unknown or if its place is taken."""
        return parse_method(f"{self.name}+{part}")

    def leaves(self) -> list[Leaving]:
        """Return all data that leaves a site, each once: that of FedAvg, and that of the other methods."""
        added = [leaving for record in self.records if record.key != BASE for leaving in record.leaves]
        return list(dict.fromkeys([*METHODS.get(BASE).leaves, *added]))

    def together(self) -> list[tuple[Method, Method, str]]:
        """Return each pair of its methods, with the source that has combined the two."""
        records = self.records
        return [
            (one, other, _company(one, other)) for number, one in enumerate(records) for other in records[number + 1 :]
        ]


def published() -> dict[str, Composition]:
    """Return the composition of each published method by its key, in the order of tables.

    Of plug-ins, those that are loaded: an operator may forbid the others, so a run must not load them.
    """
    return {record.key: Composition(**places_of(record)) for record in METHODS.loaded()}


def places_of(record: Method) -> dict[Place, str]:
    """Return the places that a method takes in a composition, and its name there.

    The aggregator of a method with a weighting is FedAvg's with that weighting built in: it does not take the place of
    the direction.
    """
    places: dict[Place, str] = {}
    if record.sets_direction:
        places["direction"] = record.key
    if record.weighting is not None:
        places["weighting"] = record.part_name
    if record.objective is not None:
        places["objective"] = record.part_name
    return places


def weighting_parts() -> tuple[str, ...]:
    """Return the names of all weightings that make a method; others are a setting of an aggregator."""
    return tuple(places["weighting"] for places in map(places_of, METHODS.loaded()) if "weighting" in places)


def objective_parts() -> tuple[str, ...]:
    """Return the names of all objectives that make a method."""
    return tuple(places["objective"] for places in map(places_of, METHODS.loaded()) if "objective" in places)


def compositions() -> list[Composition]:
    """Return every composition that has a name, by direction, weighting and objective in the order of tables.

    A method with both a weighting and an objective is a part with both or not at all. Parts may still contradict each
    other, which :mod:`fdg_plugins.aggregators.compatibility` refuses with the reason.
    """
    directions = dict.fromkeys(made.direction for made in published().values())
    every = itertools.product(directions, (None, *weighting_parts()), (PLAIN, *objective_parts()))
    pairs = [places for places in map(places_of, METHODS.all()) if {"weighting", "objective"} <= places.keys()]
    return [made for one in every if _has_whole_methods(made := Composition(*one), pairs)]


def _has_whole_methods(made: Composition, pairs: list[dict[Place, str]]) -> bool:
    """Return whether ``made`` has both or neither place of each method in ``pairs``."""
    return all((made.weighting == pair["weighting"]) is (made.objective == pair["objective"]) for pair in pairs)


def parse_method(text: Any) -> Composition:
    """Return the composition that ``text`` names.

    Raises ``SettingsError`` for an unknown name, with the nearest one, and for two methods in one place.
    """
    holders: dict[Place, tuple[Method, str]] = {}
    for part in text.split("+") if isinstance(text, str) else (text,):
        record = find_method(part)
        if record is None:
            raise SettingsError(_unknown(text, part))
        _take_places(holders, record, text)
    return Composition(**{place: name for place, (_, name) in holders.items()})


def _take_places(holders: dict[Place, tuple[Method, str]], record: Method, text: Any) -> None:
    """Enter a method in the places that it takes; raise ``SettingsError`` if another method holds one of them."""
    for place, name in places_of(record).items():
        if place in holders:
            raise SettingsError(
                f"method is {shorten(text)}, but {holders[place][0].key} and {record.key} both set the {place}; "
                "expected one of them."
            )
        holders[place] = (record, name)


def find_method(name: Any) -> Method | None:
    """Return the record of the method of that name, in any spelling; None if there is none."""
    if not isinstance(name, str):
        return None
    asked = name.strip().lower()
    spellings = (asked, f"{PREFIX}{asked}")
    found = next(filter(None, map(METHODS.find, spellings)), None)
    if found is None and METHODS.entries():
        METHODS.load_usable()  # a plug-in's name as a part is known only after loading
        found = next(filter(None, map(METHODS.find, spellings)), None)
    return found


def title_of(name: str) -> str:
    """Return the display name of a method or composition; unknown parts are kept as they are."""
    return " + ".join(_part_title(part) for part in name.split("+"))


def _part_title(part: str) -> str:
    record = find_method(part)
    if record is None:
        return part
    return record.title if part == record.key else record.part_title or record.title


def _company(one: Method, other: Method) -> str:
    """Return the source that has combined the two methods."""
    sources = [
        together.source
        for record, company in ((one, other), (other, one))
        for together in record.together
        if together.method == company.key
    ]
    return sources[0] if sources else OWN_IDEA


def _unknown(text: Any, part: Any) -> str:
    """Return the message for a part that names no method, with the nearest known name."""
    known = METHODS.names()
    said = f"method is {shorten(text)}, "
    if part != text:
        said += f"in which {shorten(part)} is unknown: "
    # Compared without the prefix, which nearly all of them share.
    short = {name.removeprefix(PREFIX): name for name in known}
    near = nearest(part.strip().lower().removeprefix(PREFIX), short) if isinstance(part, str) else None
    as_part = part != text and near is not None and not part.strip().lower().startswith(PREFIX)
    hint = f"did you mean {(near if as_part else short[near])!r}? Known are" if near else "expected one of"
    return f"{said}{hint} {', '.join(known)}, or several joined by +, such as fedomg+ga."
