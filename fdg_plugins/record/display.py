# SPDX-License-Identifier: Apache-2.0
"""Progress for a person: lines, and at a terminal a bar that stays below them; where output is kept, lines alone."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn
from rich.text import Text


class Display(AbstractContextManager["Display"]):
    """Prints lines, and shows the bar between entering and leaving.

    Args:
        console: where to; the bar is shown if it is a terminal.
        what: what the bar counts, such as ``"runs"``.
        total: how many there are.
        columns: what is shown beside the count.
        done: how many are done already.
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
        self._console = console
        self._bar = Progress(*left, *columns, console=console, transient=transient)
        self._task = self._bar.add_task(what, total=total, completed=done, **(fields or {}))

    def __enter__(self) -> Self:
        if self.has_bar:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.has_bar:
            self._bar.stop()

    def say(self, line: str) -> None:
        """Print one line as it is, above the bar: no markup is read in it, and it is not broken."""
        self._console.print(Text(line), soft_wrap=True)

    def move(self, done: int, **fields: Any) -> None:
        """Show that ``done`` are done, and new values of the columns' fields."""
        self._bar.update(self._task, completed=done, **fields)
