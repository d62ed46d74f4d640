# SPDX-License-Identifier: Apache-2.0
"""Images as points in two panels: coloured by domain, and by class."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fdg_plugins.lab.analysis.figures.drawing.canvas import (
    columns_for,
    fitted,
    legend_inches,
    mark_axes,
    new_figure,
    style,
)
from fdg_plugins.lab.analysis.figures.picture import FeaturePoint, Scatter
from fdg_plugins.lab.analysis.figures.style import Look

AROUND = 0.35
MAX_NAMED = 30
MARKER_AREA = 7.0  # square points


def draw_scatter(scatter: Scatter, width: float) -> Figure:
    """Return the figure; with more than MAX_NAMED classes, the panel states their number instead of a legend."""
    domains = {name: fitted(label, width / 2) for name, label in _domain_labels(scatter).items()}
    classes = {name: fitted(name, width / 2) for name in scatter.class_looks}
    names_classes = len(classes) <= MAX_NAMED
    legends = [list(domains.values()), *([list(classes)] if names_classes else [])]
    with style():
        foot = max(legend_inches(labels, width / 2) for labels in legends)
        figure = new_figure(scatter, width, width / 2 + AROUND + foot)
        left, right = figure.subplots(1, 2, sharex=True, sharey=True)
        _draw(left, scatter.points, "domain", scatter.domain_looks, domains)
        _draw(right, scatter.points, "class_name", scatter.class_looks, classes)
        mark_axes(left, "by domain (images)", "t-SNE 1", "t-SNE 2")
        mark_axes(right, "by class" if names_classes else f"by class ({len(classes)}, not named)", "t-SNE 1")
        for axes, labels in zip((left, right), legends, strict=False):
            _add_legend(axes, labels, width / 2)
    return figure


def _domain_labels(scatter: Scatter) -> dict[str, str]:
    """Return the label of each domain: its name, its number of images, and whether it is held out."""
    counts = {domain: sum(point.domain == domain for point in scatter.points) for domain in scatter.domain_looks}
    return {
        domain: f"{domain} ({'held out, ' if domain == scatter.held_out else ''}{count})"
        for domain, count in counts.items()
    }


def _draw(
    axes: Axes, points: Sequence[FeaturePoint], part: str, looks: Mapping[str, Look], labels: Mapping[str, str]
) -> None:
    for name, look in looks.items():
        chosen = [point for point in points if getattr(point, part) == name]
        axes.scatter(
            [point.x for point in chosen],
            [point.y for point in chosen],
            s=MARKER_AREA,
            marker=look.marker,
            color=look.colour,
            alpha=0.75,
            linewidths=0,
            label=labels[name],
        )
    axes.set_xticks([])
    axes.set_yticks([])


def _add_legend(axes: Axes, labels: Sequence[str], inches: float) -> None:
    axes.legend(
        loc="upper center",
        bbox_to_anchor=(0.5, -0.12),
        ncols=columns_for(labels, inches),
        markerscale=1.4,
        handletextpad=0.2,
        columnspacing=1.0,
    )
