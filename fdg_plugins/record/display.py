# SPDX-License-Identifier: Apache-2.0
"""Progress for a person: lines, and at a terminal a bar that stays below them; where output is kept, lines alone."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn
from rich.text import Text


class Display(Progress):
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
        super().__init__(*left, *columns, console=console, transient=True, disable=not self.has_bar)
        self._bar = self.add_task(what, total=total, **(fields or {}))

    def say(self, line: str) -> None:
        """Print one line as it is, above the bar: no markup is read in it, and it is not broken."""
        self.console.print(Text(line), soft_wrap=True)

    def move(self, done: int, **fields: Any) -> None:
        """Show that ``done`` are done, and new values of the columns' fields."""
        self.update(self._bar, completed=done, **fields)
