# SPDX-License-Identifier: Apache-2.0
"""``python -m fdg_plugins.lab.engine.one_process JOB WORKSPACE [WORKERS]``: a job folder in this process, to its end.

With more than one of ``WORKERS``, as many sites at a time train and evaluate, in separate processes. What the job
leaves in ``WORKSPACE`` lies where FLARE's simulator leaves it. SIGTERM and Ctrl-C abort the job, whose record then
says ``stopped``; a second one ends the process at once. A folder with ``plan.json`` is the job of a reference.

Exit codes: 0 the job has finished, 1 the folder holds no job that can be built, 2 the job failed or was stopped.

A federation's job has FLARE's own configurators and runners, with all filters and events. Only what lies between the
runners is replaced, and the loops in which FLARE's sites ask for tasks (:mod:`~fdg_plugins.lab.engine.local_parties`).
Job id and rules for components are those of FLARE's simulator.
"""

import json
import logging
import math
import os
import re
import shutil
import signal
import sys
from argparse import Namespace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

import torch
from nvflare.apis import fl_component
from nvflare.apis.app_validation import AppValidationKey
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import ConfigVarName, FLContextKey, JobConstants, ReservedKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.job_def import JobMetaKey
from nvflare.apis.workspace import Workspace
from nvflare.fuel.utils.config_service import ConfigService

from fdg_plugins.data import SharedDomains
from fdg_plugins.errors import FDGError, SettingsError
from fdg_plugins.executors.training_process import WorkerPool
from fdg_plugins.executors.work import SiteWork
from fdg_plugins.flare.internals import fetch
from fdg_plugins.lab.centralised.plan import PLAN_FILE, read_plan
from fdg_plugins.lab.centralised.run import run_centralised
from fdg_plugins.lab.engine.local_parties import SERVER, LocalServer, LocalSite, LocalTasks
from fdg_plugins.lab.engine.workflow import CUSTOM, META, apps_of
from fdg_plugins.record.run_files import SIMULATOR_FOLDER
from fdg_plugins.settings.site_config import read_site_config
from fdg_plugins.storage import link, named_path, read_json

UNUSABLE, FAILED = 1, 2
IDENTITY = "simulator_server"
LEAD_TIME = ConfigVarName.DEAD_CLIENT_CHECK_LEAD_TIME
MONITOR_S = 0.1  # between two looks of FLARE's own monitor, which only has to notice timeouts
CONFIG = "config"
LOCAL, STARTUP = "local", "startup"
_SAFE = re.compile(r"(?!\.\.?$)[^@/\\\0][^/\\\0]*")  # FLARE's @ALL is none

_logger = logging.getLogger(__name__)


def main(arguments: list[str]) -> int:
    """Run the job; ``arguments``: its folder, that of the workspace, number of workers. Return the exit code."""
    job, workspace = (Path(text).absolute() for text in arguments[:2])
    log_to(sys.stdout)
    try:
        if (job / PLAN_FILE).is_file():
            run_reference(job, workspace)
            return 0
        return run_job(job, workspace, int(arguments[2]) if len(arguments) > 2 else 1)
    except FDGError as error:
        _logger.error("stopped: %s", error)
        return UNUSABLE


def run_job(job: Path, workspace: Path, workers: int) -> int:
    """Run the job of a federation; return the exit code."""
    search_for_no_lost_site()
    pool = WorkerPool(workers, _logger.info) if workers > 1 else None
    try:
        made = OneProcessJob(job, workspace, pool or SiteWork(SharedDomains()), workers)
        _stop_on_signals(made)
        return 0 if made.run() else FAILED
    finally:
        if pool is not None:
            pool.close()


def run_reference(job: Path, workspace: Path) -> None:
    """Carry out the plan of a reference on this machine, whose results are where a federation's are."""
    config = read_site_config("centralised", None, os.environ)
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    run_centralised(read_plan(job), config, named_path("FDG_CACHE", os.environ), workspace / SIMULATOR_FOLDER)


