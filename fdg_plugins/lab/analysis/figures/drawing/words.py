# SPDX-License-Identifier: Apache-2.0
"""The width of text as it is drawn, and its lines: as few as fit, of about the same length."""

import re
import textwrap
from functools import lru_cache

from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

POINTS_PER_INCH = 72.0
FONT = "DejaVu Sans"
FEWEST_LETTERS = 6  # of a line
_AFTER_NUMBER = re.compile(r"(?<=\d) (?=[\w%])")
_GLUE = "\u00a0"  # a blank at which no line ends


@lru_cache(maxsize=4096)
def inches_of(text: str, size: float, *, is_bold: bool = False) -> float:
    """Return the width in inches of one line of text in ``size`` points."""
    font = FontProperties(family=FONT, size=size, weight="bold" if is_bold else "normal")
    width, _, _ = text_to_path.get_text_width_height_descent(text, font, ismath=False)
    return float(width) / POINTS_PER_INCH


def wrapped(text: str, inches: float, size: float, *, is_bold: bool = False) -> list[str]:
    """Return ``text`` in as few lines as fit into ``inches``, none much shorter than the others.

    A number stays with the word after it; a word that is wider than a line is broken.
    """
    text = _AFTER_NUMBER.sub(_GLUE, text)
    letters = len(text)
    while letters > FEWEST_LETTERS and not _fits(textwrap.wrap(text, letters), inches, size, is_bold):
        letters -= 1
    lines = textwrap.wrap(text, max(letters, 1))
    while letters > FEWEST_LETTERS and len(evener := textwrap.wrap(text, letters - 1)) == len(lines):
        if not _fits(evener, inches, size, is_bold):
            break
        lines, letters = evener, letters - 1
    return [line.replace(_GLUE, " ") for line in lines]


def _fits(lines: list[str], inches: float, size: float, is_bold: bool) -> bool:
    return all(inches_of(line, size, is_bold=is_bold) <= inches for line in lines)
