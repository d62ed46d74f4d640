# SPDX-License-Identifier: Apache-2.0
"""The look of figures: one colour and marker per method, domain and class, distinguishable without colour vision.

Reference: Okabe, Ito, "Color Universal Design", 2008, for the colours, without their yellow, which is too faint for a
thin line on white paper. Colours that look alike in a greyscale print have different markers.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fdg_plugins.data import dataset_spec
from fdg_plugins.errors import SettingsError

BLUE, VERMILLION, GREEN, ORANGE = "#0072B2", "#D55E00", "#009E73", "#E69F00"
PURPLE, SKY_BLUE, BLACK, GREY = "#CC79A7", "#56B4E9", "#000000", "#666666"
WHITE = "#FFFFFF"  # on dark images only
PALETTE = (BLUE, VERMILLION, GREEN, ORANGE, PURPLE, SKY_BLUE, BLACK)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")


@dataclass(frozen=True)
class Look:
    """A colour, and a marker that distinguishes it in a greyscale print (matplotlib's names of both)."""

    colour: str
    marker: str


_METHODS = {
    "fedavg": Look(BLACK, "o"),
    "fedomg": Look(BLUE, "s"),
    "fedga": Look(ORANGE, "^"),
    "feddim": Look(GREEN, "D"),
    "fediir": Look(PURPLE, "v"),
    "fedomg+ga": Look(VERMILLION, "P"),
    "fedomg+dim": Look(SKY_BLUE, "X"),
}


def numbered_look(number: int) -> Look:
    """Return the look of item ``number``, counted from 0; the first 63 differ."""
    # Each cycle through the colours shifts the markers by one, so no pair recurs early.
    return Look(PALETTE[number % len(PALETTE)], MARKERS[(number + number // len(PALETTE)) % len(MARKERS)])


def method_looks(methods: Sequence[str]) -> list[Look]:
    """Return a look for each entry; a method's first entry has the method's own look, in every figure.

    Further entries of a method, with other settings, and methods without a look of their own get free looks, starting
    with unused colours and markers.
    """
    looks: list[Look | None] = [
        _METHODS.get(method) if method not in methods[:place] else None for place, method in enumerate(methods)
    ]
    spare = _spare_looks({look for look in looks if look is not None})
    lacking = iter(range(len(methods)))
    return [look or spare[next(lacking) % len(spare)] for look in looks]


def _spare_looks(taken: set[Look]) -> list[Look]:
    """Return the looks that are not taken, those of unused colours and markers first."""
    spare = [look for look in map(numbered_look, range(len(PALETTE) * len(MARKERS))) if look not in taken]
    colours, markers = {look.colour for look in taken}, {look.marker for look in taken}
    return sorted(spare, key=lambda look: (look.colour in colours) + (look.marker in markers))


def domain_order(dataset: str, domains: Iterable[str]) -> tuple[str, ...]:
    """Return ``domains`` without repetitions in the order of the data set, unknown domains last."""
    known = _known_domains(dataset)
    return tuple(sorted(set(domains), key=lambda name: (known.index(name) if name in known else len(known), name)))


def domain_look(dataset: str, domain: str) -> Look:
    """Return the look of a domain, which is the same in all figures of its data set."""
    known = _known_domains(dataset)
    return numbered_look(known.index(domain)) if domain in known else Look(GREY, MARKERS[0])


def _known_domains(dataset: str) -> tuple[str, ...]:
    try:
        return dataset_spec(dataset).domains
    except SettingsError:
        return ()
