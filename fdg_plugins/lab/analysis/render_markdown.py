# SPDX-License-Identifier: Apache-2.0
"""A table in Markdown, in the dialect of GitHub and most other readers."""

import re

from fdg_plugins.lab.analysis.cells import REFERENCES, Cell, Grid, Groups


def render_markdown(grid: Grid) -> str:
    """Return caption, table and footnotes, and then the grid below, terminated by a newline."""
    alignment = [":---" if column < grid.words else "---:" for column in range(len(grid.header))]
    lines = [_row([_escaped(title) for title in grid.header]), _row(alignment)]
    lines += _block(grid.groups)
    if grid.references:
        lines += [_row([f"*{_escaped(REFERENCES)}*", *[""] * (len(grid.header) - 1)]), *_block(grid.references)]
    notes = [f"- {_escaped(note)}" for note in grid.notes]
    parts = [_escaped(grid.caption), "\n".join(lines), *(["\n".join(notes)] if notes else [])]
    below = "" if grid.below is None else f"\n{render_markdown(grid.below)}"
    return "\n\n".join(parts) + "\n" + below


def _block(groups: Groups) -> list[str]:
    return [_row([_cell(cell) for cell in row]) for group in groups for row in group]


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _cell(cell: Cell) -> str:
    return f"**{_escaped(cell.text)}**" if cell.best else _escaped(cell.text)


def _escaped(text: str) -> str:
    """Return ``text`` with markup escaped; underscores within words are not markup and stay unchanged."""
    return re.sub(r"[\\|*<`\[\]]|(?<!\w)_|_(?!\w)", r"\\\g<0>", text)
