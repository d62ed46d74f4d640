# SPDX-License-Identifier: Apache-2.0
"""Soak: a provisioned federation runs 500 small rounds while sites are killed, and the server once.

    python benchmarks/soak.py run --to /srv/soak           # 12 minutes on two busy cores; resumes nothing
    python benchmarks/soak.py check --from /srv/soak/soak  # every series beside its limit; exit code 1 if one is above
    python benchmarks/soak.py figure                       # docs/soak/soak.svg, from the files beside it

``run`` writes the federation to the folder, and what it measured to ``soak`` in it. Linux only, for the memory.
"""

import argparse
import logging
import sys
from pathlib import Path

import bench
from soak_parts.drawing import draw, picture_of
from soak_parts.federation import Options, run
from soak_parts.flatness import findings
from soak_parts.rows import Soak
from soak_parts.tables import machine_line, table

from fdg_plugins.errors import FDGError
from fdg_plugins.lab.analysis.figures.drawing import render
from fdg_plugins.storage import write_bytes

PROJECT = Path(__file__).parents[1]
FIGURES = PROJECT / "docs" / "soak"
MEASURED = "soak"


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = found.add_subparsers(dest="action", required=True)
    running = actions.add_parser("run", help="run the soak, and check it")
    running.add_argument("--rounds", type=int, default=Options().rounds)
    running.add_argument("--kill-every", type=int, default=Options().kill_every, metavar="ROUNDS", help="0: never")
    running.add_argument("--restart-at", type=int, default=Options().restart_at, metavar="ROUND", help="0: never")
    running.add_argument("--to", type=Path, required=True, metavar="DIR", help="a folder that is not there yet")
    for name, words in (("check", "compare every series with its limit"), ("figure", "draw soak.svg beside the files")):
        action = actions.add_parser(name, help=words)
        action.add_argument("--from", dest="source", type=Path, default=FIGURES, metavar="DIR")
    return found


def measure(options: Options, to: Path) -> Soak:
    """Run a soak in the folder ``to``, and keep what it measured."""
    soak = run(options, to, PROJECT / "jobs", logging.info)
    soak.about["machine"] = [line.removeprefix("- ") for line in bench.machine()]
    soak.write(to / MEASURED)
    return soak


def write_figure(soak: Soak, folder: Path) -> None:
    """Draw ``soak.svg`` into ``folder``."""
    picture = picture_of(soak)
    write_bytes(folder / "soak.svg", render(draw(picture, soak), picture, "svg"))


def main(arguments: list[str] | None = None) -> int:
    """Do what the command line says; return the exit code."""
    options = parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(message)s")
    logging.getLogger("nvflare").setLevel(logging.WARNING)  # the session's records about its connection
    if options.action == "run":
        soak = measure(Options(options.rounds, options.kill_every, options.restart_at), options.to.resolve())
    else:
        soak = Soak.read(options.source)
    if options.action == "figure":
        write_figure(soak, options.source)
        return 0
    found = findings(soak)
    print(f"{table(found)}\n\n{machine_line(soak.rounds)}")  # noqa: T201 - what this script is for
    return 0 if all(finding.holds for finding in found) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except FDGError as error:
        sys.exit(f"Error: {error}")
