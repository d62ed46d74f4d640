# SPDX-License-Identifier: Apache-2.0
"""The record of a published method: all that is said of it, once. Everything else is derived from it.

A record is a value of plain texts and numbers; it names its code (:mod:`fdg_plugins.plugins.target`), and reading one
loads neither torch nor FLARE.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Any, Literal, get_args

from fdg_plugins.errors import SettingsError
from fdg_plugins.plugins.target import Target

Point = Literal["direction", "weighting", "objective", "network", "step"]

ANY_DATASET = "*"


@dataclass(frozen=True, kw_only=True)
class Reference:
    """The paper: authors, title, venue and year."""

    authors: str
    title: str
    venue: str
    year: int


@dataclass(frozen=True, kw_only=True)
class Equation:
    """A formula, of one line or several, with its place in the paper (None: it has no number) and what it is."""

    formula: str
    meaning: str
    number: str | None = None


@dataclass(frozen=True, kw_only=True)
class SettingSource:
    """Where a setting's value comes from: what the paper and the authors' code use. The default is what jobs run."""

    name: str
    symbol: str | None = None
    paper: str | None = None
    code: str | None = None
    remark: str | None = None


@dataclass(frozen=True, kw_only=True)
class Leaving:
    """What a site sends beyond its update: its shape, when, what it reveals.

    ``report``: the word of a site's ``allowed_reports`` without which it does not leave; None: it always does.
    """

    what: str
    shape: str
    reveals: str
    when: str = "every round in which the site trains"
    report: str | None = None


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A point on which the paper, other code and this package part ways; ``code`` is None where none was compared."""

    point: str
    paper: str
    ours: str
    code: str | None = None


@dataclass(frozen=True, kw_only=True)
class Differences:
    """All such points, with whose code was compared (empty: nobody's)."""

    rows: tuple[Difference, ...] = ()
    compared: str = "authors' code"
    remark: str | None = None

    def __post_init__(self) -> None:
        for row in self.rows:
            if (row.code is None) == bool(self.compared):
                raise SettingsError(f"point {row.point!r} must say what the code does exactly if code was compared.")


@dataclass(frozen=True, kw_only=True)
class Together:
    """Another method, by its key, with which this one was used before, and by whom."""

    method: str
    source: str


@dataclass(frozen=True, kw_only=True)
class Default:
    """Settings that a job has where nobody says otherwise, and where they come from.

    ``on``: a data set, a family of them (``"photographs"``, ``"digits"``), or ``"*"``, any. ``beside``: only where the
    method is composed with this one, by key. ``protocol``, ``server``, ``weighting`` and ``objective`` are settings of
    the protocol, of the aggregator, of the method's weighting and of its objective. What ``server`` says of a method
    without an aggregator holds under the plain mean, not under another method's direction.
    """

    on: str = ANY_DATASET
    beside: str | None = None
    protocol: Mapping[str, Any] = field(default_factory=dict)
    server: Mapping[str, Any] = field(default_factory=dict)
    weighting: Mapping[str, Any] = field(default_factory=dict)
    objective: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""

    def __or__(self, other: "Default") -> "Default":
        """Return both, the other's settings in place of this one's."""
        return Default(
            protocol={**self.protocol, **other.protocol},
            server={**self.server, **other.server},
            weighting={**self.weighting, **other.weighting},
            objective={**self.objective, **other.objective},
        )


@dataclass(frozen=True, kw_only=True)
class Method:
    """One published method.

    A method is made of at most three classes, and names those that it has: ``aggregator``, the server's rule of the
    method alone (``fdg_plugins.aggregators.UpdateAggregator``); ``weighting``, the weights of the sites, under any
    direction (``fdg_plugins.aggregators.Weighting``); ``objective``, what sites minimise and report, with the server's
    half (``fdg_plugins.objectives.Objective``).

    Args:
        key: the published name in lower case, by which jobs, commands and tables name it: ``"fedomg"``.
        title: the name for people: ``"FedOMG"``.
        line: what it does, in one line without a full stop.
        reference: the paper.
        acts: where it acts: on the ``direction`` of the server's step, the ``weighting`` of the sites, the local
            ``objective``, the ``network``, the local ``step``.
        part: its name as a part of a composition, ``"ga"`` in ``fedomg+ga``; the key, unless it is given.
        part_title: the part's name for people, ``"GA"``; the title, unless it is given.
        recipe: the name of its recipe's class; that of the title with ``Recipe`` behind it, unless it is given.
        rank: place in tables and lists among the methods, then by key.
        protocol: fields of the protocol that only such methods read, as settings of theirs.
        defaults: what a job runs where nobody says otherwise. The more exact entry wins, setting by setting; what none
            says is the default of the class.
        in_composition: what its part means for the other parts.
        letters, equations, settings, exact, differences, leaves, together: the contents of its page.
    """

    key: str
    title: str
    line: str
    reference: Reference
    acts: tuple[Point, ...]
    aggregator: Target | None = None
    weighting: Target | None = None
    objective: Target | None = None
    part: str = ""
    part_title: str = ""
    recipe: str = ""
    rank: int = 100
    protocol: tuple[str, ...] = ()
    defaults: tuple[Default, ...] = ()
    in_composition: str = ""
    letters: str = ""
    equations: tuple[Equation, ...] = ()
    settings: tuple[SettingSource, ...] = ()
    exact: tuple[str, ...] = ()
    differences: Differences = Differences()
    leaves: tuple[Leaving, ...] = ()
    together: tuple[Together, ...] = ()

    def __post_init__(self) -> None:
        if not self.key.isidentifier() or self.key != self.key.lower():
            raise SettingsError(f"a method's key is {self.key!r}, expected lower-case letters, digits and '_'.")
        if not self.acts or (unknown := set(self.acts) - set(get_args(Point))):
            what = sorted(unknown)[0] if self.acts else "nothing"
            raise SettingsError(f"method {self.key!r} acts on {what!r}, expected one of {', '.join(get_args(Point))}.")
        if self.aggregator is None and self.weighting is None and self.objective is None:
            raise SettingsError(f"method {self.key!r} names no class, expected aggregator, weighting or objective.")

    @property
    def name(self) -> str:
        """The name as records of every kind have it: the key."""
        return self.key

    @property
    def names(self) -> tuple[str, ...]:
        """All names by which the method is found: its key, and its name as a part."""
        return tuple(dict.fromkeys((self.key, self.part or self.key)))

    @property
    def recipe_name(self) -> str:
        """The name of the recipe's class: ``"FedOMGRecipe"``."""
        return self.recipe or "".join(letter for letter in self.title if letter.isalnum()) + "Recipe"

    @property
    def reports(self) -> tuple[str, ...]:
        """The words of ``allowed_reports`` that a site must allow for it."""
        return tuple(dict.fromkeys(leaving.report for leaving in self.leaves if leaving.report is not None))

    @property
    def protocol_fields(self) -> tuple[str, ...]:
        """Fields of the protocol that are settings of the method: those that it reads, and those it has a value for."""
        of_defaults = (name for entry in self.defaults for name in entry.protocol)
        return tuple(dict.fromkeys((*self.protocol, *of_defaults)))

    def defaults_on(self, *datasets: str, beside: Collection[str] = ()) -> Default:
        """Return what a job runs on a data set, composed with the methods ``beside``.

        ``datasets``: what the data set is called, from the widest (its family) to the most exact (its name).
        """
        places = [(name, company) for company in (None, *sorted(beside)) for name in (ANY_DATASET, *datasets)]
        entries = [entry for place in places for entry in self.defaults if (entry.on, entry.beside) == place]
        return reduce(or_, entries, Default())
