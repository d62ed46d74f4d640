# SPDX-License-Identifier: Apache-2.0
"""``fdg kit``: what an operator does with a participant's startup kit."""

from pathlib import Path
from typing import Annotated

import typer

from fdg_plugins.cli.allow_list import allow_list
from fdg_plugins.cli.clean import clean
from fdg_plugins.cli.console import OneLineErrors
from fdg_plugins.cli.doctor import JsonOption, show_findings
from fdg_plugins.cli.harden import harden
from fdg_plugins.cli.site_config import site_config

kit_app = typer.Typer(
    name="kit",
    cls=OneLineErrors,
    help="Set up and check a participant's startup kit.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def check(
    kit: Annotated[Path, typer.Option(help="The startup kit of a server or site.", show_default=False)],
    as_json: JsonOption = False,
) -> None:
    """Check a kit: which classes a job may build, who may bring code, what leaves with its logs, its privacy policy.

    Also its data root, and which of its files other users of the machine can read.
    Nothing is changed. Exit codes: 0 no problem, 1 at least one.

    Examples:

      fdg kit check --kit /srv/flare/photo
    """
    from fdg_plugins.lab.doctor.kit import examine_kit

    show_findings(examine_kit(kit), as_json)


kit_app.command("allow")(allow_list)
kit_app.command("site")(site_config)
kit_app.command("harden")(harden)
kit_app.command("check")(check)
kit_app.command("clean")(clean)
