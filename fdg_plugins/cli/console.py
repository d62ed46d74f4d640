# SPDX-License-Identifier: Apache-2.0
"""What all commands share: lines and tables on stdout, errors in one sentence, names of earlier versions."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import typer
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from fdg_plugins.errors import FDGError, SettingsError, nearest, visible

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
SET, KIT, HELP = "--set", "--kit", "--help"


def say(text: str, style: str = "", on_stderr: bool = False) -> None:
    """Print lines, neither wrapped nor with markup; what is not printable is escaped, as a terminal would obey it."""
    printable = "\n".join(map(visible, text.split("\n")))
    Console(stderr=on_stderr, highlight=False, soft_wrap=True).print(Text(printable, style=style))


def warn(text: str) -> None:
    """Print a warning on stderr."""
    say(visible(f"Warning: {text}"), "yellow", on_stderr=True)


def show(*parts: RenderableType, width: int | None = None) -> None:
    """Print ``parts`` below each other; ``width``: columns in a pipe, by default as many as the longest row needs."""
    console = Console(highlight=False)
    if console.is_terminal:
        console.print(*parts, sep="\n")
        return
    piped = Console(highlight=False, width=width or 10_000)
    with piped.capture() as capture:
        piped.print(*parts, sep="\n")
    for line in capture.get().splitlines():
        typer.echo(line.rstrip())


def make_table(head: Sequence[str], rows: Iterable[Sequence[str | Text]], numbers: Sequence[str] = ()) -> Table:
    """Return a table without rules, its cells verbatim and whole; the columns in ``numbers`` are right-aligned.

    If all columns are unnamed, the table has no header.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_header=any(head))
    for name in head:
        table.add_column(name, justify="right" if name in numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(visible(cell)) for cell in row))
    return table


def in_lines(text: str | None) -> str:
    """Return a help's text with every paragraph but examples in one line; typer does so with the first one alone."""
    return escape(re.sub(r"(?<!\n)\n(?![\n ])", " ", text or ""))  # rich would take an extra in brackets for markup


class OneLineErrors(TyperGroup):
    """A group of commands that return their exit code; an error of this package is shown as one sentence."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for command in self.commands.values():
            command.help = in_lines(command.help)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command; answer one of an earlier version, and a setting in another form, with what to type."""
        if ctx.parent is None and args and args[0] in RENAMED:
            raise SettingsError(f"fdg {args[0]} is now fdg {RENAMED[args[0]]}.")
        name, command, words = super().resolve_command(ctx, args)
        return name, command, words if command is None or isinstance(command, TyperGroup) else _read(command, words)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; an ``FDGError``, and a path that the system refuses, end it with exit code 2."""
        try:
            if code := super().invoke(ctx):
                raise typer.Exit(code)
        except typer.BadParameter as error:
            came, *known = re.findall(r"'([^']*)'", error.message) or [""]
            if near := nearest(came, known):
                error.message += f" Did you mean {near!r}?"
            raise
        except (FDGError, ModuleNotFoundError, OSError) as error:
            match error:
                case FDGError():
                    sentence = " ".join(str(error).split())
                case ModuleNotFoundError(name=name) if name in LAB:
                    sentence = f"this command needs {name}, which is not installed: pip install 'fdg-plugins[lab]'."
                case OSError(filename=path) if path is not None:
                    # Even to ask whether a path is there fails where the user may not look, or its name is too long.
                    sentence = f"path {path} cannot be used: {error.strerror}."
                case _:
                    raise
            say(visible(f"Error: {sentence}"), style="red", on_stderr=True)
            raise typer.Exit(USER_MISTAKE) from error


def _read(command: Any, words: list[str]) -> list[str]:
    """Return a command's words, with the kit as last argument; raise ``SettingsError`` for a setting without --set."""
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    for hint in _hints(command, known, words):
        raise SettingsError(hint)
    if KIT not in words or KIT in known:
        return words
    place = words.index(KIT)  # as in 0.2.0
    return [*words[:place], *words[place + 2 :], *words[place + 1 : place + 2]]


def _hints(command: Any, known: set[str], words: list[str]) -> Iterator[str]:
    arguments = {parameter.name for parameter in command.params if parameter.param_type_name == "argument"}
    for word, value, after in zip(words, [*words[1:], ""], [*words[2:], "", ""], strict=False):
        if word == SET and "=" not in value and after and not after.startswith("-"):
            yield f"--set is {value!r} and {after!r}, expected --set {value}={after}."
        option, _, text = word.partition("=")
        if option == "--to" and "folder" in arguments and option not in known:
            yield f"there is no option --to; the folder is the argument: {text or value or 'FOLDER'}."
        if SET in known and option[:2] == "--" and option not in known and not nearest(option, (*known, HELP), 0.8):
            setting = f"{option[2:].replace('-', '_')}={text or value or 'VALUE'}"
            yield f"there is no option {option}; a setting is given as --set {setting}."


def group(name: str, about: str, epilog: str | None = None) -> typer.Typer:
    """Return a group of commands below ``fdg``."""
    return typer.Typer(
        name=name,
        cls=OneLineErrors,
        help=about,
        epilog=epilog,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
