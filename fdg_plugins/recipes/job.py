# SPDX-License-Identifier: Apache-2.0
"""The FLARE job of this package: a FedJob with one app for the server and one for all sites."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nvflare.apis.job_def import ALL_SITES, SERVER_SITE_NAME
from nvflare.app_opt.tracking.tb.tb_receiver import TBAnalyticsReceiver
from nvflare.fuel.utils.validation_utils import check_job_name
from nvflare.job_config.api import FedJob, validate_target_name
from nvflare.job_config.defs import FilterType
from nvflare.job_config.fed_app_config import FedAppConfig
from nvflare.job_config.fed_job_config import FedJobConfig

from fdg_plugins.controllers import FederationController
from fdg_plugins.errors import SettingsError
from fdg_plugins.executors import SiteExecutor
from fdg_plugins.filters import (
    ExchangeCheckFilter,
    ExchangeReceiveFilter,
    ExchangeReportFilter,
    ExchangeSendFilter,
    RoundedUpdateReceiveFilter,
    RoundedUpdateSendFilter,
)
from fdg_plugins.filters.gap import GapFilters
from fdg_plugins.flare.gpus import resource_spec
from fdg_plugins.messages import TASK_CENSUS, TASK_EVALUATE, TASK_PROBE, TASK_STATISTICS, TASK_TRAIN
from fdg_plugins.objectives import Objective

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

    Args:
        name: the job's name, also the name of its folder: letters, digits, ``.``, ``_`` and ``-``.
        sites: the names of the job's sites.

    Raises:
        SettingsError: for an invalid name, or for site names that are invalid, empty or repeated.
    """

    def __init__(self, name: str, sites: Sequence[str]) -> None:
        try:
            check_job_name("name", name)
        except (ValueError, TypeError) as error:
            raise SettingsError(field="name", value=name, expected="letters, digits, '.', '_' and '-'") from error
        self.sites = _checked_sites(sites)
        self.with_note = True
        self.plugin_files: tuple[Path, ...] = ()
        least = min(MIN_CLIENTS, len(self.sites))
        super().__init__(name=name, min_clients=least)
        self.job = _JobConfig(self, job_name=name, min_clients=least)
        self.set_app_packages([PACKAGE])

    def simulator_run(
        self, workspace: str, n_clients: int | None = None, clients: list[str] | None = None, **options: Any
    ) -> Any:
        """Run the job in FLARE's simulator, as SimEnv does, under the names of the job's sites."""
        names = list(self.sites if clients is None else clients)
        if not {*names} <= {*self.sites} or (clients is None and n_clients != len(self.sites)):
            raise SettingsError(
                field="SimEnv's clients", value=clients or n_clients, expected=f"sites of job {self.name}: {self.sites}"
            )
        return super().simulator_run(workspace, clients=names, **options)

    def ask_for_gpus(self, gpus: int, memory: float | None, without: Sequence[str]) -> None:
        """Have FLARE start the job only when all sites but ``without`` have ``gpus`` GPUs, ``memory`` GiB free of each.

        Raises ``SettingsError`` as :func:`~fdg_plugins.flare.gpus.resource_spec` does.
        """
        spec = resource_spec(self.sites, gpus, memory, without)
        for site, need in spec.items():
            self.job.add_resource_spec(site, need)
        # Otherwise FLARE would start the job without a site that lacks a GPU, if enough others have one.
        self.job.mandatory_clients = list(spec)

    def _set_all_apps(self) -> None:
        """Pass the apps to the job's config; FLARE itself supports one app for all, or one for every single site."""
        server, site = (self._deploy_map[target].get_app_config() for target in APPS)
        for _, filters in site.task_result_filters:
            # Rounding comes last, even after filters added later: noise for privacy is rounded too.
            filters.sort(key=lambda one: isinstance(one, RoundedUpdateSendFilter))
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
        """Write the job into a folder of its name in ``job_root``, replacing an earlier one."""
        super().generate_job_config(job_root)
        for app in self.fed_apps:
            self._add_custom(Path(job_root, self.job_name, app, "custom"))

    def _add_custom(self, folder: Path) -> None:
        """Give an app its ``custom/`` folder, if it needs one: with the plug-in files, or only with the note."""
        for file in self._owner.plugin_files:
            folder.mkdir(exist_ok=True)
            shutil.copyfile(file, folder / file.name)
        if self._owner.with_note and not self._owner.plugin_files:
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


