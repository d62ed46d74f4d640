# SPDX-License-Identifier: Apache-2.0
"""``fdg export``: jobs and models as files."""

import typer

from fdg_plugins.cli.console import OneLineErrors
from fdg_plugins.cli.export_bundle import export_bundle
from fdg_plugins.cli.export_job import export_job
from fdg_plugins.cli.write_jobs import jobs

export_app = typer.Typer(
    name="export",
    cls=OneLineErrors,
    help="Write jobs, or a trained model as MONAI bundle.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
export_app.command("job")(export_job)
export_app.command("jobs")(jobs)
export_app.command("bundle")(export_bundle)
