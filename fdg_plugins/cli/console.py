# SPDX-License-Identifier: Apache-2.0
"""What all commands share: lines printed verbatim, errors in one sentence, names of earlier versions."""

import re
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
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
    "sweep --engine": "fdg run --engine simulator gives the same bits",
    "--no-retry-failed": "what failed is tried again",
    "--verbose": "FOLDER/runs has a folder for every run",
    "resume --at-once": "as many sites as before compute at a time",
    "--detach": "fdg export job, then nvflare job submit",
    "--details": "--csv FILE has every tensor and every value",
    "--round": "--csv FILE has the round of every answer",
    "--format": "the suffix of --to decides: .txt, .md, .csv or .tex",
    "--digits": "percentages have one decimal, numbers in CSV all",
    "--width": "figures are as wide as a column, and PDFs scale",
    "--title": "edit the figure",
    "--ledger": LAST,
    "list --data-root": "FDG_DATA_ROOT names it",
    "--json": "the text says the same",
    "--link": "copying is the only way",
    "--images": "fdg data check decodes every image",
    "--images-per-class": "the number of drawings is fixed",
    "--selection": "the model selected on source validation is written",
    "--keep-flare-defaults": "add those that a job of yours needs to class_allow_list by hand",
    "allow --dry-run": "the command says what it adds and removes",
    "--older-than": "what has changed within a day is kept",
}


def say(text: str, style: str = "", on_stderr: bool = False) -> None:
    """Print one line verbatim: without interpreting markup or wrapping at the terminal's width.

    What cannot be encoded in UTF-8, such as part of a file's name, is escaped.
    """
    encodable = text.encode(errors="backslashreplace").decode()
    Console(stderr=on_stderr, highlight=False, soft_wrap=True).print(Text(encodable, style=style))


def warn(text: str) -> None:
    """Print a warning on stderr."""
    say(f"Warning: {text}", "yellow", on_stderr=True)


class OneLineErrors(TyperGroup):
    """A group of commands that shows this package's errors as one sentence for the user, and fills its help's lines."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for command in self.commands.values():
            # Typer joins the lines of the first paragraph alone; the others would break where their source does. Rich
            # would take the name of an extra in brackets for markup, and leave it out.
            command.help = escape(re.sub(r"(?<!\n)\n(?!\n)", " ", command.help or ""))

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


def _renewed(command: Any, words: list[str]) -> list[str]:
    """Return a command's words with the options of 0.2.0 in their present form; raise ``SettingsError`` for others."""
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    first: list[str] = []
    kept: list[str] = []
    last: list[str] = []
    rest = iter(words)
    for word in rest:
        option, equals, text = word.partition("=")
        now = FORMER_OPTIONS.get(f"{command.name} {option}", FORMER_OPTIONS.get(option))
        if now is None or option in known:
            kept.append(word)
            continue
        if now not in (FIRST, LAST, SET) or (now == SET and SET not in known):
            raise SettingsError(f"{option} is no option of fdg {command.name} any more: {now}.")
        value = text if equals else next(rest, "")
        if now == SET:
            kept += [SET, f"{option[2:].replace('-', '_')}={value}"]
        else:
            (first if now == FIRST else last).append(value)
        say(f"Note: the value of {option} is now that of {now}.", "yellow", on_stderr=True)
    return [*first, *kept, *last]


def _say_mistake(sentence: str) -> None:
    say(visible(f"Error: {' '.join(sentence.split())}"), style="red", on_stderr=True)
