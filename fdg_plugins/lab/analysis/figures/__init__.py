# SPDX-License-Identifier: Apache-2.0
"""Figures from the records of finished runs; :func:`make_pictures` computes the figures of one kind.

Numbers first: every kind has a function from runs to a :class:`Picture` that does not need matplotlib. ``drawing``
turns a picture into an image, :func:`render_csv` into a file of numbers.
"""

from fdg_plugins.lab.analysis.figures.kinds import ALL, KINDS, Request, kinds_of, make_pictures
from fdg_plugins.lab.analysis.figures.picture import (
    Bars,
    Chart,
    NothingToDrawError,
    Overlays,
    Picture,
    render_csv,
)

__all__ = [
    "ALL",
    "KINDS",
    "Bars",
    "Chart",
    "NothingToDrawError",
    "Overlays",
    "Picture",
    "Request",
    "kinds_of",
    "make_pictures",
    "render_csv",
]
