# SPDX-License-Identifier: Apache-2.0
"""What all commands share: lines and tables on stdout, errors in one sentence, names of earlier versions."""

import re
from collections.abc import Iterable, Sequence
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
# The options of 0.2.0 that a command has no more, for this version alone: what takes their value now, or what to do.
FIRST, LAST, SET = "the first argument", "the last argument", "--set"
FORMER_OPTIONS = {
    "--kit": LAST,
    "--to": LAST,
    "--from": LAST,
    "--folder": LAST,
    "jobs --to": FIRST,
    "--method": FIRST,
    "--model": SET,
    "--seed": SET,
    "--sites": SET,
    "--part": SET,
    "--role": SET,
    "--device": SET,
    "--dataset-file": SET,
    "--gpus": SET,
    "--gpu-memory": SET,
    "--without-gpu": SET,
    "--name": SET,
    "--at-once": SET,
    "doctor --data": LAST,
    "doctor --sites": "the domains of the folder that is named are the sites",
    "start --gpus": "fdg kit site KIT --set gpus=N lends those of one site",
    "start --gpu-memory": "fdg kit site KIT --set gpu_memory=GIB lends those of one site",
    "start --site-data": "fdg kit site KIT --data-root DIR sets that of one site",
    "--admin-port": "people use the port after --port",
    "sweep --gpus": "--parallel N uses the GPUs in CUDA_VISIBLE_DEVICES in turn",
    "sweep --engine": "fdg run --engine simulator is bit-identical",
    "--detach": "fdg export job, then nvflare job submit",
    "--details": "--csv FILE has every tensor and every value",
    "--round": "--csv FILE has the round of every answer",
    "--format": "the suffix of --to decides: .txt, .md, .csv or .tex",
    "--ledger": LAST,
    "list --data-root": "FDG_DATA_ROOT names it",
    "--images": "fdg data check decodes every image",
    "--selection": "the model selected on source validation is written",
    "--keep-flare-defaults": "add those that a job of yours needs to class_allow_list by hand",
    "allow --dry-run": "the command says what it adds and removes",
    "--older-than": "what has changed within a day is kept",
}


def say(text: str, style: str = "", on_stderr: bool = False) -> None:
    """Print one line verbatim, neither wrapped nor with markup; what cannot be encoded in UTF-8 is escaped."""
    encodable = text.encode(errors="backslashreplace").decode()
    Console(stderr=on_stderr, highlight=False, soft_wrap=True).print(Text(encodable, style=style))


def warn(text: str) -> None:
    """Print a warning on stderr."""
    say(f"Warning: {text}", "yellow", on_stderr=True)


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
        """Find the command; understand options of an earlier version, and answer its commands with what to type."""
        if ctx.parent is None and args and args[0] in RENAMED:
            raise SettingsError(f"fdg {args[0]} is now fdg {RENAMED[args[0]]}.")
        for option, setting, value in zip(args, args[1:], args[2:], strict=False):
            if option == SET and "=" not in setting and not value.startswith("-"):
                raise SettingsError(f"--set is {setting!r} and {value!r}, expected --set {setting}={value}.")
        name, command, rest = super().resolve_command(ctx, args)
        return name, command, rest if command is None or isinstance(command, TyperGroup) else _renewed(command, rest)

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


def _renewed(command: Any, words: list[str]) -> list[str]:
    """Return a command's words with the options of 0.2.0 in their present form; raise ``SettingsError`` for others."""
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    found: dict[str, list[str]] = {FIRST: [], SET: [], LAST: []}
    rest = iter(words)
    for word in rest:
        option, equals, text = word.partition("=")
        now = FORMER_OPTIONS.get(f"{command.name} {option}", FORMER_OPTIONS.get(option))
        if now is None or option in known:
            found[SET].append(word)
            continue
        if now not in found or (now == SET and SET not in known):
            raise SettingsError(f"{option} is no option of fdg {command.name} any more: {now}.")
        value = text if equals else next(rest, "")
        found[now] += [SET, f"{option[2:].replace('-', '_')}={value}"] if now == SET else [value]
        say(f"Note: the value of {option} is now that of {now}.", "yellow", on_stderr=True)
    return [*found[FIRST], *found[SET], *found[LAST]]


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
