# SPDX-License-Identifier: Apache-2.0
"""A whole job in one process, by FLARE's own runners: its configurators build the components of server and sites, its
server runner runs the workflow, and its client runners do the tasks, with all filters and events.

Only what lies between the runners is replaced (:mod:`~fdg_plugins.lab.engine.local_parties`), and the loops in which
FLARE's sites ask for tasks (:mod:`~fdg_plugins.lab.engine.local_tasks`). The job has the id that jobs have in FLARE's
simulator, and components are built by the same rules as there.
"""

import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey, JobConstants, ReservedKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.workspace import Workspace

from fdg_plugins.flare.internals import fetch
from fdg_plugins.lab.engine.local_apps import Deployed, deploy
from fdg_plugins.lab.engine.local_parties import SERVER, LocalServer, LocalSite
from fdg_plugins.lab.engine.local_tasks import LocalTasks

IDENTITY = "simulator_server"
MONITOR_S = 0.1  # between two looks of FLARE's own monitor, which only has to notice timeouts
CONFIG = "config"


class OneProcessJob:
    """A job in one process.

    Args:
        job: the job's folder.
        workspace: the folder in which every participant gets a workspace of its own.
        shared_work: what does the tasks of all sites (:func:`~fdg_plugins.lab.engine.local_parties.shared_work`).
        at_once: the number of sites whose tasks it does at a time.

    Raises:
        SettingsError, DataError: if the folder is not a job.
        InternalsError: if this FLARE version lacks a required internal.
    """

    def __init__(self, job: Path, workspace: Path, shared_work: Any, at_once: int = 1) -> None:
        self._id: str = fetch("SimulatorConstants.JOB_NAME")
        self._workspace = workspace
        self._at_once = at_once
        deployed = deploy(job, workspace, self._id)
        sys.path += [str(folder) for folder in deployed.custom if str(folder) not in sys.path]
        # FLARE keeps the config that was read last for all components: that of the server, which has settings in it.
        configs = {site: self._configured(site, "ClientJsonConfigurator") for site in deployed.sites}
        self._server = server = self._make_server(deployed)
        for site, config in configs.items():
            server.sites[site] = self._make_site(site, config, deployed, shared_work)

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

    def _make_server(self, deployed: Deployed) -> LocalServer:
        config = self._configured(SERVER, "ServerJsonConfigurator")
        made = config.runner_config
        server = LocalServer(
            IDENTITY, self._id, self._workspace_of(SERVER), made.components, made.handlers, deployed.meta
        )
        server.runner = fetch("ServerRunner")(made, self._id, server)
        server.add_handler(server.runner)
        communicators = [workflow.controller.communicator for workflow in made.workflows]
        for communicator in communicators:
            communicator._task_check_period = MONITOR_S

        def settle() -> None:
            for communicator in filter(lambda one: one._engine is not None, communicators):  # those of workflows so far
                communicator.check_tasks()

        server.local_tasks = LocalTasks(
            do_next=lambda name: self._do_next(server.sites[name]),
            settle=settle,
            at_once=self._at_once,
            interrupt=lambda name: server.sites[name].runner.run_abort_signal.trigger(value=True),
        )
        with server.new_context() as fl_ctx:
            fl_ctx.set_prop(FLContextKey.RUNNER, server.runner, private=True)
        return server

    def _make_site(self, name: str, config: Any, deployed: Deployed, shared_work: Any) -> LocalSite:
        made = config.runner_config
        stickers = {ReservedKey.FQSN: name, ReservedKey.IS_LEAF: True}
        arguments = (self._id, self._workspace_of(name), made.components, made.handlers, deployed.meta, stickers)
        site = LocalSite(self._server, shared_work, name, *arguments)
        site.runner = fetch("ClientRunner")({}, made, self._id, site)
        site.add_handler(site.runner)
        with site.new_context() as fl_ctx:
            fl_ctx.set_prop(FLContextKey.RUNNER, site.runner, private=True)
            for key in (FLContextKey.CURRENT_RUN, FLContextKey.CURRENT_JOB_ID):
                fl_ctx.set_prop(key, self._id, private=False, sticky=True)
        return site

    @staticmethod
    def _do_next(site: LocalSite) -> None:
        with site.new_context() as fl_ctx:
            site.runner.fetch_and_run_one_task(fl_ctx)

    def _workspace_of(self, name: str) -> Workspace:
        return Workspace(str(self._workspace / name), name, CONFIG)

    def _configured(self, name: str, configurator: str) -> Any:
        """Return what FLARE builds from a participant's config, having checked that its components are allowed."""
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
