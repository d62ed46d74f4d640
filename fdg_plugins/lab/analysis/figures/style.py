# SPDX-License-Identifier: Apache-2.0
"""The look of figures: one colour and marker per method, domain and class, distinguishable without colour vision.

That of a method is derived from its name, so it is the same in every figure and for methods of plug-ins too.

Reference: Okabe, Ito, "Color Universal Design", 2008, for the colours, without their yellow, which is too faint for a
thin line on white paper. Colours that look alike in a greyscale print have different markers.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fdg_plugins.lab.analysis.facts import known_domains
from fdg_plugins.plugins.own_dataset import DatasetRef

BLUE, VERMILLION, GREEN, ORANGE = "#0072B2", "#D55E00", "#009E73", "#E69F00"
PURPLE, SKY_BLUE, BLACK, GREY = "#CC79A7", "#56B4E9", "#000000", "#666666"
PALETTE = (BLUE, VERMILLION, GREEN, ORANGE, PURPLE, SKY_BLUE, BLACK)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
SALT = 2274656  # the first with FedAvg in black and a colour and a marker of its own for each method of the papers


@dataclass(frozen=True)
class Look:
    """A colour, and a marker that distinguishes it in a greyscale print (matplotlib's names of both)."""

    colour: str
    marker: str


def numbered_look(number: int) -> Look:
    """Return the look of item ``number``, counted from 0; the first 63 differ."""
    # Each cycle through the colours shifts the markers by one, so no pair recurs early.
    return Look(PALETTE[number % len(PALETTE)], MARKERS[(number + number // len(PALETTE)) % len(MARKERS)])


def own_look(method: str) -> Look:
    """Return the look that is derived from the name of a method, known to this package or not."""
    digest = hashlib.sha256(f"{SALT}:{method}".encode()).digest()
    number = int.from_bytes(digest[:4], "big")
    return Look(PALETTE[number % len(PALETTE)], MARKERS[number // len(PALETTE) % len(MARKERS)])


def method_looks(methods: Sequence[str]) -> list[Look]:
    """Return a look for each entry; a method's first entry has the method's own look if its colour is still free.

    Other entries, such as further settings of a method, get free looks, those of unused colours and markers first.
    """
    looks: dict[int, Look] = {}

    def use(look: Look) -> tuple[int, int, int]:
        taken = list(looks.values())
        colours, markers = [one.colour for one in taken], [one.marker for one in taken]
        return taken.count(look), colours.count(look.colour), markers.count(look.marker)

    for place, method in enumerate(methods):
        own = own_look(method)
        if method not in methods[:place] and not use(own)[1]:
            looks[place] = own
    for place in sorted({*range(len(methods))} - looks.keys()):
        looks[place] = min(map(numbered_look, range(len(PALETTE) * len(MARKERS))), key=use)
    return [looks[place] for place in range(len(methods))]


def domain_order(dataset: DatasetRef, domains: Iterable[str]) -> tuple[str, ...]:
    """Return ``domains`` without repetitions in the order of the data set, unknown domains last."""
    known = known_domains(dataset)
    return tuple(sorted(set(domains), key=lambda name: (known.index(name) if name in known else len(known), name)))


def domain_looks(dataset: DatasetRef, domains: Iterable[str]) -> dict[str, Look]:
    """Return the looks of the domains of a run, the same in all figures of its data set.

    Domains that the package does not know are numbered by name, after those that it knows.
    """
    known, shown = known_domains(dataset), set(domains)
    numbers = {name: number for number, name in enumerate((*known, *sorted(shown.difference(known))))}
    return {name: numbered_look(numbers[name]) for name in domain_order(dataset, shown)}
