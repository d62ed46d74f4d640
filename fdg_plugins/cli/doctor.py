# SPDX-License-Identifier: Apache-2.0
"""``fdg doctor``: check whether this machine is ready for a run, with advice; or what a startup kit permits others."""

import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from fdg_plugins.cli.console import FAILED, say
from fdg_plugins.cli.own_data import DataOption
from fdg_plugins.cli.tables import make_table, show
from fdg_plugins.lab.doctor.finding import Finding, worst
from fdg_plugins.values import counted, visible

if TYPE_CHECKING:
    from fdg_plugins.lab.doctor.machine import Examination

STYLES = {"ok": "green", "warning": "yellow", "problem": "bold red"}


JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def doctor(
    sites: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Sites of the job that is to run; default: the domains of --data, or the 4 of PACS.",
            show_default=False,
        ),
    ] = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check this machine, and say how to start a run here.

    Looks at versions, GPUs, precision, cores, memory, disks, data, weights, settings and ports. Every line is ok, a
    warning (a run may be slow, or not be what you expect) or a problem (a run fails). The last line says how to start
    the simulator here. Nothing is changed, downloaded or sent. A startup kit is checked by fdg kit check.

    Exit codes: 0 no problem, 1 at least one.

    Examples:

      fdg doctor

      FDG_DATA_ROOT=/data fdg doctor --json

      fdg doctor --data photos
    """
    from fdg_plugins.lab.doctor.machine import examine

    examination = examine(os.environ, sites, data)
    show_findings(examination.findings, as_json, examination)


def show_findings(findings: Sequence[Finding], as_json: bool, examination: "Examination | None" = None) -> None:
    """Print what was found, and the advice of an ``examination`` of this machine; exit with 1 for a problem."""
    status = worst(findings)
    if as_json:
        content = {"status": str(status), "findings": [finding._asdict() for finding in findings]}
        typer.echo(json.dumps(content | _advice(examination), indent=1))
    else:
        _show(findings)
        _recommend(examination)
    if status == "problem":
        raise typer.Exit(FAILED)


def _advice(examination: "Examination | None") -> dict[str, object]:
    if examination is None:
        return {}
    advice = examination.advice
    renamed = {"threads": "FDG_THREADS", "workers": "FDG_WORKERS"}
    values = {renamed.get(name, name): value for name, value in advice._asdict().items()}
    return {"advice": {"sites": examination.sites, "command": advice.command, **values}}


def _show(findings: "Sequence[Finding]") -> None:
    rows = ((Text(finding.status, style=STYLES[finding.status]), finding.check, finding.text) for finding in findings)
    show(make_table(("", "", ""), rows))
    counts = [(word, sum(one.status == word for one in findings)) for word in ("problem", "warning")]
    told = [counted(number, word) for word, number in counts if number]
    say(f"\n{' and '.join(told) or 'all is well'}")


def _recommend(examination: "Examination | None") -> None:
    if examination is None:
        return
    say(f"\nfor {counted(examination.sites, 'site')}:")
    say(f"  {visible(examination.advice.command)}")