def log_to(stream: TextIO) -> None:
    """Log in the form of FLARE's simulator, without FLARE's own records about single tasks."""
    logging.basicConfig(level=logging.INFO, stream=stream, format="%(asctime)s - %(levelname)s - %(message)s")
    logging.getLogger("nvflare").setLevel(logging.WARNING)
    # FLARE puts it before each message, ``[identity=..., run=...]: ``, also of the many that are not logged.
    fl_component.generate_log_message = lambda _, message: message


def search_for_no_lost_site() -> None:
    """Never let FLARE look for sites that are lost: none is, and a look costs the square of their number.

    A job's config says when it begins, but what FLARE has read once holds for the process.
    """
    ConfigService.get_float_var(LEAD_TIME, {LEAD_TIME: math.inf})


def _stop_on_signals(job: "OneProcessJob") -> None:
    def stop(number: int, _: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        job.stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)


class OneProcessJob:
    """A job in one process: participants have workspaces in ``workspace``, ``shared_work`` does the tasks of all sites,
    ``at_once`` of them at a time. Raises ``SettingsError`` or ``DataError`` if the folder ``job`` is not a job.
    """

    def __init__(self, job: Path, workspace: Path, shared_work: Any, at_once: int = 1) -> None:
        self._id: str = fetch("SimulatorConstants.JOB_NAME")
        self._workspace = workspace
        self._at_once = at_once
        sites, self._meta, custom = deploy(job, workspace, self._id)
        sys.path += [str(folder) for folder in custom if str(folder) not in sys.path]
        # FLARE keeps the config that was read last for all components: that of the server, which has settings in it.
        parts = {site: self._configured(site, "ClientJsonConfigurator") for site in sites}
        self._server = server = self._make_server()
        runner = partial(fetch("ClientRunner"), {})
        for site, made in parts.items():
            stickers = {ReservedKey.FQSN: site, ReservedKey.IS_LEAF: True, FLContextKey.CURRENT_JOB_ID: self._id}
            arguments = (self._id, self._workspace_of(site), made, self._meta, runner)
            server.sites[site] = LocalSite(server, shared_work, site, *arguments, **stickers)

    def run(self) -> bool:
        """Run the job to its end, in this thread; return whether it ended without a fatal error."""
        server = self._server
        for site in server.sites.values():
            with site.new_context() as fl_ctx:
                site.fire_event(EventType.ABOUT_TO_START_RUN, fl_ctx)
                signal = site.runner.run_abort_signal
                fl_ctx.set_prop(ReservedKey.RUN_ABORT_SIGNAL, signal, private=True, sticky=True)
                site.fire_event(EventType.START_RUN, fl_ctx)
        server.runner.run()
        for site in server.sites.values():
            site.runner.end_run_events_sequence()
        with server.new_context() as fl_ctx:
            return not fl_ctx.get_prop(FLContextKey.FATAL_SYSTEM_ERROR)

    def stop(self) -> None:
        """Abort the job: the site that works stops within a batch, and the workflow ends; for a signal handler."""
        self._server.runner.abort_signal.trigger(value=True)
        for site in self._server.sites.values():
            site.runner.run_abort_signal.trigger(value=True)

    def _make_server(self) -> LocalServer:
        made = self._configured(SERVER, "ServerJsonConfigurator")
        server = LocalServer(IDENTITY, self._id, self._workspace_of(SERVER), made, self._meta, fetch("ServerRunner"))
        for workflow in made.workflows:
            workflow.controller.communicator._task_check_period = MONITOR_S

        def do_next(name: str) -> None:
            with server.sites[name].new_context() as fl_ctx:
                server.sites[name].runner.fetch_and_run_one_task(fl_ctx)

        def settle() -> None:
            if (workflow := server.runner.current_wf) is not None:
                workflow.controller.communicator.check_tasks()

        server.local_tasks = LocalTasks(
            do_next=do_next,
            settle=settle,
            at_once=self._at_once,
            interrupt=lambda name: server.sites[name].runner.run_abort_signal.trigger(value=True),
        )
        return server

    def _workspace_of(self, name: str) -> Workspace:
        return Workspace(str(self._workspace / name), name, CONFIG)

    def _configured(self, name: str, configurator: str) -> Any:
        workspace = self._workspace_of(name)
        app = workspace.get_app_dir(self._id)
        file = JobConstants.SERVER_JOB_CONFIG if name == SERVER else JobConstants.CLIENT_JOB_CONFIG
        arguments = Namespace(
            job_id=self._id,
            client_name=name,
            workspace=str(self._workspace / name),
            config_folder=CONFIG,
            sp_scheme="",
            sp_target="",
            set=["secure_train=False"],
        )
        context = FLContext()
        context.set_prop(FLContextKey.WORKSPACE_OBJECT, workspace, private=True)
        context.set_prop(FLContextKey.CURRENT_JOB_ID, self._id, private=False, sticky=False)
        config = fetch(configurator)(
            workspace_obj=workspace,
            config_file_name=str(Path(app, CONFIG, file)),
            app_root=app,
            args=arguments,
            kv_list=arguments.set,
        )
        authorize = fetch("authorize_build_component")
        config.set_component_build_authorizer(authorize, fl_ctx=context, event_handlers=[])
        config.configure()
        return config.runner_config


