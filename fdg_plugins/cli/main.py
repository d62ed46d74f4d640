# SPDX-License-Identifier: Apache-2.0
"""The entry point of ``fdg``. Commands load torch and FLARE only when they run, so help appears at once."""

from typing import Annotated

import typer

from fdg_plugins.cli.allow_list import allow_list
from fdg_plugins.cli.audit import audit
from fdg_plugins.cli.centralised import centralised
from fdg_plugins.cli.clean import clean
from fdg_plugins.cli.console import OneLineErrors, say
from fdg_plugins.cli.data import data_app
from fdg_plugins.cli.doctor import doctor
from fdg_plugins.cli.explain import explain
from fdg_plugins.cli.export_bundle import export_bundle
from fdg_plugins.cli.export_job import export_job
from fdg_plugins.cli.harden import harden
from fdg_plugins.cli.plot import plot
from fdg_plugins.cli.poc import poc_app
from fdg_plugins.cli.privacy import privacy
from fdg_plugins.cli.report import report
from fdg_plugins.cli.resume import resume
from fdg_plugins.cli.run import run
from fdg_plugins.cli.site_config import site_config
from fdg_plugins.cli.submit import submit
from fdg_plugins.cli.sweep import sweep
from fdg_plugins.cli.write_jobs import jobs
from fdg_plugins.versions import OF_AUDIT, installed_versions

START = "To begin with"
EXPERIMENTS = "Experiments"
FEDERATION = "A real federation"

app = typer.Typer(
    name="fdg",
    cls=OneLineErrors,
    help="Federated domain generalization on NVIDIA FLARE: what people do before, around and after runs.\n\n"
    "A researcher prepares data (fdg data), runs a method (fdg run), methods on every held-out domain (fdg sweep) and "
    "references on pooled data (fdg centralised), and reads the paper's table (fdg report) and figures (fdg plot). "
    "A federation on one machine tries the real thing (fdg poc). "
    "A site's operator allows the components once (fdg allow-list), says where its images are (fdg site-config), "
    "reads what has left the site (fdg audit), plans and reads its privacy budget (fdg privacy), and removes what runs "
    "that broke off have left (fdg clean); a lead submits jobs that bring no code (fdg submit; or fdg export-job, "
    "then nvflare job submit), and goes on with runs that broke off (fdg resume).",
    epilog="Exit codes: 0 done, 1 something that was asked for did not succeed (a job or run that failed, a problem "
    "that was found), 2 the request cannot be carried out as given; one line on stderr says why; 130 it was "
    "stopped.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _show_version(asked: bool) -> None:
    if asked:
        say(", ".join(f"{name} {version}" for name, version in installed_versions(OF_AUDIT).items()))
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the versions, and exit.")
    ] = False,
) -> None:
    """Take the options of ``fdg`` itself."""


app.command("doctor", rich_help_panel=START)(doctor)
app.command("explain", rich_help_panel=START)(explain)
app.add_typer(data_app, name="data", rich_help_panel=START)
app.command("run", rich_help_panel=START)(run)
app.command("jobs", rich_help_panel=START)(jobs)
app.command("sweep", rich_help_panel=EXPERIMENTS)(sweep)
app.command("centralised", rich_help_panel=EXPERIMENTS)(centralised)
app.command("report", rich_help_panel=EXPERIMENTS)(report)
app.command("plot", rich_help_panel=EXPERIMENTS)(plot)
app.command("export-bundle", rich_help_panel=EXPERIMENTS)(export_bundle)
app.add_typer(poc_app, name="poc", rich_help_panel=FEDERATION)
app.command("allow-list", rich_help_panel=FEDERATION)(allow_list)
app.command("harden", rich_help_panel=FEDERATION)(harden)
app.command("site-config", rich_help_panel=FEDERATION)(site_config)
app.command("audit", rich_help_panel=FEDERATION)(audit)
app.command("export-job", rich_help_panel=FEDERATION)(export_job)
app.command("submit", rich_help_panel=FEDERATION)(submit)
app.command("resume", rich_help_panel=FEDERATION)(resume)
app.command("privacy", rich_help_panel=FEDERATION)(privacy)
app.command("clean", rich_help_panel=FEDERATION)(clean)
