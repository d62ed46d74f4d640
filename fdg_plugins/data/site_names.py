# SPDX-License-Identifier: Apache-2.0
"""Names of sites for domains of any name: FLARE takes few characters, folders of domains may have any.

A plain name of a domain is the name of its site, as it is for every data set of this package.
"""

import itertools
import re
import unicodedata
from collections.abc import Sequence

_TAKEN_BY_FLARE = ("server", "simulator_server")
_LONGEST = 60  # FLARE uses the name in folders and host names
_PLAIN = re.compile(rf"[A-Za-z0-9_-]{{1,{_LONGEST}}}")
_PART = re.compile(r"(.+)-([1-9]\d{0,4})of([1-9]\d{0,4})")


def site_names(domains: Sequence[str]) -> tuple[str, ...]:
    """Return a name for the site of each domain, in their order: letters, digits, ``_`` and ``-``, all different.

    Accents are dropped, any other character becomes ``_``, and names that are then equal are numbered.

    >>> site_names(["photo", "Bäder & Küchen", "Bader_Kuchen", "写真"])
    ('photo', 'Bader_Kuchen_2', 'Bader_Kuchen', 'site')
    """
    taken = {domain for domain in domains if _plain(domain) == domain}  # these keep their names
    result = []
    for domain in domains:
        name = wanted = _plain(domain)
        numbers = itertools.count(2)
        while name != domain and name in taken:
            name = f"{wanted}_{next(numbers)}"
        taken.add(name)
        result.append(name)
    return tuple(result)


def part_sites(site: str, count: int) -> tuple[str, ...]:
    """Return the names of ``count`` sites that share the domain of ``site``; with one, its own name.

    >>> part_sites("photo", 2)
    ('photo-1of2', 'photo-2of2')
    """
    return (site,) if count == 1 else tuple(f"{site}-{number}of{count}" for number in range(1, count + 1))


def split_site(site: str) -> tuple[str, tuple[int, int] | None]:
    """Return the name without its part, and the part, number and count; the name itself and None if it has none.

    >>> split_site("photo-2of5")
    ('photo', (2, 5))
    """
    found = _PART.fullmatch(site)
    if found is None or int(found[2]) > int(found[3]):
        return site, None
    return found[1], (int(found[2]), int(found[3]))


def _plain(domain: str) -> str:
    """Return the domain itself if FLARE accepts it as the name of a site, else the nearest name that it accepts."""
    if _PLAIN.fullmatch(domain) and domain not in _TAKEN_BY_FLARE:
        return domain
    letters = unicodedata.normalize("NFKD", domain).encode("ascii", "ignore").decode()
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", letters).strip("_-")[:_LONGEST]
    return f"site_{name}" if name in _TAKEN_BY_FLARE else name or "site"
