# SPDX-License-Identifier: Apache-2.0
"""The server's half of a method in FLARE's own FedAvg and ScatterAndGather, which know none: FedDIM, FedIIR.

When a round starts, this component hands the method's exchange to the filters. It keeps the report of each site whose
update was accepted, and learns from them when the workflow has aggregated. FLARE's workflows take no census with which
a report must agree; reports are compared as with the default ``outlier_ratio``.
"""

from collections.abc import Mapping
from typing import Any

import torch
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.app_common.abstract.model import ModelLearnableKey
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.app_event_type import AppEventType

from fdg_plugins.core.layout import ModelLayout, ParameterKind
from fdg_plugins.core.outliers import MOST_TIMES
from fdg_plugins.errors import FDGError, SettingsError
from fdg_plugins.filters import EXCHANGE_PROP, ExchangeRound
from fdg_plugins.filters.wire import read_message
from fdg_plugins.flare.broken_uploads import register_server_tensors
from fdg_plugins.flare.peers import authenticated_site, is_foreign_event, mark_asking_sites
from fdg_plugins.messages import META_CHECKED_REPORTS
from fdg_plugins.objectives import Exchange, Objective, make_objective
from fdg_plugins.plugins.reports import CheckedReports


class ExchangeHost(FLComponent):
    """Runs a method's exchange beside a workflow of FLARE, together with the four exchange filters of the job.

    The constructor validates nothing, as FLARE would bury its error; a wrong value ends the job before its first task.

    Args:
        objective: name and settings of one that is ``hosted``: ``{"name": "dim"}``, or
            ``{"name": "iir", "probe": "previous_round"}``.
        head: dotted name of the network's head in the global model, as the sites' scripts name it: ``"fc"``.
    """

    def __init__(self, objective: dict[str, Any], head: str) -> None:
        super().__init__()
        self.objective = objective
        self.head = head
        self._exchange: Exchange | None = None
        self._reports: dict[str, Any] = {}

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Follow the workflow, not what a site calls an event of it; an error ends the job with its sentence."""
        steps = {
            EventType.START_RUN: self._start,
            AppEventType.ROUND_STARTED: self._begin_round,
            AppEventType.AFTER_CONTRIBUTION_ACCEPT: self._keep_report,
            AppEventType.AFTER_AGGREGATION: self._learn,
        }
        if (step := steps.get(event_type)) is None or is_foreign_event(fl_ctx):
            return
        try:
            step(fl_ctx)
        except FDGError as error:
            self.system_panic(str(error), fl_ctx)

    def _start(self, fl_ctx: FLContext) -> None:
        register_server_tensors()
        mark_asking_sites(fl_ctx.get_prop(FLContextKey.RUNNER))

    def _begin_round(self, fl_ctx: FLContext) -> None:
        weights = (fl_ctx.get_prop(AppConstants.GLOBAL_MODEL) or {}).get(ModelLearnableKey.WEIGHTS)
        if not weights:
            raise SettingsError("the workflow announces no global model, expected one, as of FedAvg with a persistor.")
        state = {name: torch.as_tensor(value) for name, value in weights.items()}
        if self._exchange is None:
            self._exchange = hosted_exchange(make_objective(self.objective), self.head, state)
        self._reports = {}
        self._exchange.begin_round(state)
        current = ExchangeRound(self._exchange, int(fl_ctx.get_prop(AppConstants.CURRENT_ROUND, 0)))
        fl_ctx.set_prop(EXCHANGE_PROP, current, private=True, sticky=True)

    def _keep_report(self, fl_ctx: FLContext) -> None:
        result = fl_ctx.get_prop(AppConstants.TRAINING_RESULT)
        message = None if result is None else read_message(result)
        if self._exchange is None or message is None or fl_ctx.get_prop(AppConstants.AGGREGATION_ACCEPTED) is not True:
            return
        name, checked = self._exchange.report, CheckedReports.of(message.main.get_meta_prop(META_CHECKED_REPORTS))
        if name not in checked.looked_at:
            raise SettingsError(
                "an update came without the check of its report: the job's server config needs ExchangeCheckFilter."
            )
        if name in checked:
            self._reports[authenticated_site(result, fl_ctx)] = checked[name]

    def _learn(self, fl_ctx: FLContext) -> None:
        if self._exchange is not None:
            for site, reason in self._exchange.outliers(self._reports, MOST_TIMES).items():
                self.log_warning(fl_ctx, f"site {site}: report refused: {reason}")
                del self._reports[site]
            self._exchange.finish(self._reports)
            self.log_info(fl_ctx, f"learned from {len(self._reports)} reports ({self._exchange.report})")


def hosted_exchange(objective: Objective, head: str, state: Mapping[str, torch.Tensor]) -> Exchange:
    """Return the server's half of ``objective`` for a global model ``state`` with that head.

    Raises ``SettingsError`` for a method or setting that cannot be hosted, and for a head that the method cannot read.
    """
    check_hosted(objective)
    prefix = f"{head}."
    trainable = ModelLayout.of(state).names(ParameterKind.TRAINABLE)
    shapes = {name: tuple(state[name].shape) for name in trainable if name.startswith(prefix)}
    return objective.named(objective.hosted_exchange(head, shapes))


def check_hosted(objective: Objective) -> None:
    """Raise ``SettingsError`` unless FLARE's own workflows can host the objective, with the settings that it has."""
    if objective.hosted is None:
        expected = "one that FLARE's own workflows can host, such as 'dim' or 'iir'"
        raise SettingsError(field="objective", value=objective.name, expected=expected)
    for name, value in objective.hosted.items():
        if (given := objective.settings().get(name)) != value:
            expected = f"{value!r}, since other values need FederationController"
            raise SettingsError(field=name, value=given, expected=expected)
