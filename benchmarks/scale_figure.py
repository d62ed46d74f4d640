# SPDX-License-Identifier: Apache-2.0
"""How a server step grows with sites and parameters, as a figure, beside the numbers from which it is drawn.

    python benchmarks/scale_figure.py            # docs/benchmarks/scale.svg, from scale.csv beside it
    python benchmarks/scale_figure.py --measure  # measures first (minutes), and writes scale.csv anew

Measured as by ``bench.py --only scale``; Linux only, for the memory.
"""

import argparse
import csv
import io
from collections.abc import Mapping
from itertools import product
from pathlib import Path

import bench
import numpy as np
import torch
from cases import scale
from cases.scale import Cost, Growth, Quantity, Side
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FixedLocator, LogLocator, NullLocator, StrMethodFormatter

from fdg_plugins.lab.analysis.figures.drawing import SMALL_SIZE, mark_axes, new_figure, render, style
from fdg_plugins.lab.analysis.figures.picture import BLACK, VERMILLION, Look, Picture
from fdg_plugins.storage import write_bytes

FOLDER = Path(__file__).parents[1] / "docs" / "benchmarks"
MACHINE = "machine"
SIDES: dict[Side, tuple[str, Look]] = {
    "ours": ("FedOMG", Look(VERMILLION, "s")),
    "reference": ("FLARE's weighted mean", Look(BLACK, "o")),
}
QUANTITIES: tuple[Quantity, ...] = ("seconds", "bytes")
UNITS = {"seconds": "s", "bytes": "B"}
TITLES = {"seconds": "time", "bytes": "peak memory beyond the global model"}
WIDTH, HEIGHT = 8.4, 6.0
ROOM = 2.5  # above the highest value, as a factor: for the legend


def render_numbers(costs: list[Cost], machine: str) -> bytes:
    """Return the CSV of what was measured, and on what."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*Cost._fields, MACHINE])
    writer.writerows([*cost, machine] for cost in costs)
    return text.getvalue().encode()


def read_numbers(content: bytes) -> tuple[list[Cost], str]:
    """Return what :func:`render_numbers` was given."""
    rows = list(csv.DictReader(io.StringIO(content.decode())))
    costs = [
        Cost(int(row["sites"]), int(row["parameters"]), *(float(row[field]) for field in Cost._fields[2:]))
        for row in rows
    ]
    return costs, rows[0][MACHINE]


def picture_of(machine: str) -> Picture:
    """Return headline and caption."""
    return Picture(
        name="scale",
        title="How a server step grows with sites and parameters",
        caption=f"One step of U random updates of P float32 parameters; {machine}. Dotted: fits c size^slope.",
    )


def fitted(values: Mapping[int, float]) -> dict[int, float]:
    """Return the values of the fit at the same sizes."""
    exponent, constant = scale.fit(values)
    return {size: float(np.exp(constant + exponent * np.log(size))) for size in values}


def draw(picture: Picture, growths: tuple[Growth, Growth]) -> Figure:
    """Return the figure: seconds above bytes, by sites on the left, by parameters on the right."""
    with style():
        figure = new_figure(picture, WIDTH, HEIGHT)
        grid = figure.subplots(len(QUANTITIES), len(growths), sharex="col", squeeze=False)
        for axes, (quantity, growth) in zip(grid.flat, product(QUANTITIES, growths), strict=True):
            _draw_panel(axes, growth, quantity)
    return figure


def _draw_panel(axes: Axes, growth: Growth, quantity: Quantity) -> None:
    for side, (name, look) in SIDES.items():
        values = growth.values(quantity, side)
        axes.plot(*_points(values), linestyle="", marker=look.marker, markersize=4.5, color=look.colour)
        label = f"{name}: slope {scale.slope(values):.2f}"
        axes.plot(*_points(fitted(values)), linestyle=":", marker=look.marker, color=look.colour, label=label)
        axes.lines[-1].set_markevery([])  # a marker in the legend, but none on the fit
    axes.set(xscale="log", yscale="log")
    axes.set_ylim(top=axes.get_ylim()[1] * ROOM)
    axes.yaxis.set_major_locator(LogLocator())
    axes.yaxis.set_major_formatter(EngFormatter(UNITS[quantity]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_locator(FixedLocator([getattr(cost, growth.size) for cost in growth.costs]))
    axes.xaxis.set_major_formatter(EngFormatter() if growth.size == "parameters" else StrMethodFormatter("{x:.0f}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.legend(loc="upper left", fontsize=SMALL_SIZE)
    is_lowest = quantity == QUANTITIES[-1]
    mark_axes(axes, f"{TITLES[quantity]} by {growth.size}", _x_label(growth) if is_lowest else "")


def _x_label(growth: Growth) -> str:
    fixed = f"P = {scale.FEW_PARAMETERS:,}" if growth.size == "sites" else f"U = {scale.FEW_SITES}"
    return f"{growth.size} {growth.symbol} ({fixed})"


def _points(values: Mapping[int, float]) -> tuple[list[int], list[float]]:
    return list(values), list(values.values())


def main(arguments: list[str] | None = None) -> None:
    """Measure if asked to, draw, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true", help="measure first, and write scale.csv anew")
    parser.add_argument("--quick", action="store_true", help="few and small sizes: whether it runs, no measurement")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="of torch, where it measures")
    parser.add_argument("--to", type=Path, default=FOLDER, metavar="FOLDER", help="of both files")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    numbers = options.to / "scale.csv"
    if options.measure:
        machine = "; ".join(line.removeprefix("- ") for line in bench.machine())
        write_bytes(numbers, render_numbers(scale.measure(options.quick), machine))
    costs, machine = read_numbers(numbers.read_bytes())
    picture = picture_of(machine)
    write_bytes(options.to / "scale.svg", render(draw(picture, scale.growths(costs)), picture, "svg"))


if __name__ == "__main__":
    main()
