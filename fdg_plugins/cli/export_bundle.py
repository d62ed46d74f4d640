# SPDX-License-Identifier: Apache-2.0
"""``fdg export bundle``: the network of a finished segmentation run as a MONAI bundle for inference."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fdg_plugins.cli.console import say
from fdg_plugins.cli.found import runs_below
from fdg_plugins.cli.plugins import PluginFiles, load_plugins
from fdg_plugins.errors import SettingsError


class BundleSelection(StrEnum):
    """The model of a run that is kept with it."""

    LAST = "last"
    SOURCE_VALIDATION = "source_validation"


def export_bundle(
    run: Annotated[Path, typer.Argument(help="The folder of one finished run, or its results.json.")],
    to: Annotated[Path, typer.Option(help="The new folder of the bundle.")],
    selection: Annotated[
        BundleSelection, typer.Option(metavar="RULE", help="Whose weights are written: last, source_validation.")
    ] = BundleSelection.SOURCE_VALIDATION,
    nifti: Annotated[
        bool, typer.Option("--nifti", help="Images in two dimensions are NIfTI files; volumes always are.")
    ] = False,
    plugin: PluginFiles = None,
) -> None:
    """Write a MONAI bundle for inference: metadata.json, inference.json and the weights.

    The bundle runs with MONAI alone (pip install "monai[fire,nibabel,pillow]"), without this package. No command
    reads a bundle, because its expressions are code.

    Examples:

      fdg export bundle runs/fedomg-vessels-hrf-seed0 --to bundles/vessels

      cd bundles/vessels && python -m monai.bundle run --config_file configs/inference.json --dataset_dir IMAGES
    """
    from fdg_plugins.lab.analysis.bundle import write_bundle

    load_plugins(plugin)
    runs = runs_below([run])
    if len(runs) > 1:
        raise SettingsError(f"there are {len(runs)} finished runs below {run}, expected the folder of one.")
    say(f"{write_bundle(runs[0], to, selection.value, nifti=nifti)}: written")
