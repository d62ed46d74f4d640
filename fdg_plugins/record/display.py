# SPDX-License-Identifier: Apache-2.0
"""Progress for a person: lines, and at a terminal a bar that stays below them; where output is kept, lines alone."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn
from rich.text import Text


class Display:
    """Prints lines, and shows a bar of ``what`` between entering and leaving if ``console`` is a terminal.

    ``columns`` stand beside the count, and ``fields`` are the values of ``{task.fields[...]}`` in them.
    """

    def __init__(
        self,
        console: Console,
        what: str,
        total: int,
        columns: Sequence[ProgressColumn],
        fields: Mapping[str, Any] | None = None,
    ) -> None:
        self.has_bar = console.is_terminal
        left = (TextColumn(what), BarColumn(), MofNCompleteColumn())
        self._progress = Progress(*left, *columns, console=console, transient=True, disable=not self.has_bar)
        self._bar = self._progress.add_task(what, total=total, **(fields or {}))

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
