# SPDX-License-Identifier: Apache-2.0
"""The entry point of ``fdg``. Commands load torch and FLARE only when they run, so that help comes at once."""

import typer

from fdg_plugins.cli.allow_list import allow_list
from fdg_plugins.cli.console import OneLineErrors
from fdg_plugins.cli.export_job import export_job
from fdg_plugins.cli.resume import resume
from fdg_plugins.cli.submit import submit

app = typer.Typer(
    name="fdg",
    cls=OneLineErrors,
    help="Federated domain generalization on NVIDIA FLARE: what operators and leads do outside a run.\n\n"
    "A site's operator allows the components once (fdg allow-list); after that a lead submits jobs that bring no "
    "code (fdg submit; or fdg export-job, then nvflare job submit), and goes on with runs that broke off (fdg resume).",
    epilog="Exit codes: 0 done, 1 a job that was followed did not complete, 2 the request cannot be carried out as "
    "given; one line on stderr says why.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("allow-list")(allow_list)
app.command("export-job")(export_job)
app.command("submit")(submit)
app.command("resume")(resume)
