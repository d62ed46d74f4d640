# SPDX-License-Identifier: Apache-2.0
"""Tables on stdout: folded to the terminal's width; in a pipe, one line per row."""

from collections.abc import Iterable, Sequence

import typer
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from fdg_plugins.errors import visible

PIPE_WIDTH = 10_000  # wider than any row: readers of a pipe need whole lines

# A cell is text, or text with a style from rich.
Cell = str | Text


def show(*parts: RenderableType, width: int | None = None) -> None:
    """Print ``parts`` below each other; ``width``: columns in a pipe, by default as many as the longest row needs."""
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
    """Return a table without rules; the columns in ``numbers`` are right-aligned. Nothing is truncated.

    If all columns are unnamed, the table has no header.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_header=any(head))
    for name in head:
        table.add_column(name, justify="right" if name in numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(as_text, row))
    return table


def as_text(cell: Cell) -> Text:
    """Return a cell verbatim: brackets in a name are no markup."""
    return cell if isinstance(cell, Text) else Text(visible(cell))
