# SPDX-License-Identifier: Apache-2.0
"""FLARE's internals that this package relies on, declared once with the reason.

FLARE does not guarantee any of these: private modules, attributes that exist only on instances, methods that this
package replaces while a job runs. So its version is pinned, and ``tests/flare/test_internals.py`` looks for each. Code
gets objects of private modules by :func:`fetch` at the time of use.
"""

from importlib import import_module
from importlib.metadata import version
from operator import attrgetter
from typing import Any

from fdg_plugins.errors import FDGError

_FED = "nvflare.private.fed"
_SERVER = f"{_FED}.server"
_RUNNER, _SITE_RUNNER = f"{_SERVER}.server_runner", f"{_FED}.client.client_runner"
_ENGINE, _JOBS, _ADMIN = f"{_SERVER}.server_engine", f"{_SERVER}.job_runner", f"{_SERVER}.admin"
_AGENT, _UTILS = f"{_SERVER}.server_command_agent", f"{_FED}.utils.fed_utils"

INTERNALS: dict[str, tuple[tuple[str, str], ...]] = {
    "a workflow that sees every answer, looks for them often, and goes on after an error reply": (
        ("nvflare.app_common.workflows.base_model_controller", "BaseModelController._accept_train_result"),
        ("nvflare.apis.impl.wf_comm_server", "WFCommServer._task_check_period"),
        (_RUNNER, "ServerRunner.ABORT_RETURN_CODES"),
    ),
    "knowing which site asks for a task or answers": (
        (_RUNNER, "ServerRunner.process_task_request"),
        (_RUNNER, "ServerRunner.process_submission"),
        (_AGENT, "ServerCommandAgent._aux_communicate"),
        (_AGENT, "ServerCommandAgent._get_client"),
        ("nvflare.private.defs", "CellMessageHeaderKeys.TOKEN"),
    ),
    "telling where a task comes from": (
        (_SITE_RUNNER, "ClientRunner.running_tasks"),
        (_SITE_RUNNER, "ClientRunner.find_executor"),
    ),
    "reading the filters of a result, and a site's privacy scopes": (
        (_SITE_RUNNER, "ClientRunner.task_result_filters"),
        (_RUNNER, "ServerRunner.config"),
        ("nvflare.private.privacy_manager", "PrivacyService.get_scope"),
        ("nvflare.private.privacy_manager", "Scope.task_result_filters"),
    ),
    "reading updates from files": (
        ("nvflare.app_opt.pt.lazy_tensor_dict", "_LazyRef.file_path"),
        ("nvflare.app_opt.pt.lazy_tensor_dict", "_LazyRef.key"),
    ),
    "surviving an upload that breaks off": (
        ("nvflare.fuel.utils.fobs.fobs", "_decomposers"),
        ("nvflare.fuel.f3.cellnet.fqcn", "FQCN.ROOT_SERVER"),
    ),
    "publishing metrics": (
        ("nvflare.metrics.metrics_publisher", "publish_app_metrics"),
        ("nvflare.fuel.data_event.data_bus", "DataBus"),
    ),
    "rejoining a running job": (
        (_ENGINE, "ServerEngine.job_runner"),
        (_ENGINE, "ServerEngine.notify_dead_job"),
        (_ENGINE, "ServerEngine.run_processes"),
        (_ENGINE, "ServerEngine.send_app_command"),
        (_ENGINE, "ServerEngine.server"),
        (f"{_SERVER}.fed_server", "BaseServer.admin_server"),
        (_ADMIN, "FedAdminServer.send_requests_and_get_reply_dict"),
        (_JOBS, "JobRunner.running_jobs"),
        (_JOBS, "JobRunner.resolve_client_outcome"),
        (_JOBS, "JobRunner._make_deploy_message"),
        ("nvflare.private.admin_defs", "MsgHeader.RETURN_CODE"),
        ("nvflare.private.admin_defs", "ReturnCode.OK"),
        ("nvflare.private.defs", "ERROR_MSG_PREFIX"),
        ("nvflare.utils.job_launcher_utils", "get_resource_manager_spec"),
    ),
    "recognising the simulator": ((f"{_FED}.simulator.simulator_const", "SimulatorConstants.JOB_NAME"),),
    "answering `nvflare job stats`": (
        ("nvflare.widgets.info_collector", "InfoCollector.CTX_KEY_STATS_COLLECTOR"),
        ("nvflare.widgets.info_collector", "InfoCollector.EVENT_TYPE_GET_STATS"),
    ),
    "a session of a person with a server": (
        ("nvflare.tool.kit.kit_config", "resolve_admin_user_and_dir_from_startup_kit"),
        ("nvflare.fuel.hci.client.api", "AdminAPI.auto_login_max_tries"),
        ("nvflare.fuel.hci.client.api", "AdminAPI.close"),
    ),
    "reading an authorization policy": (
        ("nvflare.fuel.sec.authz", "parse_policy_config"),
        ("nvflare.security.security", "COMMAND_CATEGORIES"),
    ),
    "a recipe": (
        ("nvflare.job_config.api", "FedJob._deploy_map"),
        ("nvflare.recipe.spec", "Recipe._job"),
    ),
    "the one-process engine": (
        (f"{_SERVER}.server_json_config", "ServerJsonConfigurator"),
        (f"{_FED}.client.client_json_config", "ClientJsonConfigurator"),
        (_UTILS, "authorize_build_component"),
        (_RUNNER, "ServerRunner"),
        (_SITE_RUNNER, "ClientRunner"),
        ("nvflare.apis.fl_component", "generate_log_message"),
    ),
}
_MODULES = {name: module for names in INTERNALS.values() for module, name in names}


class InternalsError(FDGError):
    """This FLARE version lacks an internal that this package relies on; the text names it."""


def fetch(name: str) -> Any:
    """Return the declared internal ``name``; raise ``InternalsError`` if this FLARE lacks it."""
    module = _MODULES[name]
    try:
        found: Any = import_module(module)
        return attrgetter(name)(found)
    except (ImportError, AttributeError):
        text = f"FLARE {version('nvflare')} has no `{module}.{name}`, on which this package relies."
        raise InternalsError(text, public=True) from None
