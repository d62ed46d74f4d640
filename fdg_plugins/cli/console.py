# SPDX-License-Identifier: Apache-2.0
"""Output of the commands: results on stdout, a user error as one red line on stderr with exit code 2."""

from typing import Any

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperGroup

from fdg_plugins.errors import FDGError
from fdg_plugins.values import visible

USER_MISTAKE = 2


def say(text: str, style: str = "", on_stderr: bool = False) -> None:
    """Print one line verbatim: without interpreting markup or wrapping at the terminal's width."""
    Console(stderr=on_stderr, highlight=False, soft_wrap=True).print(Text(text, style=style))


class OneLineErrors(TyperGroup):
    """A group of commands that shows this package's errors as one sentence for the user."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; an ``FDGError`` ends it with exit code 2."""
        try:
            return super().invoke(ctx)
        except FDGError as error:
            say(visible(f"Error: {' '.join(str(error).split())}"), style="red", on_stderr=True)
            raise typer.Exit(USER_MISTAKE) from error
