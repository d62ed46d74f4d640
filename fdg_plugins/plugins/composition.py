# SPDX-License-Identifier: Apache-2.0
"""Methods by name, published ones and compositions: ``fedomg``, ``fediir``, ``fedomg+ga+dim``, ``fedprox+ga``.

>>> parse_method("fedomg+dim+ga").name
'fedomg+ga+dim'
>>> parse_method("fedavg+ga").name
'fedga'
>>> title_of("fedomg+ga")
'FedOMG + GA'
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from fdg_plugins.aggregators import AGGREGATORS, WEIGHTINGS
from fdg_plugins.errors import SettingsError
from fdg_plugins.messages import shorten
from fdg_plugins.objectives import OBJECTIVES
from fdg_plugins.plugins.methods import METHODS

PLAIN = "erm"  # the objective of a method that adds none of its own
# Weightings that learn from what the sites report make a method; the others are a setting of one.
WEIGHTING_PARTS = tuple(name for name, rule in WEIGHTINGS.items() if rule.learns)
OBJECTIVE_PARTS = tuple(name for name in OBJECTIVES if name != PLAIN)


@dataclass(frozen=True)
class Method:
    """What a method is made of: the server's direction, the weighting that is part of it if any, and the objective.

    ``direction`` and ``objective`` are names in ``AGGREGATORS`` and ``OBJECTIVES``, ``weighting`` is one in
    ``WEIGHTINGS`` that learns.
    """

    direction: str
    weighting: str | None = None
    objective: str = PLAIN

    @property
    def name(self) -> str:
        """The one name of the method: as published, else what is left without its weighting, or its objective."""
        published = {**PUBLISHED, **_plugged_in((self.direction, self.weighting, self.objective))}
        for name, method in published.items():
            if method == self:
                return name
        unweighted = replace(self, weighting=None)
        if self.weighting is not None and (self.objective == PLAIN or unweighted in published.values()):
            return f"{unweighted.name}+{self.weighting}"
        return self.direction if self.objective == PLAIN else f"{replace(self, objective=PLAIN).name}+{self.objective}"

    @property
    def aggregator(self) -> str:
        """The aggregator in ``AGGREGATORS``: one that has the weighting built in, if there is one."""
        name = replace(self, objective=PLAIN).name
        return name if name in AGGREGATORS else self.direction

    def plus(self, part: str) -> "Method":
        """Return the method with ``part`` added; raise ``SettingsError`` if its place is taken, or it is unknown."""
        weighs, trains = part in WEIGHTING_PARTS or _has(part, "weighting"), _has(part, "objective")
        if weighs and self.weighting is None:
            return replace(self, weighting=part)
        if (trains or part in OBJECTIVE_PARTS) and self.objective == PLAIN:
            return replace(self, objective=part)
        if weighs:
            raise SettingsError(f"method {self.name!r} cannot take {part!r}: it has the weighting {self.weighting!r}.")
        if trains or part in OBJECTIVE_PARTS:
            raise SettingsError(f"method {self.name!r} cannot take {part!r}: it has the objective {self.objective!r}.")
        if part in AGGREGATORS:
            raise SettingsError(f"method {self.name!r} cannot take {part!r}: it has the direction {self.direction!r}.")
        known = ", ".join((*WEIGHTING_PARTS, *OBJECTIVE_PARTS))
        raise SettingsError(f"method {self.name!r} cannot take {shorten(part)}, expected one of {known}.")


PUBLISHED = {
    "fedavg": Method("fedavg"),
    "fedga": Method("fedavg", weighting="ga"),
    "feddim": Method("fedavg", objective="dim"),
    "fediir": Method("fedavg", objective="iir"),
    "fedomg": Method("fedomg"),
    "fedprox": Method("fedavg", objective="prox"),
    "fedsam": Method("fedavg", objective="sam"),
    "mofedsam": Method("fedavg", objective="mosam"),
    "scaffold": Method("fedavg", objective="scaffold"),
    "fednova": Method("fednova"),
    "harmofl": Method("fedavg", objective="harmo"),
    "fedcsa": Method("fedcsa"),
    "arfl": Method("fedavg", weighting="arfl"),
    "am": Method("fedavg", objective="am"),
    "rsc": Method("fedavg", objective="rsc"),
    "fedsr": Method("fedavg", objective="sr"),
}
"""Methods by their published names, in the order of tables."""

_TITLES = {
    "fedavg": "FedAvg",
    "fedga": "FedDG-GA",
    "feddim": "FedDIM",
    "fediir": "FedIIR",
    "fedomg": "FedOMG",
    "fedprox": "FedProx",
    "fedsam": "FedSAM",
    "mofedsam": "MoFedSAM",
    "scaffold": "SCAFFOLD",
    "fednova": "FedNova",
    "harmofl": "HarmoFL",
    "fedcsa": "FedCSA",
    "arfl": "ARFL",
    "am": "AM",
    "rsc": "RSC",
    "fedsr": "FedSR",
    "ga": "GA",
    "dim": "DIM",
    "iir": "IIR",
    "prox": "Prox",
    "sam": "SAM",
    "mosam": "MoSAM",
    "harmo": "Harmo",
    "sr": "SR",
}


def parse_method(text: str) -> Method:
    """Return the method that ``text`` names: a published one, then parts in any order, joined by ``+``."""
    base, *parts = text.split("+") if isinstance(text, str) else (text,)
    method = PUBLISHED.get(base) or _plugged_in((base,)).get(base) if isinstance(base, str) else None
    if method is None:
        raise SettingsError(
            f"method is {shorten(text)}, expected one of {', '.join(PUBLISHED)}, or one and parts: fedomg+ga+dim."
        )
    for part in parts:
        method = method.plus(part)
    return method


def title_of(name: str) -> str:
    """Return a method's name for people; a part that this package does not know as it is."""
    return " + ".join(_TITLES.get(part) or _title_of_part(part) for part in name.split("+"))


def _title_of_part(part: str) -> str:
    record = METHODS.find(part)
    if record is None:
        return part
    return record.title if part == record.key else record.part_title or record.title


def _has(part: str, role: Literal["weighting", "objective"]) -> bool:
    """Return whether a plug-in's method has a class in this role and goes by that name as a part."""
    record = METHODS.find(part)
    return (
        record is not None
        and part == (record.part or record.key)
        and record.key not in PUBLISHED
        and (getattr(record, role) is not None)
    )


def _plugged_in(names: Iterable[str | None]) -> dict[str, Method]:
    """Return the methods of plug-ins that ``names`` belong to, by their keys."""
    records = [record for name in names if (record := METHODS.find(name)) is not None and record.key not in PUBLISHED]
    return {
        record.key: Method(
            direction=record.key if record.aggregator is not None else "fedavg",
            weighting=None if record.weighting is None else record.part or record.key,
            objective=PLAIN if record.objective is None else record.part or record.key,
        )
        for record in records
    }
