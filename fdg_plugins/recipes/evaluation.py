# SPDX-License-Identifier: Apache-2.0
"""The evaluation of finished models as a FLARE recipe: its job brings their files and no code."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nvflare.recipe.spec import ExecEnv, Recipe

from fdg_plugins.controllers import EvaluationController
from fdg_plugins.controllers.evaluation import MODELS
from fdg_plugins.data import dataset_spec
from fdg_plugins.messages import TASK_CENSUS, TASK_SCORE
from fdg_plugins.plugins.own_dataset import DatasetRef, plain_dataset
from fdg_plugins.recipes.job import APPS, IN_CHUNKS, FederationJob, add_site_and_transport
from fdg_plugins.record.finished_model import FinishedModel, check_alike, check_images
from fdg_plugins.record.run_files import LAST_FILE, RESULTS_FILE
from fdg_plugins.storage import write_json, writing

SERVER_APP = APPS["server"]


class EvaluationRecipe(Recipe):
    """Finished models, evaluated at sites that never trained them.

    Args:
        models: the models, of which the first is the one that others are compared with; without any, the folders of
            finished runs are to be put into ``app_server/models/`` of the job.
        dataset: that of the sites; default: that of the models, or PACS.
        sites: names of the sites; default: one for each domain.
        name: name of the job.

    Raises:
        SettingsError: for models of different classes or tasks, or that do not take the images.
    """

    def __init__(
        self,
        models: Sequence[FinishedModel] = (),
        dataset: DatasetRef | None = None,
        sites: Sequence[str] | None = None,
        name: str = "evaluate",
    ) -> None:
        self.models = models
        given: dict[str, Any] = {"models": [one.name for one in models]} if models else {}
        if dataset is None:
            dataset = models[0].record.protocol.dataset if models else "pacs"
        elif models:
            check_images(models[0], dataset)
        if models:
            check_alike(models)
            given |= {"dataset": plain_dataset(dataset)}
        job = FederationJob(name, dataset_spec(dataset).sites if sites is None else sites, least=1)
        job.to_server(EvaluationController(**given), id="evaluation")
        add_site_and_transport(job, (TASK_CENSUS, TASK_SCORE), IN_CHUNKS)
        super().__init__(job)
        self._job: FederationJob = job

    def export(
        self,
        job_dir: str,
        server_exec_params: dict[str, Any] | None = None,
        client_exec_params: dict[str, Any] | None = None,
        env: ExecEnv | None = None,
        *,
        with_note: bool = True,
    ) -> None:
        """Write the job with its models into a folder of its name in ``job_dir``.

        ``with_note``: with the ``custom/`` folders for FLARE's simulator; a federation takes a job without them.
        """
        self._job.with_note = with_note
        super().export(str(job_dir), server_exec_params, client_exec_params, env)
        for model in self.models:
            folder = Path(job_dir, self.name, SERVER_APP, MODELS, model.name)
            with writing(folder):
                folder.mkdir(parents=True)
                shutil.copyfile(model.file, folder / LAST_FILE)
            # What the server needs of the record: not the rounds, which may take many times the size of the model.
            kept = model.record.model_copy(update={"rounds": [], "evaluations": [], "choices": [], "versions": {}})
            write_json(folder / RESULTS_FILE, kept.model_dump(mode="json"))
