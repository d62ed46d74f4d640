# SPDX-License-Identifier: Apache-2.0
"""Finished models evaluated on this machine: the domains that are new to them, and the job in one process."""

import os
import tempfile
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from fdg_plugins.data import SharedDomains, dataset_spec, find_data_root
from fdg_plugins.data.own_files import OwnData, own_data
from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.executors.work import SiteWork
from fdg_plugins.lab.engine.one_process import OneProcessJob
from fdg_plugins.lab.sweep.run import make_folder
from fdg_plugins.plugins.own_dataset import DatasetRef, plain_dataset, read_own_dataset
from fdg_plugins.recipes.job import EvaluationRecipe
from fdg_plugins.record.evaluation import EvaluationResult, FinishedModel
from fdg_plugins.record.run_files import EVALUATION_FILE, SIMULATOR_FOLDER
from fdg_plugins.settings.site_config import FILE_NAME
from fdg_plugins.storage import named_path, read_json, write_json


class Images(NamedTuple):
    """The data set on which models are evaluated, its domains here, their root, and the user's own data set if any."""

    dataset: DatasetRef
    domains: tuple[str, ...]
    root: Path | None
    own: OwnData | None = None


def find_images(data: Path | None, model: FinishedModel) -> Images:
    """Return the images in ``data``: a data root with the model's data set, or folders ``<domain>/<class>/<image>``.

    None: where ``FDG_DATA_ROOT`` says, else the stand-in. Of your own images, the classes are the model's, of which a
    site may lack some; another one raises ``SettingsError``.
    """
    record = model.record
    spec = dataset_spec(record.protocol.dataset)
    if data is None or (not spec.described and (data / spec.folder).is_dir()):
        root = named_path("FDG_DATA_ROOT", os.environ) if data is None else data.absolute()
        return Images(record.protocol.dataset, spec.domains, root)
    own = own_data(data, fewest=1)
    described, dataset = plain_dataset(own.dataset), own.dataset
    if unknown := sorted({*dataset.classes} - {*record.classes}):
        expected = f"classes of the model: {', '.join(record.classes)}"
        raise SettingsError(field=f"classes of {dataset.name}", value=unknown, expected=expected)
    if dataset.task != "segmentation":  # whose mask values are in the order of its classes
        dataset = read_own_dataset({**described, "classes": record.classes})
    return Images(dataset, tuple(one for one in dataset.domains if (own.root / one).is_dir()), own.root, own)


def evaluate_here(models: Sequence[FinishedModel], images: Images, to: Path | None) -> Path:
    """Evaluate ``models`` on the domains that none was trained on, as a job in this process; return the result's file.

    It is in ``to``, or in a new folder in ``runs/``. Raises ``SettingsError`` if there is no such domain, ``DataError``
    if the job fails; its log says why.
    """
    dataset, spec = images.dataset, dataset_spec(images.dataset)
    stand_in = find_data_root(dataset, images.root, named_path("FDG_CACHE", os.environ)).stand_in
    trained = {one for one in images.domains for model in models if model.trained_on(dataset, one, stand_in=stand_in)}
    place: dict[str, Any] = {"data_root": str(images.root)} if images.root else {}
    place |= {"dataset_file": str(images.own.file)} if images.own and images.own.file else {}
    sites = {spec.site_of(one): {**place, "domain": one} for one in images.domains if one not in trained}
    if not sites:
        raise SettingsError(
            field="domains", value=images.domains, expected="one on which none of the models was trained"
        )
    recipe = EvaluationRecipe(models, dataset, [*sites])
    file = make_folder(to, recipe.name, datetime.now()) / EVALUATION_FILE
    with tempfile.TemporaryDirectory(prefix=".evaluate.", dir=file.parent) as folder:
        workspace = Path(folder) / "workspace"
        recipe.export(folder)
        write_json(workspace / "local" / FILE_NAME, sites)
        OneProcessJob(Path(folder) / recipe.name, workspace, SiteWork(SharedDomains())).run()
        left = workspace / SIMULATOR_FOLDER / EVALUATION_FILE
        if not left.is_file():
            raise DataError("the evaluation failed, for the reason in the lines above.")
        return left.replace(file)


def read_result(file: Path) -> EvaluationResult:
    """Return the result in a file; raise ``DataError`` if it is not what the job ``evaluate`` writes."""
    result = EvaluationResult.read(read_json(file), f"file {file}", DataError)
    names = [model.name for model in result.models]
    try:  # it may be a stranger's
        for site, own in result.sites.items():
            for name, one in own.models.items():
                result.checked(site, names.index(name), one)
    except ValueError as error:
        raise DataError(f"file {file}: {str(error).rstrip('.')}.") from error
    if not result.models:
        raise DataError(field=f"models of file {file}", value=[], expected="at least one")
    return result
