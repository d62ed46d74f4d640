# SPDX-License-Identifier: Apache-2.0
"""The evaluation of finished models as a FLARE recipe: its job brings their files and no code."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nvflare.recipe.spec import Recipe

from fdg_plugins.controllers import EvaluationController
from fdg_plugins.controllers.evaluation import MODELS
from fdg_plugins.data import dataset_spec
from fdg_plugins.messages import TASK_CENSUS, TASK_SCORE
from fdg_plugins.plugins.own_dataset import DatasetRef, OwnDataset, plain_dataset, read_own_dataset
from fdg_plugins.recipes.job import APPS, IN_CHUNKS, FederationJob, add_site_and_transport
from fdg_plugins.record.evaluation import FinishedModel, check_models
from fdg_plugins.record.run_files import LAST_FILE, RESULTS_FILE
from fdg_plugins.storage import write_json, writing


class EvaluationRecipe(Recipe):
    """Finished models, evaluated at sites that never trained them.

    Args:
        models: the models, of which the first is the one that others are compared with; without any, the folders of
            finished runs are to be put into ``app_server/models/`` of the job.
        dataset: that of the sites.
        sites: names of the sites; default: one for each domain. In your own data set, a site of no known domain has a
            domain that is called like it.
    """

    def __init__(
        self, models: Sequence[FinishedModel] = (), dataset: DatasetRef = "pacs", sites: Sequence[str] | None = None
    ) -> None:
        known = dataset_spec(dataset).sites
        if isinstance(dataset, OwnDataset) and (new := [site for site in sites or () if site not in known]):
            dataset = read_own_dataset({**plain_dataset(dataset), "domains": [*dataset.domains, *new]})
        check_models(models, dataset)
        self.models = models
        given: dict[str, Any] = {"models": [one.name for one in models], "dataset": plain_dataset(dataset)}
        job = FederationJob("evaluate", known if sites is None else sites, least=1)
        job.to_server(EvaluationController(**(given if models else {})), id="evaluation")
        add_site_and_transport(job, (TASK_CENSUS, TASK_SCORE), IN_CHUNKS)
        super().__init__(job)
        self._job: FederationJob = job

    def export(self, job_dir: str, *arguments: Any, with_note: bool = True, **options: Any) -> None:
        """Write the job with its models into a folder of its name in ``job_dir``.

        ``with_note``: with the ``custom/`` folders for FLARE's simulator; a federation takes a job without them.
        """
        self._job.with_note = with_note
        super().export(str(job_dir), *arguments, **options)
        for model in self.models:
            folder = Path(job_dir, self.name, APPS["server"], MODELS, model.name)
            # What the server needs of the record: not the rounds, which may take many times the size of the model.
            kept = model.record.model_copy(update={"rounds": [], "evaluations": [], "choices": [], "versions": {}})
            write_json(folder / RESULTS_FILE, kept.model_dump(mode="json"))
            with writing(folder):
                shutil.copyfile(model.file, folder / LAST_FILE)
