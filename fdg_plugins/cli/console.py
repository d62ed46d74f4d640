# SPDX-License-Identifier: Apache-2.0
"""What all commands share: lines printed verbatim, errors in one sentence, names of earlier versions."""

import re
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.text import Text
from typer.core import TyperGroup

from fdg_plugins.errors import FDGError, SettingsError
from fdg_plugins.naming import nearest
from fdg_plugins.values import visible

FAILED = 1
USER_MISTAKE = 2
INTERRUPTED = 130
# Packages of the extra ``lab`` that commands import without asking.
LAB = ("jinja2", "matplotlib", "pandas", "sklearn", "tabulate", "yaml")
# The commands of 0.2.0 under another name, for this version alone.
RENAMED = {
    "allow-list": "kit allow",
    "centralised": "run",
    "clean": "kit clean",
    "export-bundle": "export bundle",
    "export-job": "export job",
    "harden": "kit harden",
    "jobs": "export jobs",
    "site-config": "kit site",
}


def say(text: str, style: str = "", on_stderr: bool = False) -> None:
    """Print one line verbatim: without interpreting markup or wrapping at the terminal's width.

    What cannot be encoded in UTF-8, such as part of a file's name, is escaped.
    """
    encodable = text.encode(errors="backslashreplace").decode()
    Console(stderr=on_stderr, highlight=False, soft_wrap=True).print(Text(encodable, style=style))


class OneLineErrors(TyperGroup):
    """A group of commands that shows this package's errors as one sentence for the user, and fills its help's lines."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for command in self.commands.values():
            # Typer joins the lines of the first paragraph alone; the others would break where their source does. Rich
            # would take the name of an extra in brackets for markup, and leave it out.
            command.help = escape(re.sub(r"(?<!\n)\n(?!\n)", " ", command.help or ""))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command; answer one of an earlier version, or a setting without its ``=``, with what to type."""
        if ctx.parent is None and args and args[0] in RENAMED:
            raise SettingsError(f"fdg {args[0]} is now fdg {RENAMED[args[0]]}.")
        for option, name, value in zip(args, args[1:], args[2:], strict=False):
            if option == "--set" and "=" not in name and not value.startswith("-"):
                raise SettingsError(f"--set is {name!r} and {value!r}, expected --set {name}={value}.")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; an ``FDGError``, and a path that the system refuses, end it with exit code 2."""
        try:
            return super().invoke(ctx)
        except FDGError as error:
            _say_mistake(str(error))
            raise typer.Exit(USER_MISTAKE) from error
        except typer.BadParameter as error:
            came, *known = re.findall(r"'([^']*)'", error.message) or [""]
            if near := nearest(came, known):
                error.message += f" Did you mean {near!r}?"
            raise
        except ModuleNotFoundError as error:
            if error.name not in LAB:
                raise
            _say_mistake(f"this command needs {error.name}, which is not installed: pip install 'fdg-plugins[lab]'.")
            raise typer.Exit(USER_MISTAKE) from error
        except OSError as error:
            if error.filename is None:
                raise
            # Even to ask whether a path is there fails where the user may not look, or its name is too long.
            _say_mistake(f"path {error.filename} cannot be used: {error.strerror}.")
            raise typer.Exit(USER_MISTAKE) from error


def _say_mistake(sentence: str) -> None:
    say(visible(f"Error: {' '.join(sentence.split())}"), style="red", on_stderr=True)
