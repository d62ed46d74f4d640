# SPDX-License-Identifier: Apache-2.0
"""FLARE's internals that this package relies on, declared once, and an error sentence for each missing one.

FLARE does not guarantee any of these: private modules, attributes that exist only on instances, methods that this
package replaces while a job runs. Code that needs an internal first calls :func:`problems_of`, and then does without it
or refuses with that sentence. :func:`fetch` gets objects from private modules at the time of use, so no import fails.
``tests/flare/test_internals.py`` checks the whole list against the installed FLARE.
"""

import inspect
from functools import cache
from importlib import import_module
from importlib.metadata import version
from operator import attrgetter
from typing import Any, NamedTuple

from fdg_plugins.errors import FDGError


class Internal(NamedTuple):
    """One internal of FLARE.

    Attributes:
        need: the feature of this package that relies on it.
        module, name: its location; ``name`` is dotted for a member of a class.
        parameters: names of the parameters that a function must have; empty if only its presence matters.
        value: the required value of a constant; None if any value is accepted.
    """

    need: str
    module: str
    name: str
    parameters: tuple[str, ...] = ()
    value: str | None = None


ASKING = "the workflow"
IDENTITY = "knowing which site asks for a task or answers"
ERRORS = "going on after an error reply"
ORIGIN = "telling where a task comes from"
FILTERS = "reading the filters of a result"
SCOPES = "reading a site's privacy scopes"
OFFLOAD = "keeping updates in files"
UPLOADS = "surviving an upload that breaks off"
MONITORING = "publishing metrics"
REJOIN = "rejoining a running job"
WELCOME = "welcoming a returned site"
SIMULATOR = "recognising the simulator"
STATS = "answering `nvflare job stats`"
TENSORBOARD = "naming a run in TensorBoard"
PERSON = "reading a person's startup kit"
SESSION = "a session with a server"
PROVISIONING = "provisioning a federation on one machine"
BUILDER = "writing policies into provisioned kits"
RECIPE = "a recipe"
GPUS = "lending GPUs to jobs"
RIGHTS = "reading an authorization policy"
ONE_PROCESS = "the one-process engine"

_BASE = "nvflare.app_common.workflows.base_model_controller"
_COMMUNICATOR = "nvflare.apis.impl.wf_comm_server"
_SERVER = "nvflare.private.fed.server"
_ENGINE = f"{_SERVER}.server_engine"
_CLIENT_RUNNER = "nvflare.private.fed.client.client_runner"
_SERVER_RUNNER = f"{_SERVER}.server_runner"
_PRIVACY = "nvflare.private.privacy_manager"
_OFFLOAD = "nvflare.app_common.utils.tensor_disk_offload_context"
_DECOMPOSERS = "nvflare.app_opt.pt.decomposers"
_TRACKING = "nvflare.app_opt.tracking"
_LIGHTER = "nvflare.lighter"
_ASSIGNMENT = "nvflare.private.fed.client.client_engine_executor_spec"

