# SPDX-License-Identifier: Apache-2.0
"""The elements that all figures share: size, title, caption, legend, and rendering to reproducible bytes.

A figure is drawn in the size in which it is printed, so text has the same size in every figure.
"""

import io
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from fdg_plugins.lab.analysis.figures.drawing.words import POINTS_PER_INCH, inches_of, wrapped
from fdg_plugins.lab.analysis.figures.picture import Picture

FORMATS = ("png", "svg")
DOTS_PER_INCH = 300
COLUMN_INCHES = 3.3  # a column of a paper with two

TITLE_SIZE, TEXT_SIZE, SMALL_SIZE = 8.0, 7.0, 6.5  # points
LINE_HEIGHT = 1.25  # of a line of text, in its size
GAP_INCHES = 0.06
# Parts of a legend, in the size of its text.
HANDLE, HANDLE_GAP, COLUMN_GAP, ROW_GAP = 2.2, 0.6, 1.4, 0.4
_BESIDE_LABEL = (HANDLE + HANDLE_GAP + COLUMN_GAP) * SMALL_SIZE / POINTS_PER_INCH

_STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": TEXT_SIZE,
    "axes.titlesize": TEXT_SIZE,
    "axes.titlepad": 3.0,
    "axes.labelsize": TEXT_SIZE,
    "axes.labelpad": 2.0,
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.4,
    "legend.borderaxespad": 0.0,
    "legend.borderpad": 0.0,
    "legend.columnspacing": COLUMN_GAP,
    "legend.fontsize": SMALL_SIZE,
    "legend.frameon": False,
    "legend.handlelength": HANDLE,
    "legend.handletextpad": HANDLE_GAP,
    "legend.labelspacing": ROW_GAP,
    "text.parse_math": False,  # a $ in a name is a plain $
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "fdg",  # otherwise ids are random
}
for _axis in ("xtick", "ytick"):
    _STYLE |= {f"{_axis}.labelsize": SMALL_SIZE, f"{_axis}.major.size": 2.0, f"{_axis}.major.width": 0.6}
    _STYLE |= {f"{_axis}.major.pad": 2.0, f"{_axis}.minor.size": 1.2, f"{_axis}.minor.width": 0.4}


def style() -> AbstractContextManager[None]:
    """Return the context in which every figure is drawn and saved; global settings are restored on exit."""
    return rc_context(_STYLE)


def new_figure(picture: Picture, width: float, height: float, legends: Sequence[Sequence[Artist]] = ()) -> Figure:
    """Return a figure ``width`` inches wide, with room for contents of the given height.

    Title and caption are above the contents; the legends, one for each sequence of handles, below them.
    """
    titles = wrapped(picture.title, width - 2 * GAP_INCHES, TITLE_SIZE, is_bold=True)
    captions = wrapped(picture.caption, width - 2 * GAP_INCHES, SMALL_SIZE)
    title_inches = _text_inches(titles, TITLE_SIZE)
    head = title_inches + _text_inches(captions, SMALL_SIZE) + 3 * GAP_INCHES
    legends = [handles for handles in legends if handles]
    for handle in (handle for handles in legends for handle in handles):
        handle.set_label(fitted(str(handle.get_label()), width))
    foot = sum((legend_inches(labels_of(handles), width) for handles in legends), start=GAP_INCHES)
    height += head + foot
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    engine = figure.get_layout_engine()
    assert isinstance(engine, ConstrainedLayoutEngine)
    engine.set(rect=(0.0, foot / height, 1.0, 1.0 - (head + foot) / height), w_pad=0.04, h_pad=0.03)
    _write(figure, titles, height - GAP_INCHES, size=TITLE_SIZE, weight="bold")
    _write(figure, captions, height - 2 * GAP_INCHES - title_inches, size=SMALL_SIZE, color="#444444")
    foot -= GAP_INCHES
    for handles in legends:
        columns = columns_for(labels_of(handles), width)
        figure.legend(handles=list(handles), loc="upper center", bbox_to_anchor=(0.5, foot / height), ncols=columns)
        foot -= legend_inches(labels_of(handles), width)
    return figure


def _text_inches(lines: Sequence[str], size: float) -> float:
    return len(lines) * size * LINE_HEIGHT / POINTS_PER_INCH


def _write(figure: Figure, lines: Sequence[str], inches: float, **look: Any) -> None:
    """Write centred lines, their upper edge ``inches`` above the lower edge of the figure."""
    place = inches / figure.get_figheight()
    figure.text(0.5, place, "\n".join(lines), ha="center", va="top", linespacing=LINE_HEIGHT, **look)


def labels_of(handles: Sequence[Artist]) -> list[str]:
    """Return the labels of the handles of a legend."""
    return [str(handle.get_label()) for handle in handles]


def fitted(label: str, inches: float) -> str:
    """Return a label of a legend that has a width, in several lines if it is too long for one."""
    return "\n".join(wrapped(label, inches - _BESIDE_LABEL, SMALL_SIZE))


def columns_for(labels: Sequence[str], inches: float) -> int:
    """Return the number of columns in which a legend with these labels fits into a width, with evenly filled rows."""
    longest = max(inches_of(line, SMALL_SIZE) for label in labels for line in label.splitlines() or [""])
    most = max(1, min(len(labels), int(inches / (longest + _BESIDE_LABEL))))
    return -(-len(labels) // -(-len(labels) // most))


def legend_inches(labels: Sequence[str], inches: float) -> float:
    """Return the height in inches of a legend with these labels in a width."""
    rows = -(-len(labels) // columns_for(labels, inches))
    lines = max(label.count("\n") for label in labels) + 1
    return rows * SMALL_SIZE * (1.1 + (lines - 1) * LINE_HEIGHT + ROW_GAP) / POINTS_PER_INCH + GAP_INCHES


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
