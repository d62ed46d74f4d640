# SPDX-License-Identifier: Apache-2.0
"""``fdg doctor``: check whether this machine is ready for a run, with advice; or what a startup kit permits others."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from fdg_plugins.cli.console import FAILED, say
from fdg_plugins.cli.tables import make_table, show
from fdg_plugins.errors import counted, visible
from fdg_plugins.lab.doctor.finding import Finding, worst

if TYPE_CHECKING:
    from fdg_plugins.lab.doctor.machine import Examination

STYLES = {"ok": "green", "warning": "yellow", "problem": "bold red"}


def doctor(
    dataset: Annotated[
        Path | None,
        typer.Argument(
            metavar="[DIR|FILE.toml]", help="Images of your own, whose domains are the sites.", show_default=False
        ),
    ] = None,
) -> None:
    """Check this machine, and say how to start a run here.

    Looks at versions, GPUs, precision, cores, memory, disks, data, weights, settings and ports. Every line is ok, a
    warning (a run may be slow, or not be what you expect) or a problem (a run fails). The last line says how to start
    the simulator here. Nothing is changed, downloaded or sent. A startup kit is checked by fdg kit check.

    Exit codes: 0 no problem, 1 at least one.

    Examples:

      fdg doctor

      FDG_DATA_ROOT=/data fdg doctor

      fdg doctor photos
    """
    from fdg_plugins.lab.doctor.machine import examine

    examination = examine(os.environ, None, dataset)
    show_findings(examination.findings, examination)


def show_findings(findings: Sequence[Finding], examination: "Examination | None" = None) -> None:
    """Print what was found, and the advice of an ``examination`` of this machine; exit with 1 for a problem."""
    rows = ((Text(finding.status, style=STYLES[finding.status]), finding.check, finding.text) for finding in findings)
    show(make_table(("", "", ""), rows))
    counts = [(word, sum(one.status == word for one in findings)) for word in ("problem", "warning")]
    told = [counted(number, word) for word, number in counts if number]
    say(f"\n{' and '.join(told) or 'all is well'}")
    if examination is not None:
        say(f"\nfor {counted(examination.sites, 'site')}:\n  {visible(examination.advice.command)}")
    if worst(findings) == "problem":
        raise typer.Exit(FAILED)
