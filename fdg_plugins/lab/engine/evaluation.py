# SPDX-License-Identifier: Apache-2.0
"""Finished models evaluated on this machine: which domains they are new to, and the job of a federation here."""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pydantic

from fdg_plugins.data import SharedDomains, dataset_spec, find_data_root
from fdg_plugins.data.own_folder import OwnData, own_data
from fdg_plugins.errors import DataError, SettingsError, first_problem
from fdg_plugins.executors.work import SiteWork
from fdg_plugins.lab.engine.local_job import OneProcessJob
from fdg_plugins.plugins.own_dataset import DatasetRef, OwnDataset, plain_dataset, read_own_dataset
from fdg_plugins.recipes.evaluation import EvaluationRecipe
from fdg_plugins.record.evaluation import EvaluationResult
from fdg_plugins.record.finished_model import FinishedModel
from fdg_plugins.record.run_files import EVALUATION_FILE, SIMULATOR_FOLDER
from fdg_plugins.settings.site_config import FILE_NAME
from fdg_plugins.storage import named_path, read_json, write_json


class Images(NamedTuple):
    """The data set on which models are evaluated, the domains that are here, and what each site's config says.

    ``own``: the data set of the user's own, None for one by name.
    """

    dataset: DatasetRef
    domains: tuple[str, ...]
    entry: dict[str, Any]
    own: OwnData | None = None


def find_images(data: Path | None, model: FinishedModel) -> Images:
    """Return the images in ``data``: a data root with the model's data set, or folders ``<domain>/<class>/<image>``.

    None: where ``FDG_DATA_ROOT`` says, else the stand-in. Raises ``SettingsError`` for a class that the model lacks.
    """
    record = model.record
    spec = dataset_spec(record.protocol.dataset)
    if data is None or (not spec.described and (data / spec.folder).is_dir()):
        entry = {} if data is None else {"data_root": str(data.absolute())}
        return Images(record.protocol.dataset, spec.domains, entry)
    found = own_data(data, None, sorted({reply.domain for reply in record.census.values()}))
    entry = {"data_root": str(found.root)} | ({} if found.file is None else {"dataset_file": str(found.file)})
    here = tuple(domain for domain in found.dataset.domains if (found.root / domain).is_dir())
    return Images(_with_classes(found.dataset, model), here, entry, found)


def _with_classes(dataset: OwnDataset, model: FinishedModel) -> OwnDataset:
    """Return the description with the model's classes in their order; a site need not have images of each."""
    if unknown := sorted({*dataset.classes} - {*model.record.classes}):
        expected = f"classes of the model: {', '.join(model.record.classes)}"
        raise SettingsError(field=f"classes of {dataset.name}", value=unknown, expected=expected)
    if dataset.task == "segmentation":  # whose mask values are in the order of its classes
        return dataset
    return read_own_dataset({**plain_dataset(dataset), "classes": model.record.classes})


def new_sites(
    models: Sequence[FinishedModel], images: Images, environment: Mapping[str, str]
) -> dict[str, dict[str, Any]]:
    """Return the config of a site for each domain on which no model was trained, by the name of the site.

    Raises ``SettingsError`` if there is none.
    """
    roots = [named_path(name, environment) for name in ("FDG_DATA_ROOT", "FDG_CACHE")]
    root = Path(images.entry["data_root"]) if images.entry else roots[0]
    stand_in = find_data_root(images.dataset, root, roots[1]).stand_in
    spec = dataset_spec(images.dataset)
    new = [
        one for one in images.domains if not any(m.trained_on(images.dataset, one, stand_in=stand_in) for m in models)
    ]
    if not new:
        raise SettingsError(
            field="domains", value=images.domains, expected="one on which none of the models was trained"
        )
    # Nothing leaves this machine, so no histogram is withheld.
    return {spec.site_of(domain): {**images.entry, "domain": domain, "least_count": 1} for domain in new}


def evaluate_here(recipe: EvaluationRecipe, sites: Mapping[str, Mapping[str, Any]], to: Path) -> EvaluationResult:
    """Carry out the recipe's job in this process, and return the result, which is then in the folder ``to``.

    Raises ``DataError`` if the job fails; its log says why.
    """
    with tempfile.TemporaryDirectory(prefix=".evaluate.", dir=to) as place:
        workspace = Path(place) / "workspace"
        recipe.export(place)
        write_json(workspace / "local" / FILE_NAME, sites)
        OneProcessJob(Path(place) / recipe.name, workspace, SiteWork(SharedDomains())).run()
        left = workspace / SIMULATOR_FOLDER / EVALUATION_FILE
        if not left.is_file():
            raise DataError("the evaluation failed, for the reason in the lines above.")
        left.replace(to / EVALUATION_FILE)
    return read_result(to / EVALUATION_FILE)


def read_result(file: Path) -> EvaluationResult:
    """Return the result in a file; raise ``DataError`` if it is not what the job ``evaluate`` writes."""
    try:
        return EvaluationResult.model_validate(read_json(file))
    except pydantic.ValidationError as error:
        raise DataError(f"file {file}: {first_problem(error)}") from error
