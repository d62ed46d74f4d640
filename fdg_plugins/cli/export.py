# SPDX-License-Identifier: Apache-2.0
"""``fdg export``: jobs as folders, and a trained segmentation network as a MONAI bundle."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fdg_plugins.cli.console import OneLineErrors, say
from fdg_plugins.cli.found import runs_below
from fdg_plugins.cli.options import (
    DatasetOption,
    PluginFiles,
    ProtocolName,
    ProtocolOption,
    SettingsOption,
    TargetOption,
    brought_networks,
    choose_data,
    load_plugins,
    read_values,
)
from fdg_plugins.errors import DataError, SettingsError, did_you_mean

if TYPE_CHECKING:
    from fdg_plugins.plugins.own_dataset import DatasetRef

export_app = typer.Typer(
    name="export",
    cls=OneLineErrors,
    help="Write jobs, or a trained model as MONAI bundle.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
OF_THE_RECIPE = ("seed", "sites", "gpus", "gpu_memory", "without_gpu")


@export_app.command("job")
def export_job(
    what: Annotated[
        str,
        typer.Argument(
            metavar="METHOD|JOBFOLDER",
            help="A method by name, or a job folder, such as jobs/pacs_fedomg.",
            show_default=False,
        ),
    ],
    to: Annotated[Path, typer.Argument(help="The folder into which the job is written.", show_default=False)],
    dataset: DatasetOption = None,
    target: TargetOption = None,
    protocol: ProtocolOption = ProtocolName.PAPER,
    settings: SettingsOption = None,
    plugin: PluginFiles = None,
) -> None:
    """Write the job of a method for a federation; or a config-only copy of a job, without custom/ folders.

    FLARE's simulator needs these folders, although they contain no code. A federation treats them, even if empty, as
    code from the submitter, and requires a right that an operator should not have to grant. With --plugin, and with
    --set model=MODULE:FACTORY, the job does bring code: a copy of each file, in custom/. A job on images of your own
    brings their description, the names of domains and classes, and no code.

    --set name=NAME gives the job another name. --set sites=A,B,C names the sites if they are not called after their
    domains; fdg kit site tells each its domain. --set gpus=1 is for jobs that need GPUs, with gpu_memory=GIB, and
    without_gpu=SITE,SITE for sites that need none.

    Examples:

      fdg export job fedomg /tmp/jobs --target sketch --set rounds=100 --set kappa=0.25

      fdg export job jobs/pacs_fedomg /tmp/jobs

      nvflare job submit -j /tmp/jobs/pacs_fedomg --startup-kit /srv/flare/lead@example.org

      fdg export job fedomg /tmp/jobs --dataset photos --protocol fedomg

      fdg export job clipped_fedavg /tmp/jobs --plugin custom/clipped_fedavg.py

      fdg export job fedomg /tmp/jobs --set sites=site-1,site-2,site-3,site-4 --set gpus=1
    """
    from fdg_plugins.cli.jobs import export, export_method

    values = read_values(settings or [], lists=("sites", "without_gpu"))
    name = values.pop("name", None)
    if "/" in what or Path(what).is_dir():
        if values or plugin or dataset or target or protocol is not ProtocolName.PAPER:
            raise SettingsError(f"{what} is a job folder, which is copied: expected no option but --set name=NAME.")
        say(f"{export(Path(what), to, name)}: written; it brings no code")
        return
    load_plugins(plugin)
    pooled = choose_data(dataset, None).dataset or "pacs"
    of_recipe = {key: values.pop(key) for key in OF_THE_RECIPE if key in values}
    if target is not None:
        of_recipe["target"] = target
    checked = _with_protocol(what, pooled, protocol, values, has_sites="sites" in of_recipe)
    with brought_networks(checked) as networks:
        files = [*(plugin or []), *networks]
        folder, brought = export_method(what, pooled, to, name, files, checked | of_recipe)
    say(f"{folder}: written; it brings {'the code of ' + ', '.join(brought) if brought else 'no code'}")


def _with_protocol(
    method: str, dataset: "DatasetRef", protocol: ProtocolName, given: dict[str, Any], *, has_sites: bool
) -> dict[str, Any]:
    """Return the settings of a named protocol and those ``given``; sites that are named are as many as they are."""
    from fdg_plugins.lab.engine.sources import PER_DOMAIN, check_names, settings_of_protocol
    from fdg_plugins.plugins.composition import parse_method

    check_names(given)
    found = settings_of_protocol(protocol.value, dataset, parse_method(method).name)
    if has_sites:
        found.pop(PER_DOMAIN, None)
    return found | given


@export_app.command("jobs")
def export_jobs(
    to: Annotated[Path, typer.Argument(help="The folder into which the jobs are written, each in one of its own.")],
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...", help="Jobs by name, such as pacs_fedomg; default: all.", show_default=False
        ),
    ] = None,
) -> None:
    """Write the jobs that belong to this package, for the simulator and for editing.

    Existing folders are never overwritten. A federation wants jobs without
    custom/ folders, which fdg export job makes from them.

    Examples:

      fdg export jobs jobs

      fdg export jobs jobs pacs_fedomg vessels_fedavg
    """
    from fdg_plugins.cli.jobs import own_arguments

    with own_arguments():
        from fdg_plugins.recipes.recipe import job_recipes
    from fdg_plugins.storage import writing

    recipes = job_recipes()
    wanted = names or list(recipes)
    for name in wanted:
        if name not in recipes:
            raise SettingsError(f"there is no job {name!r}; {did_you_mean(name, recipes)}")
        if (to / name).exists():
            raise DataError(f"folder {to / name} exists already, expected one to be written.")
    with writing(to):
        for name in wanted:
            recipes[name].export(str(to))
    say(f"jobs written to {to}: {', '.join(wanted)}")
    say(f"next: nvflare simulator {shlex.quote(str(to / wanted[0]))}")


@export_app.command("bundle")
def export_bundle(
    run: Annotated[Path, typer.Argument(help="The folder of one finished run, or its results.json.")],
    to: Annotated[Path, typer.Argument(help="The new folder of the bundle.", show_default=False)],
    nifti: Annotated[
        bool, typer.Option("--nifti", help="Images in two dimensions are NIfTI files; volumes always are.")
    ] = False,
    plugin: PluginFiles = None,
) -> None:
    """Write a MONAI bundle for inference: metadata.json, inference.json and the weights.

    The weights are those that were selected on source validation. The bundle runs with MONAI alone
    (pip install "monai[fire,nibabel,pillow]"), without this package. No command reads a bundle, because its
    expressions are code.

    Examples:

      fdg export bundle runs/fedomg-vessels-hrf-seed0 bundles/vessels

      cd bundles/vessels && python -m monai.bundle run --config_file configs/inference.json --dataset_dir IMAGES
    """
    from fdg_plugins.lab.analysis.bundle import write_bundle

    load_plugins(plugin)
    runs = runs_below([run])
    if len(runs) > 1:
        raise SettingsError(f"there are {len(runs)} finished runs below {run}, expected the folder of one.")
    say(f"{write_bundle(runs[0], to, nifti=nifti)}: written")
