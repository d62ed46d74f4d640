# SPDX-License-Identifier: Apache-2.0
"""A table for a terminal: aligned columns, the best in bold."""

from functools import partial

from rich.text import Text

from fdg_plugins.lab.analysis.cells import REFERENCES, Cell, Grid, Groups

_GAP = "  "


def render_text(grid: Grid) -> Text:
    """Return caption, aligned rows and footnotes, and then the grid below; ``.plain`` is the same without bold."""
    header = tuple(Cell(title) for title in grid.header)
    widths = [max(len(row[column].text) for row in (header, *grid.rows)) for column in range(len(header))]
    rule = Text("-" * (sum(widths) + len(_GAP) * (len(widths) - 1)))
    draw = partial(_block, widths=widths, words=grid.words, between=[rule] if grid.separated else [])
    lines = [Text(grid.caption), _line(header, widths, grid.words), rule, *draw(grid.groups)]
    if grid.references:
        lines += [*([rule] if grid.groups else []), Text(f"{REFERENCES}:"), *draw(grid.references)]
    below = [] if grid.below is None else [Text(), render_text(grid.below)]
    return Text("\n").join([*lines, *(Text(note) for note in grid.notes), *below])


def _block(groups: Groups, widths: list[int], words: int, between: list[Text]) -> list[Text]:
    """Return the lines of the groups, with the lines ``between`` each two of them."""
    lines: list[Text] = []
    for number, group in enumerate(groups):
        lines += between if number else []
        lines += [_line(row, widths, words) for row in group]
    return lines


def _line(row: tuple[Cell, ...], widths: list[int], words: int) -> Text:
    cells = []
    for column, (cell, width) in enumerate(zip(row, widths, strict=True)):
        text = Text(cell.text, style="bold" if cell.best else "")
        padding = " " * (width - len(cell.text))
        cells.append(Text.assemble(text, padding) if column < words else Text.assemble(padding, text))
    line = Text(_GAP).join(cells)
    line.rstrip()
    return line
