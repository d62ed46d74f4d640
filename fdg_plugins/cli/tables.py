# SPDX-License-Identifier: Apache-2.0
"""Tables on stdout: folded to the terminal's width, and in a pipe one line for each row."""

from collections.abc import Iterable, Sequence

import typer
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from fdg_plugins.values import visible

PIPE_WIDTH = 10_000  # wider than any row: who reads a pipe wants whole lines

# A cell is text, or text with a style of rich's.
Cell = str | Text


def show(*parts: RenderableType, width: int | None = None) -> None:
    """Print ``parts`` below each other; ``width``: columns in a pipe, default: as many as the longest row has."""
    console = Console(highlight=False)
    if console.is_terminal:
        console.print(*parts, sep="\n")
        return
    piped = Console(highlight=False, width=width or PIPE_WIDTH)
    with piped.capture() as capture:
        piped.print(*parts, sep="\n")
    for line in capture.get().splitlines():
        typer.echo(line.rstrip())


def make_table(head: Sequence[str], rows: Iterable[Sequence[Cell]], numbers: Sequence[str] = ()) -> Table:
    """Return a table without rules; the columns in ``numbers`` are aligned to the right. Nothing is cut off.

    Columns without any name have no head.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_header=any(head))
    for name in head:
        table.add_column(name, justify="right" if name in numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(visible(cell)) for cell in row))
    return table
