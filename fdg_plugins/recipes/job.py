# SPDX-License-Identifier: Apache-2.0
"""The FLARE jobs of this package, with one app for the server and one for all sites; and the recipe of evaluation."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nvflare.apis.job_def import ALL_SITES, SERVER_SITE_NAME
from nvflare.app_opt.tracking.tb.tb_receiver import TBAnalyticsReceiver
from nvflare.fuel.utils.validation_utils import check_job_name
from nvflare.job_config.api import FedJob, validate_target_name
from nvflare.job_config.defs import FilterType
from nvflare.job_config.fed_app_config import FedAppConfig
from nvflare.job_config.fed_job_config import FedJobConfig
from nvflare.recipe.spec import Recipe

from fdg_plugins import filters
from fdg_plugins.controllers import EvaluationController, FederationController
from fdg_plugins.data import dataset_spec
from fdg_plugins.errors import SettingsError
from fdg_plugins.executors import SiteExecutor
from fdg_plugins.flare.gpus import resource_spec
from fdg_plugins.messages import (
    TASK_CENSUS,
    TASK_EVALUATE,
    TASK_PROBE,
    TASK_SCORE,
    TASK_STATISTICS,
    TASK_TRAIN,
)
from fdg_plugins.models import NETWORKS
from fdg_plugins.plans import JobSettings
from fdg_plugins.plugins.own_dataset import DatasetRef, OwnDataset, plain_dataset, read_own_dataset
from fdg_plugins.record.evaluation import FinishedModel, check_models
from fdg_plugins.record.run_files import LAST_FILE, MODELS_FOLDER, RESULTS_FILE
from fdg_plugins.storage import write_json, writing

PACKAGE = "fdg_plugins"
APPS = {SERVER_SITE_NAME: "app_server", ALL_SITES: "app_site"}
MIN_CLIENTS = 3  # two sources, below which there is nothing to combine, and the held-out site
# How tensors are transferred: in chunks, of the size measured fastest for models of 45 MB and more; or within the
# message, if chunking takes longer than the transfer of the model itself.
IN_CHUNKS = {"tensor_download_chunk_size": 16 * 2**20}
IN_MESSAGES = {"tensor_download_chunk_size": 0}
REQUEST_INTERVAL_S = 0.02  # between a site's answer and its next task request; FLARE's 2 would dominate short rounds
MOST_REQUESTS = 500  # task requests per second, of all sites together
SERVER_PARAMETERS = {
    "dead_client_grace_period": 15,  # seconds; above the 10 between two heartbeats of a job's process
    "dead_client_check_lead_time": 5,
}
NOTE = """\
This folder holds no code. Its presence makes the job a "bring your own code" job, for which FLARE's
simulator loads components that are not on its own allow list; they come from the installed package
`fdg_plugins`.
"""


class FederationJob(FedJob):
    """A FLARE job whose components come from this package as installed at every site.

    ``with_note`` decides, at each export, whether the apps get a ``custom/`` folder that contains only a note.
    ``plugin_files`` are copied into that folder: the job then brings code.

    ``least``: the number of sites below which FLARE does not start it.

    Raises ``SettingsError`` for an invalid ``name``, or for names of ``sites`` that are invalid, empty or repeated.
    """

    def __init__(self, name: str, sites: Sequence[str], least: int = MIN_CLIENTS) -> None:
        self.sites = [] if isinstance(sites, str) else list(sites)
        try:
            check_job_name("name", name)
            for site in self.sites:
                validate_target_name(site)
        except (ValueError, TypeError) as error:
            raise SettingsError(field="name or sites", value=[name, *self.sites], expected="names for FLARE") from error
        if len({*self.sites}) < max(1, len(self.sites)) or not {*APPS}.isdisjoint(self.sites):
            raise SettingsError(field="sites", value=sites, expected="a list of names of sites, each once")
        self.with_note = True
        self.plugin_files: tuple[Path, ...] = ()
        least = min(least, len(self.sites))
        super().__init__(name=name, min_clients=least)
        self.job = _JobConfig(self, job_name=name, min_clients=least)
        self.set_app_packages([PACKAGE])

    def simulator_run(
        self, workspace: str, n_clients: int | None = None, clients: list[str] | None = None, **options: Any
    ) -> Any:
        """Run the job in FLARE's simulator, as SimEnv does, under the names of the job's sites."""
        return super().simulator_run(workspace, clients=clients or self.sites, **options)

    def ask_for_gpus(self, gpus: int, memory: float | None, without: Sequence[str]) -> None:
        """Have FLARE start the job only when all sites but ``without`` have ``gpus`` GPUs with ``memory`` GiB free."""
        spec = resource_spec(self.sites, gpus, memory, without)
        for site, need in spec.items():
            self.job.add_resource_spec(site, need)
        # Otherwise FLARE would start the job without a site that lacks a GPU, if enough others have one.
        self.job.mandatory_clients = list(spec)

    def _set_all_apps(self) -> None:
        """Pass the apps to the job's config; FLARE itself supports one app for all, or one for every single site."""
        server, site = (self._deploy_map[target].get_app_config() for target in APPS)
        for _, chain in site.task_result_filters:
            # Rounding comes last, even after filters added later: noise for privacy is rounded too.
            chain.sort(key=lambda one: isinstance(one, filters.RoundedUpdateSendFilter))
        self.job.add_fed_app(APPS[SERVER_SITE_NAME], FedAppConfig(server_app=server))
        self.job.add_fed_app(APPS[ALL_SITES], FedAppConfig(client_app=site))
        self.job.set_site_app(SERVER_SITE_NAME, APPS[SERVER_SITE_NAME])
        for name in self.sites:
            self.job.set_site_app(name, APPS[ALL_SITES])