INTERNALS = (
    Internal(
        ASKING,
        _BASE,
        "BaseModelController._accept_train_result",
        ("client_name", "result", "fl_ctx", "is_unknown_task"),
    ),
    Internal(
        ASKING,
        _BASE,
        "BaseModelController.broadcast_model",
        ("data", "task_name", "targets", "timeout", "blocking", "callback"),
    ),
    Internal(ASKING, _COMMUNICATOR, "WFCommServer._task_check_period"),
    Internal(ASKING, _COMMUNICATOR, "WFCommServer.get_client_disconnect_time", ("client_name",)),
    Internal(IDENTITY, _SERVER_RUNNER, "ServerRunner.process_task_request", ("client", "fl_ctx")),
    Internal(
        IDENTITY,
        _SERVER_RUNNER,
        "ServerRunner.process_submission",
        ("client", "task_name", "task_id", "result", "fl_ctx"),
    ),
    Internal(IDENTITY, f"{_SERVER}.server_command_agent", "ServerCommandAgent._aux_communicate", ("request",)),
    Internal(IDENTITY, f"{_SERVER}.server_command_agent", "ServerCommandAgent._get_client", ("token",)),
    Internal(IDENTITY, "nvflare.private.defs", "CellMessageHeaderKeys.TOKEN"),
    Internal(ERRORS, _SERVER_RUNNER, "ServerRunner.ABORT_RETURN_CODES"),
    Internal(ORIGIN, _CLIENT_RUNNER, "ClientRunner.running_tasks"),
    Internal(ORIGIN, _CLIENT_RUNNER, "ClientRunner.find_executor", ("task_name",)),
    Internal(ORIGIN, _ASSIGNMENT, "TaskAssignment.name"),
    Internal(ORIGIN, _ASSIGNMENT, "TaskAssignment.data"),
    Internal(FILTERS, _CLIENT_RUNNER, "ClientRunner.task_result_filters"),
    Internal(FILTERS, _SERVER_RUNNER, "ServerRunner.config"),
    Internal(FILTERS, _SERVER_RUNNER, "ServerRunnerConfig.task_result_filters"),
    Internal(
        FILTERS,
        "nvflare.apis.utils.task_utils",
        "get_filters",
        ("filters_name", "fl_ctx", "config_filters", "task_name", "direction"),
    ),
    Internal(SCOPES, _PRIVACY, "PrivacyService.get_scope", ("name",)),
    Internal(SCOPES, _PRIVACY, "Scope.task_result_filters"),
    Internal(OFFLOAD, _OFFLOAD, "setup_tensor_disk_offload", ("engine", "enabled", "job_id")),
    Internal(OFFLOAD, _OFFLOAD, "cleanup_tensor_disk_offload", ("engine", "context")),
    Internal(OFFLOAD, "nvflare.app_opt.pt.tensor_downloader", "cleanup_active_disk_tensor_downloads"),
    Internal(OFFLOAD, "nvflare.app_opt.pt.lazy_tensor_dict", "_LazyRef.file_path"),
    Internal(OFFLOAD, "nvflare.app_opt.pt.lazy_tensor_dict", "_LazyRef.key"),
    Internal(OFFLOAD, "nvflare.app_opt.pt.lazy_tensor_dict", "_LazyRef.materialize", ("self",)),
    Internal(
        MONITORING,
        "nvflare.metrics.metrics_publisher",
        "publish_app_metrics",
        ("metrics", "metric_name", "tags", "data_bus"),
    ),
    Internal(MONITORING, "nvflare.fuel.data_event.data_bus", "DataBus"),
    Internal(UPLOADS, _DECOMPOSERS, "TensorDecomposer.items_key"),
    Internal(UPLOADS, _DECOMPOSERS, "TensorDecomposer.process_datum", ("datum", "manager")),
    Internal(UPLOADS, _DECOMPOSERS, "TensorDecomposer.recompose", ("data", "manager")),
    Internal(UPLOADS, "nvflare.fuel.utils.fobs.fobs", "_decomposers"),
    Internal(UPLOADS, "nvflare.fuel.f3.cellnet.fqcn", "FQCN.ROOT_SERVER"),
    Internal(REJOIN, _ENGINE, "ServerEngine.check_client_resources", ("job", "resource_reqs", "fl_ctx")),
    Internal(REJOIN, _ENGINE, "ServerEngine.get_clients"),
    Internal(REJOIN, _ENGINE, "ServerEngine.job_runner"),
    Internal(REJOIN, _ENGINE, "ServerEngine.new_context"),
    Internal(REJOIN, _ENGINE, "ServerEngine.notify_dead_job", ("job_id", "client_name", "reason")),
    Internal(REJOIN, _ENGINE, "ServerEngine.run_processes"),
    Internal(REJOIN, _ENGINE, "ServerEngine.send_app_command", ("job_id", "topic", "cmd_data", "timeout")),
    Internal(REJOIN, _ENGINE, "ServerEngine.server"),
    Internal(REJOIN, _ENGINE, "ServerEngine.start_client_job", ("job", "client_sites", "fl_ctx")),
    Internal(REJOIN, f"{_SERVER}.fed_server", "BaseServer.admin_server"),
    Internal(REJOIN, f"{_SERVER}.admin", "FedAdminServer.timeout"),
    Internal(
        REJOIN, f"{_SERVER}.admin", "FedAdminServer.send_requests_and_get_reply_dict", ("requests", "timeout_secs")
    ),
    Internal(REJOIN, f"{_SERVER}.job_runner", "JobRunner.running_jobs"),
    Internal(REJOIN, f"{_SERVER}.job_runner", "JobRunner.resolve_client_outcome", ("job_id", "client_name")),
    Internal(
        REJOIN, f"{_SERVER}.job_runner", "JobRunner._make_deploy_message", ("job", "app_data", "app_name", "fl_ctx")
    ),
    Internal(REJOIN, "nvflare.private.admin_defs", "MsgHeader.RETURN_CODE"),
    Internal(REJOIN, "nvflare.private.admin_defs", "ReturnCode.OK"),
    Internal(REJOIN, "nvflare.private.defs", "ERROR_MSG_PREFIX"),
    Internal(REJOIN, "nvflare.private.fed.utils.fed_utils", "extract_participants", ("participants_list",)),
    Internal(REJOIN, "nvflare.utils.job_launcher_utils", "get_resource_manager_spec", ("job_meta", "site_name")),
    Internal(WELCOME, _ENGINE, "ServerEngine.register_app_command", ("topic", "cmd_func")),
    Internal(WELCOME, _ENGINE, "ServerEngine.sync_clients_from_main_process"),
    Internal(
        SIMULATOR, "nvflare.private.fed.simulator.simulator_const", "SimulatorConstants.JOB_NAME", (), "simulate_job"
    ),
    Internal(STATS, "nvflare.widgets.info_collector", "InfoCollector.CTX_KEY_STATS_COLLECTOR"),
    Internal(STATS, "nvflare.widgets.info_collector", "InfoCollector.EVENT_TYPE_GET_STATS"),
    Internal(STATS, "nvflare.widgets.info_collector", "GroupInfoCollector.add_info", ("group_name", "info")),
    Internal(TENSORBOARD, f"{_SERVER}.run_manager", "RunManager.components"),
    Internal(TENSORBOARD, f"{_TRACKING}.tb.tb_receiver", "TBAnalyticsReceiver.root_log_dir"),
    Internal(TENSORBOARD, f"{_TRACKING}.tb.tb_receiver", "TBAnalyticsReceiver.writers_table"),
    Internal(
        TENSORBOARD, f"{_TRACKING}.tb.tb_event_writer", "TensorBoardEventWriter._add_summary", ("writer", "summary")
    ),
    Internal(PERSON, "nvflare.tool.kit.kit_config", "resolve_admin_user_and_dir_from_startup_kit"),
    Internal(SESSION, "nvflare.fuel.flare_api.flare_api", "Session.api"),
    Internal(SESSION, "nvflare.fuel.flare_api.flare_api", "Session.try_connect", ("timeout",)),
    Internal(SESSION, "nvflare.fuel.hci.client.api", "AdminAPI.auto_login_max_tries"),
    Internal(SESSION, "nvflare.fuel.hci.client.api", "AdminAPI.close", ("self",)),
    Internal(PROVISIONING, f"{_LIGHTER}.constants", "CtxKey.BUILD_ERROR"),
    Internal(PROVISIONING, f"{_LIGHTER}.constants", "CtxKey.CURRENT_PROD_DIR"),
    Internal(PROVISIONING, f"{_LIGHTER}.prov_utils", "prepare_builders", ("project_dict",)),
    Internal(PROVISIONING, f"{_LIGHTER}.provision", "prepare_project", ("project_dict",)),
    Internal(BUILDER, f"{_LIGHTER}.ctx", "ProvisionContext.get_ws_dir", ("entity",)),
    Internal(BUILDER, f"{_LIGHTER}.ctx", "ProvisionContext.get_workspace"),
    Internal(BUILDER, f"{_LIGHTER}.ctx", "ProvisionContext.get_state_dir"),
    Internal(BUILDER, f"{_LIGHTER}.entity", "Project.get_server"),
    Internal(BUILDER, f"{_LIGHTER}.entity", "Project.get_clients"),
    Internal(PROVISIONING, f"{_LIGHTER}.provisioner", "Provisioner", ("root_dir", "builders")),
    Internal(PROVISIONING, f"{_LIGHTER}.provisioner", "Provisioner.provision", ("project", "logger")),
    Internal(
        ONE_PROCESS,
        f"{_SERVER}.server_json_config",
        "ServerJsonConfigurator",
        ("workspace_obj", "config_file_name", "args", "app_root", "kv_list"),
    ),
    Internal(
        ONE_PROCESS,
        "nvflare.private.fed.client.client_json_config",
        "ClientJsonConfigurator",
        ("workspace_obj", "config_file_name", "args", "app_root", "kv_list"),
    ),
    Internal(ONE_PROCESS, "nvflare.private.json_configer", "JsonConfigurator.set_component_build_authorizer"),
    Internal(
        ONE_PROCESS,
        "nvflare.private.fed.utils.fed_utils",
        "authorize_build_component",
        ("config_dict", "config_ctx", "node", "fl_ctx", "event_handlers"),
    ),
    Internal(ONE_PROCESS, _SERVER_RUNNER, "ServerRunner", ("config", "job_id", "engine")),
    Internal(ONE_PROCESS, _SERVER_RUNNER, "ServerRunner.run"),
    Internal(ONE_PROCESS, _SERVER_RUNNER, "ServerRunner.abort_signal"),
    Internal(ONE_PROCESS, _SERVER_RUNNER, "ServerRunner.process_task_request", ("client", "fl_ctx")),
    Internal(
        ONE_PROCESS,
        _SERVER_RUNNER,
        "ServerRunner.process_submission",
        ("client", "task_name", "task_id", "result", "fl_ctx"),
    ),
    Internal(ONE_PROCESS, _CLIENT_RUNNER, "ClientRunner", ("config", "client_config", "job_id", "engine")),
    Internal(ONE_PROCESS, _CLIENT_RUNNER, "ClientRunner.fetch_and_run_one_task", ("fl_ctx",)),
    Internal(ONE_PROCESS, _CLIENT_RUNNER, "ClientRunner.end_run_events_sequence"),
    Internal(ONE_PROCESS, _CLIENT_RUNNER, "ClientRunner.run_abort_signal"),
    Internal(ONE_PROCESS, _ASSIGNMENT, "TaskAssignment", ("name", "task_id", "data")),
    Internal(ONE_PROCESS, _COMMUNICATOR, "WFCommServer._task_check_period"),
    Internal(ONE_PROCESS, _COMMUNICATOR, "WFCommServer.check_tasks"),
    Internal(
        GPUS,
        "nvflare.app_common.resource_managers.gpu_resource_manager",
        "GPUResourceManager",
        ("num_of_gpus", "mem_per_gpu_in_GiB", "expiration_period"),
    ),
    Internal(GPUS, "nvflare.app_common.resource_consumers.gpu_resource_consumer", "GPUResourceConsumer.consume"),
    Internal(RIGHTS, "nvflare.fuel.sec.authz", "parse_policy_config", ("config", "right_categories")),
    Internal(RIGHTS, "nvflare.security.security", "COMMAND_CATEGORIES"),
    Internal(RECIPE, "nvflare.job_config.api", "FedJob._deploy_map"),
    Internal(RECIPE, "nvflare.recipe.spec", "Recipe._job"),
)


