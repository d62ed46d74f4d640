# SPDX-License-Identifier: Apache-2.0
"""Tables of text as a terminal, Markdown and LaTeX show them; pandas lays them out."""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pandas as pd

BEST = re.compile(r"\*\*(.+?)\*\*")  # the best of a column
_LATEX = str.maketrans(
    {
        **{sign: rf"\{sign}" for sign in "&%$#_{}"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "±": r"$\pm$",
        "²": r"$^2$",
        "[": "{[}",  # at the start of a row, it would be read as an argument of the preceding line break
    }
)


class Sheet(NamedTuple):
    """A caption, a table of text of which the first ``words`` columns are words, and notes below."""

    caption: str
    frame: pd.DataFrame
    words: int
    notes: Sequence[str]


def as_text(sheets: Sequence[Sheet]) -> str:
    """Return caption, aligned rows and notes of each table; the best of a column stands between ``**``."""
    return "\n\n".join("\n".join([one.caption, _grid(one, "simple", str), *one.notes]) for one in sheets) + "\n"


def as_markdown(sheets: Sequence[Sheet]) -> str:
    """Return the same in the dialect of GitHub and most other readers."""
    parts: list[str] = []
    for one in sheets:
        parts += [_markdown(one.caption), _grid(one, "pipe", _markdown)]
        parts += ["\n".join(f"- {_markdown(note)}" for note in one.notes)] if one.notes else []
    return "\n\n".join(parts) + "\n"


def as_latex(sheets: Sequence[Sheet]) -> str:
    """Return ``table`` environments with rules from the package booktabs, which the document must load."""
    return "% needs \\usepackage{booktabs}\n" + "\n".join(map(_environment, sheets))


def _environment(sheet: Sheet) -> str:
    frame = _mapped(sheet.frame, _latex)
    columns = "l" * sheet.words + "r" * (len(frame.columns) - sheet.words)
    text = frame.to_latex(index=False, column_format=columns, caption=_latex(sheet.caption), position="t")
    notes = "".join(f"\\par\\footnotesize {_latex(note)}\n" for note in sheet.notes)
    return text.replace("\\end{table}\n", f"{notes}\\end{{table}}\n")


def _grid(sheet: Sheet, form: str, escape: Callable[[str], str]) -> str:
    frame = _mapped(sheet.frame, escape)
    sides = ["left"] * sheet.words + ["right"] * (len(frame.columns) - sheet.words)
    return str(frame.to_markdown(index=False, tablefmt=form, disable_numparse=True, colalign=sides))


def _mapped(frame: pd.DataFrame, escape: Callable[[str], str]) -> pd.DataFrame:
    """Return the table with every name and cell escaped; the marks of the best are kept."""
    return frame.rename(columns=escape).map(lambda text: re.sub(r"\\\*\\\*", "**", escape(text)))


def _markdown(text: str) -> str:
    """Return ``text`` with markup escaped; underscores within words are not markup and stay unchanged."""
    return re.sub(r"[\\|*<`\[\]]|(?<!\w)_|_(?!\w)", r"\\\g<0>", text)


def _latex(text: str) -> str:
    """Return ``text`` with LaTeX's special characters escaped, a minus and quotes as it sets them, the best in bold."""
    escaped = re.sub('"([^"]*)"', r"``\1''", text.translate(_LATEX))
    return BEST.sub(r"\\textbf{\1}", re.sub(r"^-(?=\d)", "$-$", escaped))
