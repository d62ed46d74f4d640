# SPDX-License-Identifier: Apache-2.0
"""Rect-4, after the FedOMG paper's toy: one round of four domains in the plane, as three figures and four tables.

    python examples/rect4.py --to rect4    # rect4/rect4_fl.svg, rect4_fdg.svg, rect4_iid.svg, and all as PNG

In the FL setting all four sites train and are judged; in the FDG setting A, B and C train, and D is held out. In the
last, the points of A, B and C are dealt to three IID sites.
Takes seconds; needs no data and no FLARE. What the domains are: rect4_rounds.py.
"""

import argparse
import sys
from pathlib import Path

from rect4_figure import save_round
from rect4_rounds import deal, make_domains, play_round
from rect4_tables import held_out_table, round_table

from fdg_plugins.errors import FDGError

SETTINGS = {
    "fl": ("FL: four sites train, and are judged", "ABCD", "ABCD"),
    "fdg": ("FDG: A, B and C train, D is held out", "ABC", "D"),
    "iid": ("FDG with IID sites: the points of A, B and C are dealt to three sites", "ABC", "D"),
}


def report(folder: Path) -> str:
    """Write the figures to ``folder`` and return the tables."""
    domains, parts = make_domains(), []
    for name, (title, sources, judged) in SETTINGS.items():
        result = play_round(deal(domains, sources) if name == "iid" else domains, sources, judged)
        paths = save_round(result, title, folder / f"rect4_{name}")
        parts += [title, round_table(result), f"drawn in {', '.join(map(str, paths))}", ""]
    return "\n".join(
        [*parts, "Loss on each domain where it is held out, all steps as long as FedAvg's", held_out_table(domains)]
    )


def main() -> None:
    """Write the figures where the command line says, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, required=True, help="folder for the figures")
    try:
        print(report(parser.parse_args().to))  # noqa: T201 - what this script is for
    except FDGError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
