# SPDX-License-Identifier: Apache-2.0
"""``fdg export-job``: write a job folder for ``nvflare job submit``, from an existing one or for a method by name."""

from pathlib import Path
from typing import Annotated

import typer

from fdg_plugins.cli.console import say
from fdg_plugins.cli.plugins import PluginFiles
from fdg_plugins.errors import SettingsError


def export_job(
    to: Annotated[Path, typer.Option(help="The folder into which the job is written.")],
    job: Annotated[
        Path | None, typer.Argument(help="The job folder, such as jobs/pacs_fedomg.", show_default=False)
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Another name for the job; default: that of its folder, or of its recipe.")
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="In place of a job folder: make the job of this method.", show_default=False)
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help="The data set of a job that is made.", show_default="pacs")
    ] = None,
    plugin: PluginFiles = None,
) -> None:
    """Write a config-only copy of a job, without custom/ folders; or, with --method, the job of a method by name.

    FLARE's simulator needs these folders, although they contain no code. A federation treats them, even if empty, as
    code from the submitter, and requires a right that an operator should not have to grant. With --plugin, the job
    does bring code: a copy of each file, in custom/.

    Examples:

      fdg export-job jobs/pacs_fedomg --to /tmp/jobs

      nvflare job submit -j /tmp/jobs/pacs_fedomg --startup-kit /srv/flare/lead@example.org

      fdg export-job --method clipped_fedavg --plugin custom/clipped_fedavg.py --to /tmp/jobs
    """
    if (job is None) == (method is None):
        raise SettingsError("fdg export-job needs either a job folder or --method, expected one of them.")
    if job is None:
        say(_made(str(method), dataset, to, name, plugin or []))
    else:
        say(_copied(job, dataset, to, name, plugin))


def _made(method: str, dataset: str | None, to: Path, name: str | None, plugins: list[Path]) -> str:
    """Write the job of a method, and return a description of the result."""
    from fdg_plugins.cli.jobs import export_method

    target, files = export_method(method, dataset or "pacs", to, name, plugins)
    brings = f"the code of {', '.join(files)}" if files else "no code"
    return f"{target}: written; it brings {brings}"


def _copied(job: Path, dataset: str | None, to: Path, name: str | None, plugins: list[Path] | None) -> str:
    """Write a copy of a job folder, and return a description; refuse options of a job that is made."""
    from fdg_plugins.cli.jobs import export

    if plugins or dataset:
        raise SettingsError("--plugin and --dataset are for a job that is made, expected --method with them.")
    return f"{export(job, to, name)}: written; it brings no code"
