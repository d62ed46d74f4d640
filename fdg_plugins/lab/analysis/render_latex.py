# SPDX-License-Identifier: Apache-2.0
"""A table in LaTeX: a ``table`` environment with rules from the package booktabs, which the document must load."""

import re

from fdg_plugins.lab.analysis.cells import REFERENCES, Cell, Grid, Groups

_QUOTED = re.compile('"([^"]*)"')
_SPECIAL = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "±": r"$\pm$",
    "²": r"$^2$",
    "[": "{[}",  # at the start of a row, it would be read as an argument of the preceding line break
    "]": "{]}",
}


def render_latex(grid: Grid) -> str:
    """Return the environment, and that of the grid below, terminated by a newline; ASCII remains ASCII."""
    columns = "l" * grid.words + "r" * (len(grid.header) - grid.words)
    blocks = [_block(grid.groups, grid.separated)] if grid.groups else []
    if grid.references:
        heading = rf"\multicolumn{{{len(grid.header)}}}{{l}}{{\textit{{{escaped(REFERENCES)}}}}} \\"
        blocks.append(f"{heading}\n{_block(grid.references, grid.separated)}")
    lines = [
        r"% needs \usepackage{booktabs}",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{escaped(grid.caption)}}}",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        _row(tuple(Cell(title) for title in grid.header)),
        r"\midrule",
        "\n\\midrule\n".join(blocks),
        r"\bottomrule",
        r"\end{tabular}",
        *(rf"\par\footnotesize {escaped(note)}" for note in grid.notes),
        r"\end{table}",
    ]
    below = "" if grid.below is None else f"\n{render_latex(grid.below)}"
    return "\n".join(lines) + "\n" + below


def _block(groups: Groups, separated: bool) -> str:
    between = "\n\\midrule\n" if separated else "\n"
    return between.join("\n".join(_row(row) for row in group) for group in groups)


def escaped(text: str) -> str:
    """Return ``text`` with LaTeX's special characters escaped."""
    return _QUOTED.sub(r"``\1''", "".join(_SPECIAL.get(character, character) for character in text))


def _row(row: tuple[Cell, ...]) -> str:
    return " & ".join(_cell(cell) for cell in row) + r" \\"


def _cell(cell: Cell) -> str:
    text = escaped(cell.text)
    if text == "-":
        return "--"
    if text.startswith("-"):
        return f"$-${text[1:]}"
    return rf"\textbf{{{text}}}" if cell.best else text