def deploy(job: Path, workspace: Path, job_id: str) -> tuple[list[str], dict[str, Any], list[Path]]:
    """Make the workspaces of server and sites below ``workspace``, laid out as FLARE's simulator does.

    What is in the workspace's own ``local`` goes to all of them. Returns the sites in the order of the job's meta, the
    meta, and the folders with code that its apps bring.
    """
    meta = read_json(job / META)
    names_of = apps_of(job, meta)
    apps = {name: job / app for app, names in names_of.items() for name in names}
    unsafe = [one for one in (*names_of, *apps) if not _SAFE.fullmatch(str(one)) or one in (LOCAL, STARTUP)]
    if unsafe or SERVER not in apps:
        expected = f"apps for {SERVER!r} and for each site by name, called as folders can be"
        raise SettingsError(field=f"job {job.name}: deploy_map", value=[*unsafe, *apps], expected=expected)
    sites = [name for name in apps if name != SERVER]
    meta[JobMetaKey.JOB_CLIENTS.value] = [{"name": site} for site in sites]
    meta.pop(AppValidationKey.BYOC, None)
    if any((app / CUSTOM).is_dir() for app in apps.values()):
        # What FLARE notes of a job with code of its own; it then allows any component.
        meta[AppValidationKey.BYOC] = True
    for name, app in apps.items():
        # FLARE reads a site's anew for each of its components; all sites in each would cost the square of their number.
        only_it = {JobMetaKey.DEPLOY_MAP.value: {app.name: [name]}, JobMetaKey.JOB_CLIENTS.value: [{"name": name}]}
        _make_workspace(workspace, name, job_id, app, meta if name == SERVER else {**meta, **only_it})
    # The same app is at many sites: its code is needed once.
    first = {app: workspace / name / job_id / f"app_{name}" / CUSTOM for name, app in reversed(apps.items())}
    return sites, meta, [folder for folder in first.values() if folder.is_dir()]


def _make_workspace(workspace: Path, name: str, job_id: str, app: Path, meta: dict[str, Any]) -> None:
    own = workspace / name
    for folder in (LOCAL, STARTUP):
        (own / folder).mkdir(parents=True)
    if (workspace / LOCAL).is_dir():
        shutil.copytree(workspace / LOCAL, own / LOCAL, dirs_exist_ok=True, copy_function=link)
    shutil.copytree(app, own / job_id / f"app_{name}")
    (own / job_id / META).write_text(json.dumps(meta, indent=1), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
