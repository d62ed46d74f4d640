# SPDX-License-Identifier: Apache-2.0
"""Output of the commands: results on stdout, a user error as one red line on stderr with exit code 2."""

import os
import re
import sys
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from io import TextIOWrapper
from typing import Any, TextIO

import typer
from rich.console import Console
from rich.markup import escape
from rich.text import Text
from typer.core import TyperGroup

from fdg_plugins.errors import FDGError
from fdg_plugins.values import visible

USER_MISTAKE = 2
OUTPUT_LOST = 1


class LastingConsole(Console):
    """A console whose reader may leave, as ``head`` does: the command goes on, and what it prints then is lost."""

    def on_broken_pipe(self) -> None:
        """Print to nowhere from now on."""
        with suppress(SystemExit):  # rich ends the process
            super().on_broken_pipe()


class LastingOutput:
    """The standard output of a command, which goes on if its disk is full: what it prints then is lost.

    Characters that the output's encoding lacks are escaped.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._error: OSError | None = None
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write ``text``, unless something was lost before; a reader that leaves raises ``BrokenPipeError``."""
        if self._error is None:
            self._note_error(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        """Write what is buffered."""
        if self._error is None:
            self._note_error(self._stream.flush)

    def _note_error(self, write: Callable[[], object]) -> None:
        try:
            write()
        except BrokenPipeError:
            raise
        except OSError as error:
            self._error = error

    def is_whole(self) -> bool:
        """Return whether everything was written; if not, say so on stderr, once the command has ended."""
        self.flush()
        if self._error is None:
            return True
        nowhere = os.open(os.devnull, os.O_WRONLY)  # for what is still buffered when Python ends
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)
        _say_mistake(f"the output cannot be written: {self._error.strerror}.")
        return False


def say(text: str, style: str = "", on_stderr: bool = False) -> None:
    """Print one line verbatim: without interpreting markup or wrapping at the terminal's width.

    What cannot be encoded in UTF-8, such as part of a file's name, is escaped.
    """
    encodable = text.encode(errors="backslashreplace").decode()
    LastingConsole(stderr=on_stderr, highlight=False, soft_wrap=True).print(Text(encodable, style=style))


class OneLineErrors(TyperGroup):
    """A group of commands that shows this package's errors as one sentence for the user, and fills its help's lines."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for command in self.commands.values():
            # Typer joins the lines of the first paragraph alone; the others would break where their source does. Rich
            # would take the name of an extra in brackets for markup, and leave it out.
            command.help = escape(re.sub(r"(?<!\n)\n(?!\n)", " ", command.help or ""))

    def invoke(self, ctx: Any) -> Any:
        """Run the command; an ``FDGError``, and a path that the system refuses, end it with exit code 2.

        A command that has succeeded, but whose output was lost, ends with 1.
        """
        output = LastingOutput(sys.stdout)
        with redirect_stdout(output):
            try:
                result = self._invoke(ctx)
            except typer.Exit as ending:
                if output.is_whole() or ending.exit_code:
                    raise
                raise typer.Exit(OUTPUT_LOST) from ending
            if not output.is_whole():
                raise typer.Exit(OUTPUT_LOST)
        return result

    def _invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except FDGError as error:
            _say_mistake(str(error))
            raise typer.Exit(USER_MISTAKE) from error
        except OSError as error:
            if error.filename is None:
                raise
            # Even to ask whether a path is there fails where the user may not look, or its name is too long.
            _say_mistake(f"path {error.filename} cannot be used: {error.strerror}.")
            raise typer.Exit(USER_MISTAKE) from error


def _say_mistake(sentence: str) -> None:
    say(visible(f"Error: {' '.join(sentence.split())}"), style="red", on_stderr=True)
