# SPDX-License-Identifier: Apache-2.0
"""Tables of text for a terminal, in Markdown and in LaTeX."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

TERMINAL, MARKDOWN, LATEX = "terminal", "markdown", "latex"
NONE = "-"
_LATEX = str.maketrans(
    {
        **{sign: rf"\{sign}" for sign in "&%$#_{}"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "[": "{[}",  # at the start of a row, it would be read as an argument of the preceding line break
    }
)


class Sheet(NamedTuple):
    """A caption, a table of text of which the first ``words`` columns are words, and notes below.

    The best of a column stands between ``**``.
    """

    caption: str
    frame: pd.DataFrame
    words: int
    notes: Sequence[str]


def rendered(sheets: Sequence[Sheet], form: str) -> str:
    """Return tables one below the other, for a terminal, in Markdown, or in LaTeX with rules of the package booktabs.

    Markup in names is escaped.
    """
    if form == LATEX:
        return "% needs \\usepackage{booktabs}\n" + "\n".join(map(_latex_table, sheets))
    escape, mark, style, gap = (_markdown, "- ", "pipe", "\n\n") if form == MARKDOWN else (str, "", "simple", "\n")
    parts: list[str] = []
    for one in sheets:
        frame = one.frame.rename(columns=escape).map(lambda text: escape(text).replace(r"\*\*", "**"))
        sides = ["left"] * one.words + ["right"] * (len(frame.columns) - one.words)
        grid = frame.to_markdown(index=False, tablefmt=style, disable_numparse=True, colalign=sides)
        notes = ["\n".join(f"{mark}{escape(note)}" for note in one.notes)] if one.notes else []
        parts.append(gap.join([escape(one.caption), grid, *notes]))
    return "\n\n".join(parts) + "\n"


def _latex_table(sheet: Sheet) -> str:
    frame = sheet.frame.rename(columns=_latex).map(_latex)
    columns = "l" * sheet.words + "r" * (len(frame.columns) - sheet.words)
    text = str(frame.to_latex(index=False, column_format=columns, caption=_latex(sheet.caption), position="t"))
    notes = "".join(f"\\par\\footnotesize {_latex(note)}\n" for note in sheet.notes)
    return text.replace("\\end{table}\n", f"{notes}\\end{{table}}\n")


def _markdown(text: str) -> str:
    """Return ``text`` with markup escaped; underscores within words are not markup and stay unchanged."""
    return re.sub(r"[\\|*<`\[\]]|(?<!\w)_|_(?!\w)", r"\\\g<0>", text)


def _latex(text: str) -> str:
    """Return ``text`` with LaTeX's special characters escaped, a minus and quotes as it sets them, the best in bold."""
    escaped = re.sub('"([^"]*)"', r"``\1''", text.translate(_LATEX))
    return re.sub(r"\*\*(.+?)\*\*", r"\\textbf{\1}", re.sub(r"^-(?=\d)", "$-$", escaped))