class InternalsError(FDGError):
    """This FLARE version lacks an internal that this package relies on; the text names it and the feature."""


def problem_of(internal: Internal) -> str | None:
    """Return a sentence about an internal that is missing or has changed; None if it is as required."""
    try:
        found = _find(internal.module, internal.name)
    except (ImportError, AttributeError):
        return _sentence(internal, "is gone")
    if internal.parameters and (lost := _lost_parameters(found, internal.parameters)):
        return _sentence(internal, f"does not take {', '.join(lost)}")
    if internal.value not in (None, found):
        return _sentence(internal, f"is {found!r}, expected {internal.value!r}")
    return None


@cache
def problems_of(need: str) -> tuple[str, ...]:
    """Return a sentence for each internal that ``need`` relies on and this FLARE version lacks; empty if none."""
    return tuple(text for one in INTERNALS if one.need == need and (text := problem_of(one)) is not None)


def require(need: str) -> None:
    """Raise ``InternalsError`` with the first sentence of :func:`problems_of` if this FLARE lacks part of ``need``."""
    for text in problems_of(need):
        raise InternalsError(text, public=True)


def fetch(need: str, name: str) -> Any:
    """Return the object of the declared internal ``name`` of ``need``; raise ``InternalsError`` if it is missing."""
    internal = next(one for one in INTERNALS if (one.need, one.name) == (need, name))
    try:
        return _find(internal.module, internal.name)
    except (ImportError, AttributeError):
        raise InternalsError(_sentence(internal, "is gone"), public=True) from None


def _sentence(internal: Internal, what: str) -> str:
    path = f"{internal.module}.{internal.name}"
    return f"FLARE {version('nvflare')}: `{path}`, which {internal.need} needs, {what}."


def _find(module: str, name: str) -> Any:
    """Return the object ``name`` in ``module``; raise ``ImportError`` or ``AttributeError`` if it is missing.

    For an attribute that a class sets only on its instances, return the attribute's name.
    """
    found: Any = import_module(module)
    owner, _, last = name.rpartition(".")
    if owner:
        found = attrgetter(owner)(found)
        if not hasattr(found, last) and _sets_on_itself(found, last):
            return last
    return getattr(found, last)


def _sets_on_itself(cls: type[Any], attribute: str) -> bool:
    """Return whether the constructor of ``cls`` or of one of its bases mentions the attribute."""
    constructors = (base.__dict__.get("__init__") for base in cls.__mro__)
    return any(attribute in code.co_names for one in constructors if (code := getattr(one, "__code__", None)))


def _lost_parameters(function: Any, wanted: tuple[str, ...]) -> list[str]:
    """Return the ``wanted`` parameters that ``function`` does not have."""
    known = inspect.signature(function).parameters
    return [name for name in wanted if name not in known]
