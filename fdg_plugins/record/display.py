# SPDX-License-Identifier: Apache-2.0
"""Progress for a person: lines, and at a terminal a bar that stays below them; where output is kept, lines alone."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn
from rich.text import Text


class Display:
    """Prints lines, and shows a bar of ``what`` between entering and leaving if ``console`` is a terminal.

    Args:
        total: how many there are; ``done``: how many are done already.
        columns: what is shown beside the count.
        transient: whether the bar disappears in the end.
        fields: values of ``{task.fields[...]}`` in the columns.
    """

    def __init__(
        self,
        console: Console,
        what: str,
        total: int,
        columns: Sequence[ProgressColumn],
        *,
        done: int = 0,
        transient: bool = False,
        fields: Mapping[str, Any] | None = None,
    ) -> None:
        self.has_bar = console.is_terminal
        left = (TextColumn(what), BarColumn(), MofNCompleteColumn())
        self._progress = Progress(*left, *columns, console=console, transient=transient, disable=not self.has_bar)
        self._bar = self._progress.add_task(what, total=total, completed=done, **(fields or {}))

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def say(self, line: str) -> None:
        """Print one line as it is, above the bar: no markup is read in it, and it is not broken."""
        self._progress.console.print(Text(line), soft_wrap=True)

    def move(self, done: int, **fields: Any) -> None:
        """Show that ``done`` are done, and new values of the columns' fields."""
        self._progress.update(self._bar, completed=done, **fields)
