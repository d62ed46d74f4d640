# SPDX-License-Identifier: Apache-2.0
"""Writes which packages the installed package needs at run time: ``sbom.json`` (CycloneDX) and ``licences.txt``.

Both describe the environment in which this runs, so versions are those that are installed; to use it:
``python docs/make_sbom.py --to build``. What only tests, documentation or extras need is left out. Exit code 1: a
licence among them obliges whoever passes the software on to publish source code (GPL, AGPL, LGPL and their like).
Weaker terms, which cover the package's own files only, are counted and named.
"""

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Collection, Iterable, Mapping
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = "fdg-plugins"
COPYLEFT = re.compile(r"\b[AL]?GPL|General Public|EUPL|\bSSPL|\bOSL|CeCILL(?!-[BC])|Sleepycat", re.IGNORECASE)
OF_FILES = re.compile(r"\bMPL|Mozilla|\bEPL|Eclipse|\bCDDL", re.IGNORECASE)
PROPRIETARY = re.compile("proprietary", re.IGNORECASE)
UNKNOWN = re.compile("^UNKNOWN$")
REPRODUCIBLE = ("--output-reproducible",)
LIST = ("--from", "mixed", "--with-system", "--format", "json")

Row = Mapping[str, str]


def needed(root: str = ROOT) -> dict[str, str]:
    """Return the packages that ``root`` needs here, by canonical name, with their versions; without ``root`` itself."""
    found: dict[str, str] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting = [(root, frozenset[str]())]
    while waiting:
        name, extras = waiting.pop()
        if (canonicalize_name(name), extras) in seen:
            continue
        seen.add((canonicalize_name(name), extras))
        package = distribution(name)
        found[canonicalize_name(name)] = package.version
        waiting += _requirements(package, extras)
    return {name: found[name] for name in sorted(found) if name != root}


def _requirements(package: Distribution, extras: frozenset[str]) -> list[tuple[str, frozenset[str]]]:
    """Return the names and extras that a package asks for in this environment, with its own ``extras`` chosen."""
    asked = [Requirement(text) for text in package.requires or ()]
    return [
        (one.name, frozenset(one.extras))
        for one in asked
        if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in ("", *extras))
    ]


def bill(packages: Mapping[str, str]) -> dict[str, Any]:
    """Return the CycloneDX description of the environment, reduced to the package and the ``packages`` it needs."""
    whole = json.loads(_output([sys.executable, "-m", "cyclonedx_py", "environment", *REPRODUCIBLE, sys.executable]))
    found = {_key(one["name"], one["version"]): one for one in whole["components"]}
    own = found[_key(ROOT, distribution(ROOT).version)]
    components = [found[key] for key in packages.items()]
    known = {one["bom-ref"] for one in (own, *components)}
    return {
        **whole,
        # Where it was installed from is a folder of this machine.
        "metadata": {**whole["metadata"], "component": {**own, "externalReferences": []}},
        "components": components,
        "dependencies": [_within(edge, known) for edge in whole["dependencies"] if edge["ref"] in known],
    }


def _within(edge: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    """Return what a component depends on, as far as it is ``known``."""
    return {**edge, "dependsOn": [ref for ref in edge.get("dependsOn", ()) if ref in known]}


def licences(packages: Mapping[str, str]) -> list[Row]:
    """Return name, version and licence of each package, as pip-licenses reads them from the packages' metadata."""
    rows = json.loads(_output([sys.executable, "-m", "piplicenses", *LIST, "--packages", *packages]))
    found = {_key(row["Name"], row["Version"]): row for row in rows}
    return [found[key] for key in packages.items()]


def _key(name: str, version: str) -> tuple[str, str]:
    return canonicalize_name(name), version


def _output(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def of_kind(rows: Iterable[Row], kind: re.Pattern[str]) -> list[str]:
    """Return the packages whose licence is of a kind, each with its licence.

    Of several licences among which a user may choose ("A OR B"), all must be of the kind.
    """
    return [
        f"{row['Name']} ({row['License']})"
        for row in rows
        if all(kind.search(choice) for choice in re.split(r"\bOR\b", row["License"]))
    ]


def as_text(rows: Iterable[Row]) -> str:
    """Return the table of licences."""
    lines = [(row["Name"], row["Version"], " ".join(row["License"].split())) for row in rows]
    widths = [max(len(line[column]) for line in lines) for column in (0, 1)]
    return "".join(f"{name:{widths[0]}}  {version:{widths[1]}}  {licence}\n" for name, version, licence in lines)


def main() -> None:
    """Write both files, and say what is among the licences."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, default=Path("build"), help="folder of the two files")
    folder = parser.parse_args().to
    packages = needed()
    rows = licences(packages)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sbom.json").write_text(json.dumps(bill(packages), indent=1) + "\n", encoding="utf-8")
    (folder / "licences.txt").write_text(as_text(rows), encoding="utf-8")
    sys.stdout.write(f"{len(packages)} packages at run time: {folder / 'sbom.json'}, {folder / 'licences.txt'}\n")
    sys.stdout.write(summary(rows))
    sys.exit(1 if of_kind(rows, COPYLEFT) else 0)


def summary(rows: Collection[Row]) -> str:
    """Return a line for each kind of terms that a reviewer asks about."""
    kinds = {
        "copyleft": COPYLEFT,
        "copyleft for the package's own files only": OF_FILES,
        "proprietary": PROPRIETARY,
        "no licence in the metadata": UNKNOWN,
    }
    return "".join(f"{title}: {', '.join(of_kind(rows, kind)) or 'none'}\n" for title, kind in kinds.items())


if __name__ == "__main__":
    main()
