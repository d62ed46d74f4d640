# SPDX-License-Identifier: Apache-2.0
"""A whole job in one process, by FLARE's own configurators and runners, with all filters and events.

Only what lies between the runners is replaced, and the loops in which FLARE's sites ask for tasks
(:mod:`~fdg_plugins.lab.engine.local_parties`). Job id and rules for components are those of FLARE's simulator.
"""

import json
import re
import shutil
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

from nvflare.apis.app_validation import AppValidationKey
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey, JobConstants, ReservedKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.job_def import JobMetaKey
from nvflare.apis.workspace import Workspace

from fdg_plugins.errors import SettingsError
from fdg_plugins.flare.internals import fetch
from fdg_plugins.lab.engine.local_parties import SERVER, LocalServer, LocalSite, LocalTasks
from fdg_plugins.lab.engine.workflow import CUSTOM, META, apps_of
from fdg_plugins.storage import link, read_json

IDENTITY = "simulator_server"
MONITOR_S = 0.1  # between two looks of FLARE's own monitor, which only has to notice timeouts
CONFIG = "config"
LOCAL, STARTUP = "local", "startup"
_SAFE = re.compile(r"(?!\.\.?$)[^@/\\\0][^/\\\0]*")  # FLARE's @ALL is none


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
        configs = {site: self._configured(site, "ClientJsonConfigurator") for site in sites}
        self._server = server = self._make_server()
        for site, config in configs.items():
            server.sites[site] = self._make_site(site, config, shared_work)

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
        config = self._configured(SERVER, "ServerJsonConfigurator")
        made = config.runner_config
        parts = (made.components, made.handlers, self._meta)
        server = LocalServer(IDENTITY, self._id, self._workspace_of(SERVER), *parts)
        server.runner = fetch("ServerRunner")(made, self._id, server)
        server.add_handler(server.runner)
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
        with server.new_context() as fl_ctx:
            fl_ctx.set_prop(FLContextKey.RUNNER, server.runner, private=True)
        return server

    def _make_site(self, name: str, config: Any, shared_work: Any) -> LocalSite:
        made = config.runner_config
        stickers = {ReservedKey.FQSN: name, ReservedKey.IS_LEAF: True}
        arguments = (self._id, self._workspace_of(name), made.components, made.handlers, self._meta, stickers)
        site = LocalSite(self._server, shared_work, name, *arguments)
        site.runner = fetch("ClientRunner")({}, made, self._id, site)
        site.add_handler(site.runner)
        with site.new_context() as fl_ctx:
            fl_ctx.set_prop(FLContextKey.RUNNER, site.runner, private=True)
            for key in (FLContextKey.CURRENT_RUN, FLContextKey.CURRENT_JOB_ID):
                fl_ctx.set_prop(key, self._id, private=False, sticky=True)
        return site

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
        return config


def deploy(job: Path, workspace: Path, job_id: str) -> tuple[list[str], dict[str, Any], list[Path]]:
    """Make the workspaces of server and sites below ``workspace``, laid out as FLARE's simulator does.

    What is in the workspace's own ``local`` goes to all of them. Returns the sites in the order of the job's meta, the
    meta, and the folders with code that its apps bring.
    """
    meta = read_json(job / META)
    apps = _apps(job, meta)
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


def _apps(job: Path, meta: Any) -> dict[str, Path]:
    apps = apps_of(job, meta)
    participants = {name: job / app for app, names in apps.items() for name in names}
    field = f"job {job.name}: deploy_map"
    unsafe = [one for one in (*apps, *participants) if not _SAFE.fullmatch(str(one)) or one in (LOCAL, STARTUP)]
    if unsafe or SERVER not in participants:
        expected = f"apps for {SERVER!r} and for each site by name, called as folders can be"
        raise SettingsError(field=field, value=[*unsafe, *participants], expected=expected)
    return participants


def _make_workspace(workspace: Path, name: str, job_id: str, app: Path, meta: dict[str, Any]) -> None:
    own = workspace / name
    for folder in (LOCAL, STARTUP):
        (own / folder).mkdir(parents=True)
    if (workspace / LOCAL).is_dir():
        shutil.copytree(workspace / LOCAL, own / LOCAL, dirs_exist_ok=True, copy_function=link)
    shutil.copytree(app, own / job_id / f"app_{name}")
    (own / job_id / META).write_text(json.dumps(meta, indent=1), encoding="utf-8")
