# SPDX-License-Identifier: Apache-2.0
"""``fdg export``: jobs as folders, and a trained segmentation network as a MONAI bundle."""

import shlex
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from fdg_plugins.cli import options
from fdg_plugins.cli.console import group, say
from fdg_plugins.cli.jobs import export as export_copy
from fdg_plugins.cli.jobs import free_target
from fdg_plugins.errors import SettingsError, did_you_mean
from fdg_plugins.lab.engine.sources import NUMBERS_OF_SITES, check_names
from fdg_plugins.lab.sweep.jobs import base_settings
from fdg_plugins.plugins.composition import parse_method
from fdg_plugins.recipes import make_recipe
from fdg_plugins.recipes.recipe import job_recipes
from fdg_plugins.storage import writing

export = group("export", "Write jobs, or a trained model as MONAI bundle.")
OF_THE_RECIPE = ("seed", "sites", "gpus", "gpu_memory", "without_gpu")


@export.command("job")
def export_job(
    what: Annotated[str, Argument(metavar="METHOD|JOBFOLDER", help="A method, or a job folder (jobs/pacs_fedomg).")],
    to: Annotated[Path, Argument(help="The folder into which the job is written.")],
    dataset: options.DatasetOption = None,
    target: options.TargetOption = None,
    protocol: options.ProtocolOption = "paper",
    settings: options.SettingsOption = None,
    plugin: options.PluginFiles = None,
) -> None:
    """Write the job of a method for a federation; or a config-only copy of a job, without custom/ folders.

    A federation treats custom/ folders, even empty ones, as code from the submitter. With --plugin, and with --set
    model=MODULE:FACTORY, the job does bring code: a copy of each file. A job on your images brings the names of domains
    and classes, and no code.

    --set name=NAME gives the job another name. --set sites=A,B,C names the sites if they are not called after their
    domains; fdg kit site tells each its domain. --set gpus=1 is for jobs that need GPUs, with gpu_memory=GIB, and
    without_gpu=SITE,SITE for sites that need none.

    Examples:

      fdg export job jobs/pacs_fedomg /tmp/jobs
      fdg export job fedomg /tmp/jobs --target sketch --set rounds=100 --set kappa=0.25
      fdg export job fedomg /tmp/jobs --set sites=site-1,site-2,site-3,site-4 --set gpus=1
    """
    values = options.read_values(settings, lists=("sites", "without_gpu"))
    name = values.pop("name", None)
    if "/" in what or Path(what).is_dir():
        if values or plugin or dataset or target or protocol != "paper":
            raise SettingsError(f"{what} is a job folder, which is copied: expected no option but --set name=NAME.")
        say(f"{export_copy(Path(what), to, name)}: written; it brings no code")
        return
    options.load_plugins(plugin)
    pooled = options.choose_data(dataset, None).dataset or "pacs"
    of_recipe: dict[str, Any] = {"name": name} | ({} if target is None else {"target": target})
    of_recipe |= {key: values.pop(key) for key in OF_THE_RECIPE if key in values}
    check_names(values)
    of_protocol = base_settings(protocol, pooled, parse_method(what).name)
    if named := of_recipe.get("sites"):  # they are as many as are named, or a number
        of_recipe["sites"] = int(named[0]) if len(named) == 1 and named[0].isdecimal() else named
        of_protocol = {key: value for key, value in of_protocol.items() if key not in NUMBERS_OF_SITES}
    values = of_protocol | values
    with options.brought_networks(values) as networks:
        recipe = make_recipe(what, pooled, plugins=[*(plugin or []), *networks], **values, **of_recipe)
        folder = free_target(to, recipe.name)
        with writing(folder):
            brought = recipe.export_for_submission(to)
    say(f"{folder}: written; it brings {'the code of ' + ', '.join(brought) if brought else 'no code'}")


@export.command("jobs")
def export_jobs(
    to: Annotated[Path, Argument(help="The folder into which the jobs are written, each in its folder.")],
    names: Annotated[list[str] | None, Argument(metavar="[NAME]...", help="Jobs by name; default: all.")] = None,
) -> None:
    """Write the jobs that belong to this package, for the simulator and for editing; nothing is overwritten.

    A federation wants jobs without custom/ folders, which fdg export job makes from them.
    """
    recipes = job_recipes()
    wanted = names or list(recipes)
    for name in wanted:
        if name not in recipes:
            raise SettingsError(f"there is no job {name!r}; {did_you_mean(name, recipes)}")
        free_target(to, name)
    with writing(to):
        for name in wanted:
            recipes[name].export(str(to))
    say(f"jobs written to {to}: {', '.join(wanted)}")
    say(f"next: nvflare simulator {shlex.quote(str(to / wanted[0]))}")


@export.command("bundle")
def export_bundle(
    run: Annotated[Path, Argument(help="The folder of one finished run, or its results.json.")],
    to: Annotated[Path, Argument(help="The new folder of the bundle.")],
    nifti: Annotated[bool, Option("--nifti", help="Images in two dimensions are NIfTI files, too.")] = False,
    plugin: options.PluginFiles = None,
) -> None:
    """Write a MONAI bundle for inference: metadata.json, inference.json and the weights.

    The weights are those that were selected on source validation. The bundle runs with MONAI alone
    (pip install "monai[fire,nibabel,pillow]"). No command reads a bundle, because its expressions are code.

    Examples:

      fdg export bundle runs/fedomg-vessels-hrf-seed0 bundles/vessels
      cd bundles/vessels && python -m monai.bundle run --config_file configs/inference.json --dataset_dir IMAGES
    """
    from fdg_plugins.cli.report import runs_below  # jobs are written without the packages of an analysis
    from fdg_plugins.lab.analysis.bundle import write_bundle

    options.load_plugins(plugin)
    runs = runs_below([run])
    if len(runs) > 1:
        raise SettingsError(f"there are {len(runs)} finished runs below {run}, expected the folder of one.")
    say(f"{write_bundle(runs[0], to, nifti=nifti)}: written")
