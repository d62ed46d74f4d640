# SPDX-License-Identifier: Apache-2.0
"""Pictures that the site draws when it is built, from functions that register themselves: :func:`picture`.

Text and axes have the colour of the page's text, in light and dark.
"""

import html
import io
from collections.abc import Callable
from typing import Any, NamedTuple

from matplotlib import rc_context
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

GREY = "#8a8a8a"  # on white and on dark
INK = "#010203"  # becomes the colour of the page's text
WIDTH = 7.2
_STYLE: dict[Any, Any] = {
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
    **{"font.size": 9, "axes.titlesize": 9, "legend.fontsize": 8.5, "legend.frameon": False},
    **{"axes.spines.top": False, "axes.spines.right": False, "lines.linewidth": 1.4, "lines.markersize": 4},
    **{"figure.constrained_layout.use": True, "svg.hashsalt": "fdg", "savefig.transparent": True},
}
Drawn = Callable[[Figure], None]


class Drawing(NamedTuple):
    """A function that draws, the text before its docstring in the caption, and the height in inches."""

    draw: Drawn
    preface: str
    height: float


PICTURES: dict[str, Drawing] = {}


def drawn(key: str, height: float = 2.7, preface: str = "") -> Callable[[Drawn], Drawn]:
    """Register what draws the picture of a method, or of a page by its name; its docstring is the caption."""

    def keep(draw: Drawn) -> Drawn:
        PICTURES[key] = Drawing(draw, preface, height)
        return draw

    return keep


def picture(key: str) -> str:
    """Return a picture with its caption as HTML on one line; empty if there is none."""
    if key not in PICTURES:
        return ""
    draw, preface, height = PICTURES[key]
    caption = html.escape(preface + " ".join((draw.__doc__ or "").split()))
    with rc_context(_STYLE):
        figure = Figure(figsize=(WIDTH, height))
        FigureCanvasSVG(figure)
        draw(figure)
        content = io.StringIO()
        figure.savefig(content, format="svg", metadata={"Date": None})
    svg = content.getvalue()
    svg = svg[svg.index("<svg") :].replace(INK, "currentColor").replace("\n", " ")
    svg = svg.replace("<svg ", f'<svg role="img" aria-label="{caption}" ', 1)
    return f'<figure class="picture">{svg}<figcaption>{caption}</figcaption></figure>'


def with_picture(page: str, key: str) -> str:
    """Return a page in Markdown with its picture after the first paragraph."""
    if key not in PICTURES:
        return page
    title, first, rest = page.split("\n\n", 2)
    return "\n\n".join([title, first, picture(key), rest])
