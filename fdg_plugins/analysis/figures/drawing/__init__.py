# SPDX-License-Identifier: Apache-2.0
"""From the numbers of a figure to an image: :func:`draw` makes it, :func:`render` its bytes. Needs matplotlib.

No state of ``pyplot`` is used, and the same numbers give the same bytes.
"""

from fdg_plugins.analysis.figures.drawing.canvas import FORMATS, render
from fdg_plugins.analysis.figures.drawing.dispatch import draw

__all__ = ["FORMATS", "draw", "render"]
