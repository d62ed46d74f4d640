# SPDX-License-Identifier: Apache-2.0
"""Methods put together: any local objective, any weights of the sites, any direction of the step, each once."""

import difflib
from dataclasses import dataclass

from fdg_plugins.errors import SettingsError
from fdg_plugins.explained.entry import Explanation, Leaving, Point, method_names, read_explanation

BASE = "fedavg"  # what stands wherever a composition names nothing
OWN_IDEA = "reported in neither paper, offered here"


@dataclass(frozen=True)
class Composition:
    """One method, or several by name in the order asked for, of which no two act at the same point."""

    methods: dict[str, Explanation]

    @property
    def name(self) -> str:
        """The names, joined as they are asked for."""
        return "+".join(self.methods)

    def at(self, point: Point) -> Explanation | None:
        """Return the method that acts at ``point``; None: FedAvg does."""
        return next((method for method in self.methods.values() if point in method.acts), None)

    def leaves(self) -> list[Leaving]:
        """Return all that leaves a site: what leaves with FedAvg, and what the methods add."""
        added = [leaving for name, method in self.methods.items() if name != BASE for leaving in method.leaves]
        return [*read_explanation(BASE).leaves, *added]

    def together(self) -> list[tuple[str, str, str]]:
        """Return, for each pair of methods other than FedAvg, their titles and who has used them together."""
        names = [name for name in self.methods if name != BASE]
        return [
            (self.methods[first].title, self.methods[second].title, self._source(first, second))
            for index, first in enumerate(names)
            for second in names[index + 1 :]
        ]

    def _source(self, first: str, second: str) -> str:
        for one, other in ((first, second), (second, first)):
            for together in self.methods[one].together:
                if together.method == other:
                    return together.source
        return OWN_IDEA


def compose(text: str) -> Composition:
    """Return what ``text`` names: ``fedomg``, or parts joined by ``+``, each with or without its ``fed``.

    Raises ``SettingsError`` for a name that is unknown, with the nearest ones, and for two methods at one point.
    """
    methods: dict[str, Explanation] = {}
    holder: dict[Point, str] = {}
    for part in text.split("+"):
        name = _name(part)
        explanation = read_explanation(name)
        for point in explanation.acts:
            if point in holder:
                raise SettingsError(
                    f"method is {text!r}, but {holder[point]} and {name} both set the {point}; expected one of them."
                )
            holder[point] = name
        methods[name] = explanation
    return Composition(methods)


def _name(part: str) -> str:
    """Return the full name of a method, given with or without ``fed`` before it."""
    known, asked = method_names(), part.strip().lower()
    for name in (asked, f"fed{asked}"):
        if name in known:
            return name
    # compared without "fed", which all of them share
    short = {name.removeprefix("fed"): name for name in known}
    near = [short[one] for one in difflib.get_close_matches(asked.removeprefix("fed"), short, cutoff=0.5)]
    hint = f"did you mean {' or '.join(near)}? Known are" if near else "expected one of"
    raise SettingsError(f"method is {part.strip()!r}, {hint} {', '.join(known)}, or several joined by +.")
