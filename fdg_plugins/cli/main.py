# SPDX-License-Identifier: Apache-2.0
"""The command ``fdg``: its commands, of which each is imported when it is called or asked for help."""

import gc
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from io import TextIOWrapper
from typing import Annotated, Any

import typer
from typer import Option
from typer.core import TyperCommand

from fdg_plugins.cli.console import OneLineErrors, in_lines, say

START, EXPERIMENTS, FEDERATION = "To begin with", "Experiments", "A real federation"
# Of each command: its module, which has a function or group of that name; the part of the help; what it does.
COMMANDS = {
    "doctor": (START, "Check this machine, and say how to start a run here."),
    "explain": (START, "Explain a method, or a composition of methods."),
    "run": (START, "Run a method, a reference or a job folder on this machine."),
    "data": (START, "List, prepare and check data sets."),
    "sweep": (EXPERIMENTS, "Run every method on every held-out domain, seed and setting."),
    "report": (EXPERIMENTS, "Print the table of finished runs: methods by held-out domains."),
    "plot": (EXPERIMENTS, "Make figures of finished runs, with their numbers."),
    "evaluate": (EXPERIMENTS, "Evaluate finished models on domains that they were not trained on."),
    "export": (EXPERIMENTS, "Write jobs, or a trained model as MONAI bundle."),
    "submit": (FEDERATION, "Submit a job that brings no code, and follow it to its end."),
    "resume": (FEDERATION, "Resume a run after its last complete round."),
    "audit": (FEDERATION, "Show what has left a site, with sizes and norms."),
    "poc": (FEDERATION, "Start, look at and stop a federation on this machine."),
    "kit": (FEDERATION, "Set up and check a participant's startup kit."),
}
ELSEWHERE = ("privacy",)  # shown by fdg kit, and still understood without that word


class Commands(Mapping[str, Any]):
    """The commands by name; looking one up imports its module."""

    def __getitem__(self, name: str) -> Any:
        if name not in (*COMMANDS, *ELSEWHERE):
            raise KeyError(name)
        from fdg_plugins.cli.jobs import own_arguments

        gc.disable()  # what is imported stays: to look through it again and again takes half a second
        with own_arguments():
            part = getattr(import_module(f"fdg_plugins.cli.{name}"), name)
        gc.freeze()
        gc.enable()
        if isinstance(part, typer.Typer):
            return typer.main.get_command(part)
        alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        alone.command(name)(part)
        command = typer.main.get_command(alone)
        command.help = in_lines(command.help)
        return command

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class Fdg(OneLineErrors):
    """The group of all commands, whose own help imports none of them."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = Commands()

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help of ``fdg`` itself, from the table."""
        lines = COMMANDS.items()
        self.commands = {name: TyperCommand(name, help=text, rich_help_panel=panel) for name, (panel, text) in lines}
        super().format_help(ctx, formatter)
        self.commands = Commands()


app = typer.Typer(
    name="fdg",
    cls=Fdg,
    help="Federated domain generalization on NVIDIA FLARE.",
    epilog="Exit codes: 0 done; 1 a job, run or check failed; 2 the request cannot be carried out, and one line on "
    "stderr says why; 130 stopped.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _show_version(asked: bool) -> None:
    if asked:
        from fdg_plugins.plugins.versions import OF_AUDIT, installed_versions

        say(", ".join(f"{name} {version}" for name, version in installed_versions(OF_AUDIT).items()))
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, Option("--version", callback=_show_version, is_eager=True, help="Print the versions, and exit.")
    ] = False,
) -> None:
    """Take the options of ``fdg`` itself; what the output's encoding lacks is escaped."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
