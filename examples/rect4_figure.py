# SPDX-License-Identifier: Apache-2.0
"""A round on Rect-4 as a figure: the domains, and in the plane of the network's parameters the steps from its start."""

import io
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal

import matplotlib
import torch
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, Rectangle
from rect4_rounds import HALF_SIDE, INVARIANT_CENTRE, Domain, Round, loss, optimum
from rect4_tables import round_table

from fdg_plugins.storage import write_bytes

Line = Literal["-", "--"]

# Okabe and Ito's colours, which the colour-blind tell apart too; methods have those of ``fdg plot``.
DOMAIN_COLOURS: Mapping[str, str] = {"A": "#56B4E9", "B": "#009E73", "C": "#CC79A7", "D": "#D55E00"}
STEP_STYLES: Mapping[str, tuple[str, Line]] = {
    "FedAvg": ("#000000", "-"),
    "FedOMG": ("#0072B2", "-"),
    "ERM": ("#E69F00", "--"),
}
LABELS = ((1.0, "o", "-"), (-1.0, "x", ":"))  # label, marker of its points, line around its square
# The same in both figures, so that arrows compare.
FIRST_PARAMETER, SECOND_PARAMETER = (-0.5, 3.1), (-2.0, 2.3)
GRID = 41


def draw_round(result: Round, title: str) -> Figure:
    """Return the figure of one round: left its domains, right the parameters and, as contours, the loss that judges."""
    with _style():
        figure = Figure(figsize=(9.0, 5.2), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplot_mosaic([["A", "B", "w"], ["C", "D", "w"]], width_ratios=[1.0, 1.0, 2.6])
        figure.suptitle(f"{title}; o: label +1, x: label -1")
        sources = {domain.name for domain in result.sources}
        for name, domain in {domain.name: domain for domain in (*result.sources, *result.judged)}.items():
            _draw_domain(axes[name], domain, is_source=name in sources)
        _draw_parameters(axes["w"], result)
        figure.legend(handles=_legend(result), loc="outside lower center", ncols=6, frameon=False)
    return figure


def save_round(result: Round, title: str, stem: Path) -> list[Path]:
    """Write the figure to ``stem.svg`` and ``stem.png``, the same bytes each time; return both paths.

    The SVG's description is the round's table. Raises ``DataError`` for a file that cannot be written.
    """
    figure = draw_round(result, title)
    options: dict[str, dict[str, Any]] = {
        ".svg": {"metadata": {"Date": None, "Description": round_table(result)}},
        ".png": {"dpi": 100, "metadata": {"Software": None}, "pil_kwargs": {"optimize": True}},
    }
    for suffix, chosen in options.items():
        content = io.BytesIO()
        with _style():
            figure.savefig(content, format=suffix[1:], **chosen)
        write_bytes(stem.with_suffix(suffix), content.getvalue())
    return [stem.with_suffix(suffix) for suffix in options]


def _style() -> AbstractContextManager[None]:
    return matplotlib.rc_context(
        {"svg.hashsalt": "rect4", "font.size": 9.0, "axes.spines.top": False, "axes.spines.right": False}
    )


def _draw_domain(axes: Axes, domain: Domain, is_source: bool) -> None:
    colour = DOMAIN_COLOURS[domain.name]
    for label, marker, line in LABELS:
        points = domain.points[domain.labels == label][::7]
        axes.scatter(points[:, 0].numpy(), points[:, 1].numpy(), s=9, marker=marker, color=colour, linewidths=0.8)
        if domain.slant is None:
            continue
        corner = (label * INVARIANT_CENTRE - HALF_SIDE, label * domain.slant - HALF_SIDE)
        square = Rectangle(corner, 2 * HALF_SIDE, 2 * HALF_SIDE, fill=False, edgecolor=colour, linestyle=line)
        axes.add_patch(square)
    axes.set(xlim=(-1.7, 1.7), ylim=(-2.1, 2.1), xticks=[-1, 0, 1], yticks=[-2, -1, 0, 1, 2])
    axes.set(title=domain.name if is_source else f"{domain.name}, held out", xlabel="$x_1$", ylabel="$x_2$")
    axes.set_aspect("equal")
    axes.label_outer()


def _draw_parameters(axes: Axes, result: Round) -> None:
    w1, w2 = torch.meshgrid(
        *(torch.linspace(*ends, GRID, dtype=torch.float64) for ends in (FIRST_PARAMETER, SECOND_PARAMETER)),
        indexing="xy",
    )
    surface = loss(torch.stack([w1, w2], dim=-1), result.judged)
    lines = axes.contour(w1.numpy(), w2.numpy(), surface.numpy(), levels=9, colors="#AAAAAA", linewidths=0.7)
    axes.clabel(lines, fontsize=7)
    _draw_optimum(axes, result)
    for domain, update in zip(result.sources, result.updates, strict=True):
        _draw_arrow(axes, result.start, update, DOMAIN_COLOURS[domain.name], "-", 1.4)
        beyond = result.start + update * (1 + 0.09 / update.norm())
        axes.text(
            float(beyond[0]), float(beyond[1]), domain.name, color=DOMAIN_COLOURS[domain.name], ha="center", va="center"
        )
    for step in result.steps:
        _draw_arrow(axes, result.start, step.vector, *STEP_STYLES[step.name], 2.4)
    axes.set(title=f"contours: loss on {_names(result)}", xlabel="$w_1$", ylabel="$w_2$")
    axes.set(xlim=FIRST_PARAMETER, ylim=SECOND_PARAMETER)
    axes.set_aspect("equal")


def _draw_optimum(axes: Axes, result: Round) -> None:
    """Draw the way to the optimum, which may lie outside."""
    best = optimum(result.judged)
    axes.plot(*torch.stack([result.start, best]).T.numpy(), color="#555555", linestyle=":", linewidth=1.2)
    axes.plot(*best.numpy(), marker="*", markersize=13, color="#F0E442", markeredgecolor="#000000", linestyle="none")


def _draw_arrow(axes: Axes, start: torch.Tensor, vector: torch.Tensor, colour: str, line: Line, width: float) -> None:
    ends = [(float(end[0]), float(end[1])) for end in (start, start + vector)]
    axes.add_patch(
        FancyArrowPatch(
            *ends,
            arrowstyle="-|>",
            mutation_scale=11,
            shrinkA=0,
            shrinkB=0,
            color=colour,
            linestyle=line,
            linewidth=width,
        )
    )


def _legend(result: Round) -> list[Line2D]:
    sites = [Line2D([], [], color="#777777", linewidth=1.4, label="update of a site")]
    steps = [
        Line2D([], [], color=colour, linestyle=line, linewidth=2.4, label=name)
        for name, (colour, line) in STEP_STYLES.items()
    ]
    coordinates = ", ".join(f"{value:.1f}" for value in optimum(result.judged).tolist())
    way = Line2D([], [], color="#555555", linestyle=":", linewidth=1.2, marker="*", markersize=10)
    way.set(
        markerfacecolor="#F0E442",
        markeredgecolor="#000000",
        label=f"to the optimum of {_names(result)}: ({coordinates})",
    )
    return [*sites, *steps, way]


def _names(result: Round) -> str:
    return ", ".join(domain.name for domain in result.judged)
