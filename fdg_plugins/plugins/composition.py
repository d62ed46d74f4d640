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

from fdg_plugins.errors import SettingsError, did_you_mean, nearest, shorten
from fdg_plugins.plugins.method import Leaving, Method
from fdg_plugins.plugins.methods import METHODS, REFERENCES

Place = Literal["direction", "weighting", "objective", "over"]

BASE = "fedavg"  # the method in every place that no other takes
PLAIN = "erm"  # the objective of a method without one of its own
PREFIX = "fed"  # shared by most methods; may be omitted
OWN_IDEA = "reported in neither paper, offered here"


def combined() -> dict[frozenset[str], str]:
    """Return who has combined two methods of this package, by their keys, in the order of tables."""
    return {
        frozenset((record.key, other)): source
        for record in METHODS.own().values()
        for other, source in record.combined.items()
    }


@dataclass(frozen=True)
class Composition:
    """The parts of a run's method.

    Args:
        direction: the key of the method whose aggregator determines the server's step.
        weighting: the method with the weighting, by its name as a part; None: the aggregator's own setting.
        objective: the method with the objective, by its name as a part.
        over: the key of the method from whose mean update the direction starts; None: FedAvg.
    """

    direction: str = BASE
    weighting: str | None = None
    objective: str = PLAIN
    over: str | None = None

    @property
    def name(self) -> str:
        """The canonical name: as published, else that of the remainder plus its weighting or its objective."""
        for name, made in published().items():
            if made == self:
                return name
        if self.over is not None:
            first, *others = replace(self, over=None).name.split("+")
            return "+".join([first, self.over.removeprefix(PREFIX), *others])
        bare = replace(self, weighting=None)
        if self.weighting == self.objective:  # of one method, which is named once
            return f"{self.direction}+{self.objective}"
        if self.weighting is not None and (self.objective == PLAIN or bare in published().values()):
            return f"{bare.name}+{self.weighting}"
        return self.direction if self.objective == PLAIN else f"{replace(self, objective=PLAIN).name}+{self.objective}"

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
        others = [name for name in (self.over, self.weighting, self.objective) if name not in (None, PLAIN)]
        names = others if others and self.direction == BASE else [self.direction, *others]
        return tuple({record.key: record for record in map(METHODS.get, names)}.values())

    def leaves(self) -> list[Leaving]:
        """Return all data that leaves a site, each once: that of FedAvg, and that of the other methods."""
        records = (METHODS.get(BASE), *self.records)
        return list(dict.fromkeys(leaving for record in records for leaving in record.leaves))

    def together(self) -> list[tuple[Method, Method, str]]:
        """Return each pair of its methods, with the source that has combined the two."""
        return [
            (one, other, one.combined.get(other.key) or other.combined.get(one.key) or OWN_IDEA)
            for one, other in itertools.combinations(self.records, 2)
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
    places: dict[Place, str] = {"direction": record.key} if record.sets_direction else {}
    if record.weighting is not None:
        places["weighting"] = record.part_name
    if record.objective is not None:
        places["objective"] = record.part_name
    return places


def parts(place: Place) -> tuple[str, ...]:
    """Return the names of all methods in a place; weightings that make no method are a setting of an aggregator."""
    return tuple(places[place] for places in map(places_of, METHODS.loaded()) if place in places)


def compositions() -> list[Composition]:
    """Return every composition that has a name, by direction, weighting and objective in the order of tables.

    A method with both a weighting and an objective is a part with both or not at all. Parts that contradict each other
    are among them (:mod:`fdg_plugins.aggregators.compatibility`).
    """
    every = itertools.product(parts("direction"), (None, *parts("weighting")), (PLAIN, *parts("objective")))
    both = [places for places in map(places_of, METHODS.all()) if {"weighting", "objective"} <= places.keys()]
    return [
        Composition(direction, weighting, objective)
        for direction, weighting, objective in every
        if all((weighting == one["weighting"]) is (objective == one["objective"]) for one in both)
    ]


def parse_method(text: Any) -> Composition:
    """Return the composition that ``text`` names."""
    holders: dict[Place, Method] = {}
    for part in text.split("+") if isinstance(text, str) else (text,):
        record = find_method(part)
        if record is None:
            near = nearest(part, [name for key in METHODS.names() for name in (key, key.removeprefix(PREFIX))])
            hint = f"did you mean {near!r}?" if near else did_you_mean(part, METHODS.names())
            hint = "it is a reference, of fdg run and fdg sweep alone." if part in REFERENCES else hint
            problem = f"method is {shorten(text)}, in which {shorten(part)} is unknown: {hint}"
            raise SettingsError(f"{problem} Several are joined by +, such as fedomg+ga.", field="method", value=text)
        for place in places_of(record):
            if place == "direction" and (pair := _below(holders.get(place), record)) is not None:
                holders["direction"], holders["over"] = pair
                continue
            if place in holders:
                expected = f"one that sets the {place}, not {holders[place].key} and {record.key}"
                raise SettingsError(field="method", value=text, expected=expected)
            holders[place] = record
    below = holders.pop("over", None)
    places = {place: places_of(record)[place] for place, record in holders.items()}
    return Composition(**places, over=None if below is None else below.key)


def _below(one: Method | None, other: Method) -> tuple[Method, Method] | None:
    pairs = [] if one is None or BASE in (one.key, other.key) else [(one, other), (other, one)]
    return next(((upper, lower) for upper, lower in pairs if upper.takes_rule and lower.stands_below), None)


def find_method(name: Any) -> Method | None:
    """Return the record of the method of that name, in any spelling; None if there is none."""
    if not isinstance(name, str):
        return None
    asked = name.strip().lower()
    found = METHODS.find(asked) or METHODS.find(f"{PREFIX}{asked}")
    if found is None and METHODS.entries():
        METHODS.load_usable()  # a plug-in's name as a part is known only after loading
        found = METHODS.find(asked) or METHODS.find(f"{PREFIX}{asked}")
    return found


def title_of(name: str) -> str:
    """Return the display name of a method or composition; unknown parts are kept as they are."""
    found = [(part, find_method(part)) for part in name.split("+")]
    return " + ".join(part if one is None else one.part_title if part != one.key else one.title for part, one in found)
