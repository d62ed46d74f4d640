# SPDX-License-Identifier: Apache-2.0
"""The elements that all figures share: size, title, caption, legend, and rendering to reproducible bytes."""

import io
import textwrap
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from fdg_plugins.analysis.figures.picture import Picture

FORMATS = ("png", "svg")
DOTS_PER_INCH = 200

TITLE_SIZE, TEXT_SIZE, SMALL_SIZE = 11.0, 9.0, 8.0
LETTERS_PER_INCH, BOLD_PER_INCH = 15.0, 10.0  # of small text and of the title, on average
LINE_INCHES = 0.15
LEGEND_INCHES = 0.18  # a row of a legend
GAP_INCHES = 0.08
MIN_WIDTH = 5.5

_STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": TEXT_SIZE,
    "axes.titlesize": TEXT_SIZE,
    "axes.labelsize": TEXT_SIZE,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "legend.borderaxespad": 0.0,
    "legend.fontsize": SMALL_SIZE,
    "legend.frameon": False,
    "xtick.labelsize": SMALL_SIZE,
    "ytick.labelsize": SMALL_SIZE,
    "text.parse_math": False,  # a $ in a name is a plain $
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "fdg",  # otherwise ids are random
}


def style() -> AbstractContextManager[None]:
    """Return the context in which every figure is drawn and saved; global settings are restored on exit."""
    return rc_context(_STYLE)


def new_figure(picture: Picture, width: float, height: float, legends: Sequence[Sequence[Artist]] = ()) -> Figure:
    """Return a figure with room for contents of the given size, at least MIN_WIDTH inches wide.

    Title and caption are above the contents; the legends, one for each sequence of handles, below them.
    """
    width = max(width, MIN_WIDTH)
    titles = textwrap.wrap(picture.title, int(width * BOLD_PER_INCH))
    captions = textwrap.wrap(picture.caption, int(width * LETTERS_PER_INCH))
    title_inches = len(titles) * LINE_INCHES * TITLE_SIZE / SMALL_SIZE
    head = title_inches + len(captions) * LINE_INCHES + 3 * GAP_INCHES
    legends = [handles for handles in legends if handles]
    foot = sum((legend_inches(labels_of(handles), width) for handles in legends), start=GAP_INCHES)
    height += head + foot
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    engine = figure.get_layout_engine()
    assert isinstance(engine, ConstrainedLayoutEngine)
    engine.set(rect=(0.0, foot / height, 1.0, 1.0 - (head + foot) / height))
    top = 1 - GAP_INCHES / height
    figure.text(0.5, top, "\n".join(titles), ha="center", va="top", size=TITLE_SIZE, weight="bold")
    below = top - (title_inches + GAP_INCHES) / height
    figure.text(0.5, below, "\n".join(captions), ha="center", va="top", size=SMALL_SIZE, color="#444444")
    foot -= GAP_INCHES
    for handles in legends:
        columns = columns_for(labels_of(handles), width)
        figure.legend(handles=list(handles), loc="upper center", bbox_to_anchor=(0.5, foot / height), ncols=columns)
        foot -= legend_inches(labels_of(handles), width)
    return figure


def labels_of(handles: Sequence[Artist]) -> list[str]:
    """Return the labels of the handles of a legend."""
    return [str(handle.get_label()) for handle in handles]


def columns_for(labels: Sequence[str], inches: float) -> int:
    """Return the number of columns in which a legend with these labels fits into a width, with evenly filled rows."""
    longest = max(len(label) for label in labels) + 7  # the handle, and the space between columns
    most = max(1, min(len(labels), int(inches * LETTERS_PER_INCH / longest)))
    return -(-len(labels) // -(-len(labels) // most))


def legend_inches(labels: Sequence[str], inches: float) -> float:
    """Return the height in inches of a legend with these labels in a width."""
    return -(-len(labels) // columns_for(labels, inches)) * LEGEND_INCHES + GAP_INCHES


def mark_axes(axes: Axes, title: str, x_label: str = "", y_label: str = "") -> None:
    """Set title and labels; an empty label is omitted."""
    axes.set_title(title)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)


def render(figure: Figure, picture: Picture, form: str) -> bytes:
    """Return the figure as a ``png`` or ``svg`` file; its metadata contain title and caption, but no date."""
    metadata: dict[str, Any] = {"Title": picture.title, "Description": picture.caption}
    if form == "svg":
        metadata["Date"] = None
    else:
        metadata["Software"] = None
    content = io.BytesIO()
    with style():
        figure.savefig(content, format=form, dpi=DOTS_PER_INCH, metadata=metadata)
    return content.getvalue()
