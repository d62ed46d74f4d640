# SPDX-License-Identifier: Apache-2.0
"""``fdg export-job``: a job folder without its ``custom/`` folders, ready for ``nvflare job submit``."""

from pathlib import Path
from typing import Annotated

import typer

from fdg_plugins.cli.console import say


def export_job(
    job: Annotated[Path, typer.Argument(help="The job folder, such as jobs/pacs_fedomg.", show_default=False)],
    to: Annotated[Path, typer.Option(help="The folder into which the job's twin is written.")],
    name: Annotated[str | None, typer.Option(help="Another name for the job; default: the name of its folder.")] = None,
) -> None:
    """Write the config-only twin of a job: the same job, without custom/ folders.

    FLARE's simulator needs these folders, though they hold no code; a federation takes them, even empty, as code that
    the submitter brings, for which it then asks a right that an operator should not have to give.

    Examples:

      fdg export-job jobs/pacs_fedomg --to /tmp/jobs

      nvflare job submit -j /tmp/jobs/pacs_fedomg --startup-kit /srv/flare/lead@example.org
    """
    from fdg_plugins.cli.jobs import export

    target = export(job, to, name)
    say(f"{target}: written; it brings no code")