def federation_job(
    name: str,
    sites: Sequence[str],
    controller: FederationController,
    objective: Objective,
    gap: GapFilters | None,
    rounds_updates: bool = False,
    in_messages: bool = False,
) -> FederationJob:
    """Return the job of a method; ``gap``: the filters of gaps, None if the weighting needs none from the sites.

    ``rounds_updates``: send updates as bfloat16. ``in_messages``: send models within messages instead of in chunks.
    """
    job = FederationJob(name, sites)
    job.to_server(controller, id="federation")
    job.to_server(TBAnalyticsReceiver(events=["analytix_log_stats"]), id="tensorboard")
    transport = IN_MESSAGES if in_messages else IN_CHUNKS
    interval = max(REQUEST_INTERVAL_S, len(job.sites) / MOST_REQUESTS)
    job.to_server({"server": {"task_request_interval": interval}, **SERVER_PARAMETERS, **transport})
    job.to_clients(SiteExecutor(), tasks=[TASK_CENSUS, TASK_STATISTICS, TASK_PROBE, TASK_TRAIN, TASK_EVALUATE])
    job.to_clients(transport)
    if rounds_updates:  # the server's filter precedes all others; the sites' comes last, at each export
        job.to_server(RoundedUpdateReceiveFilter(), filter_type=FilterType.TASK_RESULT, tasks=[TASK_TRAIN])
    exchanges = objective.report is not None
    if objective.probes:
        _add_result_filters(job, TASK_PROBE, exchanges, None)
    _add_result_filters(job, TASK_TRAIN, exchanges, gap)
    if exchanges:
        job.to_server(ExchangeSendFilter(), filter_type=FilterType.TASK_DATA, tasks=[TASK_TRAIN])
        job.to_clients(ExchangeReceiveFilter(), filter_type=FilterType.TASK_DATA, tasks=[TASK_TRAIN])
    if rounds_updates:
        job.to_clients(RoundedUpdateSendFilter(), filter_type=FilterType.TASK_RESULT, tasks=[TASK_TRAIN])
    return job


def _add_result_filters(job: FederationJob, task: str, exchanges: bool, gap: GapFilters | None) -> None:
    """Add the filters that pack reports at the sites and, in reverse order, those that unpack them at the server.

    Reports that a site's own privacy filters must see are packed last.
    """
    if gap is not None:
        job.to_clients(gap.report, filter_type=FilterType.TASK_RESULT, tasks=[task])
    if exchanges:
        job.to_clients(ExchangeReportFilter(), filter_type=FilterType.TASK_RESULT, tasks=[task])
        job.to_server(ExchangeCheckFilter(), filter_type=FilterType.TASK_RESULT, tasks=[task])
    if gap is not None:
        job.to_server(gap.check, filter_type=FilterType.TASK_RESULT, tasks=[task])


def _checked_sites(sites: Any) -> list[str]:
    """Return the names of the sites; raise ``SettingsError`` unless FLARE takes each, and each is given once."""
    names = [] if isinstance(sites, str) else list(sites)
    try:
        for name in names:
            validate_target_name(name)
    except (TypeError, ValueError) as error:
        raise SettingsError(field="sites", value=sites, expected="names that FLARE takes for sites") from error
    if not names or len(set(names)) < len(names) or not {SERVER_SITE_NAME, ALL_SITES}.isdisjoint(names):
        raise SettingsError(field="sites", value=sites, expected="a list of names of sites, each once")
    return names