class _JobConfig(FedJobConfig):
    """FLARE's writer of job folders, extended by the class paths that sites allow and by the note."""

    def __init__(self, owner: FederationJob, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._owner = owner

    def generate_job_config(self, job_root: str) -> None:
        """Write the job into a folder of its name; ``custom/`` has its plug-in files, or only the note."""
        super().generate_job_config(job_root)
        for folder in (Path(job_root, self.job_name, app, "custom") for app in self.fed_apps):
            for file in self._owner.plugin_files:
                folder.mkdir(exist_ok=True)
                shutil.copyfile(file, folder / file.name)
            if self._owner.with_note:
                add_note(folder)

    def _get_class_path(self, obj: Any, custom_dir: str) -> str:
        """Return the public path of a class of this package: the one that sites allow (``fdg kit allow``)."""
        path: str = super()._get_class_path(obj, custom_dir)
        package, *inner, name = path.split(".")
        return f"{package}.{inner[0]}.{name}" if package == PACKAGE else path


def add_note(folder: Path) -> None:
    """Make the ``custom/`` folder of an app, with only a note, if it has none: FLARE's simulator builds it then."""
    if not folder.exists():
        folder.mkdir()
        (folder / "README.md").write_text(NOTE, encoding="utf-8")


def add_site_and_transport(job: FederationJob, tasks: Sequence[str], transport: Mapping[str, int]) -> None:
    """Add the sites' executor for ``tasks``, and how often sites ask and how tensors travel."""
    interval = max(REQUEST_INTERVAL_S, len(job.sites) / MOST_REQUESTS)
    job.to_server({"server": {"task_request_interval": interval}, **SERVER_PARAMETERS, **transport})
    job.to_clients(SiteExecutor(), tasks=[*tasks])
    job.to_clients({**transport})


def federation_job(
    name: str, sites: Sequence[str], controller: FederationController, made: JobSettings
) -> FederationJob:
    """Return the job of a method with the filters that its settings need."""
    job, objective = FederationJob(name, sites), made.objective
    rounds_updates = made.protocol.get("update_precision") == "bfloat16"
    # FLARE can offload to files only tensors that arrive in chunks.
    in_messages = NETWORKS.get(made.protocol["model"]).small and not made.protocol.get("enable_tensor_disk_offload")
    job.to_server(controller, id="federation")
    job.to_server(TBAnalyticsReceiver(events=["analytix_log_stats"]), id="tensorboard")
    tasks = (TASK_CENSUS, TASK_STATISTICS, TASK_PROBE, TASK_TRAIN, TASK_EVALUATE)
    add_site_and_transport(job, tasks, IN_MESSAGES if in_messages else IN_CHUNKS)
    data, result, exchanges = FilterType.TASK_DATA, FilterType.TASK_RESULT, objective.report is not None
    if rounds_updates:  # the server's filter precedes all others; the sites' comes last, at each export
        job.to_server(filters.RoundedUpdateReceiveFilter(), filter_type=result, tasks=[TASK_TRAIN])
    # Sites pack last what their own privacy filters must see; the server unpacks in reverse order.
    for task in (TASK_PROBE, TASK_TRAIN) if objective.probes else (TASK_TRAIN,):
        metric = made.gap_metric if task == TASK_TRAIN else None
        if metric is not None:
            job.to_clients(filters.GapReportFilter(metric), filter_type=result, tasks=[task])
        if exchanges:
            job.to_clients(filters.ExchangeReportFilter(), filter_type=result, tasks=[task])
            job.to_server(filters.ExchangeCheckFilter(), filter_type=result, tasks=[task])
        if metric is not None:
            job.to_server(filters.GapCheckFilter(), filter_type=result, tasks=[task])
    if exchanges:
        job.to_server(filters.ExchangeSendFilter(), filter_type=data, tasks=[TASK_TRAIN])
        job.to_clients(filters.ExchangeReceiveFilter(), filter_type=data, tasks=[TASK_TRAIN])
    if rounds_updates:
        job.to_clients(filters.RoundedUpdateSendFilter(), filter_type=result, tasks=[TASK_TRAIN])
    return job


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
            folder = Path(job_dir, self.name, *MODELS_FOLDER, model.name)
            # What the server needs of the record: not the rounds, which may take many times the size of the model.
            kept = model.record.model_copy(update={"rounds": [], "evaluations": [], "choices": [], "versions": {}})
            write_json(folder / RESULTS_FILE, kept.model_dump(mode="json"))
            with writing(folder):
                shutil.copyfile(model.file, folder / LAST_FILE)
