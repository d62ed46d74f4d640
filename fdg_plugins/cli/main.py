# SPDX-License-Identifier: Apache-2.0
"""The command ``fdg``: its subcommands, and what they have in common."""

import sys
from io import TextIOWrapper
from typing import Annotated

import typer

from fdg_plugins.cli.audit import audit
from fdg_plugins.cli.console import OneLineErrors, say
from fdg_plugins.cli.data import data_app
from fdg_plugins.cli.doctor import doctor
from fdg_plugins.cli.explain import explain
from fdg_plugins.cli.export import export_app
from fdg_plugins.cli.kit import kit_app
from fdg_plugins.cli.plot import plot
from fdg_plugins.cli.poc import poc_app
from fdg_plugins.cli.privacy import privacy
from fdg_plugins.cli.report import report
from fdg_plugins.cli.resume import resume
from fdg_plugins.cli.run import run
from fdg_plugins.cli.submit import submit
from fdg_plugins.cli.sweep import sweep

START = "To begin with"
EXPERIMENTS = "Experiments"
FEDERATION = "A real federation"

app = typer.Typer(
    name="fdg",
    cls=OneLineErrors,
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
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the versions, and exit.")
    ] = False,
) -> None:
    """Take the options of ``fdg`` itself; what the output's encoding lacks is escaped."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


for panel, command in (
    (START, doctor),
    (START, explain),
    (START, run),
    (EXPERIMENTS, sweep),
    (EXPERIMENTS, report),
    (EXPERIMENTS, plot),
    (FEDERATION, submit),
    (FEDERATION, resume),
    (FEDERATION, audit),
    (FEDERATION, privacy),
):
    app.command(rich_help_panel=panel)(command)
app.add_typer(data_app, name="data", rich_help_panel=START)
app.add_typer(export_app, name="export", rich_help_panel=EXPERIMENTS)
app.add_typer(poc_app, name="poc", rich_help_panel=FEDERATION)
app.add_typer(kit_app, name="kit", rich_help_panel=FEDERATION)
