# SPDX-License-Identifier: Apache-2.0
"""``fdg doctor``: check whether this machine is ready for a run, with advice; and how findings are shown."""

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from rich.text import Text
from typer import Argument

from fdg_plugins.cli.console import FAILED, make_table, say, show
from fdg_plugins.errors import counted, visible
from fdg_plugins.lab.doctor.finding import Finding, Status

STYLES = {Status.OK: "green", Status.WARNING: "yellow", Status.PROBLEM: "bold red"}


def doctor(
    dataset: Annotated[Path | None, Argument(metavar="[DIR|FILE.toml]", help="Your images.")] = None,
) -> int:
    """Check this machine, and say how to start a run here.

    Every line is ok, a warning (a run may be slow, or not be what you expect) or a problem (a run fails). The last line
    says how to start the simulator here. Nothing is changed, downloaded or sent. Exit codes: 0 no problem, 1 at least
    one.

    Examples:

      FDG_DATA_ROOT=/data fdg doctor
      fdg doctor photos
    """
    from fdg_plugins.lab.doctor.machine import examine  # a site's kit is checked without it

    findings, sites, command = examine(os.environ, dataset)
    return show_findings(findings, f"\nfor {counted(sites, 'site')}:\n  {visible(command)}")


def show_findings(findings: Sequence[Finding], advice: str = "") -> int:
    """Print what was found, and the advice on it; return the exit code, 1 for a problem."""
    rows = ((Text(finding.status, style=STYLES[finding.status]), finding.check, finding.text) for finding in findings)
    show(make_table(("", "", ""), rows))
    counts = Counter(finding.status for finding in findings)
    told = [counted(counts[word], word) for word in (Status.PROBLEM, Status.WARNING) if counts[word]]
    say(f"\n{' and '.join(told) or 'all is well'}{advice and chr(10) + advice}")
    return FAILED if counts[Status.PROBLEM] else 0
