# SPDX-License-Identifier: Apache-2.0
"""A site's FLARE Executor: answers the server's tasks, from census to evaluate, and never raises an exception.

It enforces the site's own rules on every answer before it returns it; they come from the site's files. FLARE's filters
see only what FLARE's runner sends to the server, not what another component of a job does with an executor's answer.
The rules are therefore enforced here:

- differential privacy, if the site's ``local/fdg_privacy.json`` sets every required limit, or a scope of its
  ``local/privacy.json`` has the filter;
- the site's list of allowed reports, checked against the actual content of the answer.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.filter import Filter
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_opt.pt.decomposers import TensorDecomposer
from nvflare.fuel.utils import fobs

from fdg_plugins.audit.auditor import audit_event, note_returned
from fdg_plugins.core.privacy import secure_normal
from fdg_plugins.errors import FDGError, SettingsError, shorten
from fdg_plugins.executors.training_process import TrainingProcess
from fdg_plugins.executors.work import RequestError, SiteTask, SiteWork, TaskResult, attempt
from fdg_plugins.filters.privacy import (
    DifferentialPrivacyFilter,
    check_what_follows,
    make_release,
    mark,
    policy_of,
    refusal,
)
from fdg_plugins.flare.components import SITE
from fdg_plugins.flare.context import in_simulator, result_filters, scope_filters, shared_work, site_config_of
from fdg_plugins.flare.kits import count_other_components
from fdg_plugins.flare.peers import FetchedTasks, is_foreign_event
from fdg_plugins.messages import (
    HEADER_REASON,
    HEADER_RUN,
    META_RECEIVED,
    META_REPORT,
    META_REQUEST,
    META_SAMPLES,
    META_SITE_REPORT,
    REPORT_GAP,
    REPORT_TRAINING_LOSS,
    TASK_CENSUS,
    TASK_EVALUATE,
    TASK_PROBE,
    TASK_SCORE,
    TASK_STATISTICS,
    TASK_TRAIN,
    CensusRequest,
    TaskRequest,
    TrainReport,
)
from fdg_plugins.plugins.files import load_files
from fdg_plugins.plugins.reports import REPORT_EVALUATION, REPORT_LOCAL_MODEL, REPORT_STATISTICS
from fdg_plugins.privacy.ledger import DEFAULT_DELTA, Limits, strictest
from fdg_plugins.privacy.reasons import Reason, failing_closed, make_reason, may_tell_names, reason_of
from fdg_plugins.settings.site_config import SiteConfig
from fdg_plugins.state.folders import mark_in_use, remove_expired, state_folder

TASKS = (TASK_STATISTICS, TASK_PROBE, TASK_TRAIN, TASK_EVALUATE, TASK_SCORE)


class SiteExecutor(Executor):
    """Trains and evaluates on the site's own data by the server's protocol; takes no settings from the job.

    The site's own config sets the data location, the domain and the device. The work runs in a separate process, whose
    death does not harm the job, or in this process (``isolate``). State that must survive a round is kept in the run's
    folder, because the simulator may use a new process for every task.

    It answers only tasks that FLARE's own loop fetched from the server. Every returned answer satisfies the site's own
    rules (privacy, allowed reports) and is already in the site's audit, so no other component can obtain more. Nothing
    is logged with an event (``fire_event``), here or in a site's filters, since FLARE tells the texts of such events to
    anyone who asks for a site's errors.
    """

    def __init__(self) -> None:
        super().__init__()
        self._fetched = FetchedTasks()
        self._work: SiteWork | None = None
        self._process: TrainingProcess | None = None

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Follow FLARE's events.

        Registers tensors with FLARE's serializer, removes what old runs have left, audits what leaves,
        and ends the training process with the run.
        """
        if event_type == EventType.START_RUN:
            fobs.register(TensorDecomposer)
            remove_expired(fl_ctx.get_engine().get_workspace())
        if is_foreign_event(fl_ctx):
            return
        if event_type in (EventType.ABORT_TASK, EventType.END_RUN) and self._process is not None:
            self._process.close()
        self._fetched.observe(event_type, fl_ctx)
        audit_event(event_type, fl_ctx)

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        """Return the answer to one task; an error reply carries a one-sentence reason as a header.

        The answer is released under the site's privacy limits, if it has any, and recorded in its audit.
        """
        limits: Limits | None = None

        def work() -> Shareable:
            nonlocal limits
            if not self._fetched.take(self, task_name, shareable, fl_ctx):
                raise RequestError(
                    "the site does only tasks that it fetched from the server itself, and this one came another way."
                )
            limits = demanded_limits(fl_ctx)
            return self._answer(task_name, shareable, fl_ctx, abort_signal)

        found = attempt(work)
        answer = self._error_reply(task_name, found, fl_ctx) if isinstance(found, TaskResult) else found
        if limits is not None:
            answer = self._released(task_name, answer, fl_ctx, limits)
        return note_returned(task_name, answer, fl_ctx)

    def _answer(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        site = str(fl_ctx.get_identity_name())
        config = site_config_of(site, fl_ctx)
        order = read_order(task_name, site, str(fl_ctx.get_job_id()), shareable)
        order = replace(order, custom=Path(fl_ctx.get_engine().get_workspace().get_app_custom_dir(order.job)))
        result = self._do(order, config, fl_ctx, abort_signal)
        if result.kind != "ok":
            return self._error_reply(task_name, result, fl_ctx)
        answer = make_answer(order, result)
        check_reports(answer, order, config.allowed_reports)
        return answer

    def _released(self, task_name: str, answer: Shareable, fl_ctx: FLContext, limits: Limits) -> Shareable:
        try:
            return release(task_name, answer, fl_ctx, limits)
        except FDGError as error:
            reason = reason_of(error, fl_ctx)
            self._log_failure(task_name, reason, fl_ctx)
            return mark(refusal(error, reason.told), limits)

    def _do(self, order: SiteTask, config: SiteConfig, fl_ctx: FLContext, abort_signal: Signal) -> TaskResult:
        folder = state_folder(fl_ctx.get_engine().get_workspace(), order.request.run)
        mark_in_use(folder)
        simulated = in_simulator(fl_ctx)
        isolate = not simulated if config.isolate is None else config.isolate
        result = self._worker(order.site, shared_work(fl_ctx), isolate=isolate).do_work(
            order,
            config,
            folder,
            should_stop=lambda: bool(abort_signal.triggered),
            say=lambda line: self.log_info(fl_ctx, line),
        )
        if order.task == TASK_CENSUS and result.kind == "ok" and not simulated:  # where one list is for all
            others = count_other_components(Path(fl_ctx.get_engine().get_workspace().get_root_dir()), SITE)
            return replace(result, value={**result.value, "num_other_components": others})
        return result

    def _worker(self, site: str, shared: SiteWork | None, *, isolate: bool) -> SiteWork | TrainingProcess:
        """Return the worker, created at the first task because the constructor must not start anything.

        ``shared`` is that of all sites in this process, if there are several.
        """
        if not isolate:
            self._work = self._work or shared or SiteWork()
            return self._work
        if self._process is None:
            self._process = TrainingProcess(lambda line: self.logger.info(f"site {site} | training process: {line}"))
        return self._process

    def _error_reply(self, task_name: str, result: TaskResult, fl_ctx: FLContext) -> Shareable:
        if result.kind == "aborted":
            self.log_info(fl_ctx, f"site {fl_ctx.get_identity_name()} | task {shorten(task_name)} was aborted.")
            return make_reply(ReturnCode.TASK_ABORTED)
        reason = make_reason(result.reason, result.public, names=may_tell_names(fl_ctx))
        self._log_failure(task_name, reason, fl_ctx)
        if result.trace:
            self.log_error(fl_ctx, result.trace, fire_event=False)
        return make_reply(ReturnCode.EXECUTION_EXCEPTION, {HEADER_REASON: reason.told})

    def _log_failure(self, task_name: str, reason: Reason, fl_ctx: FLContext) -> None:
        where = f"site {fl_ctx.get_identity_name()} | task {shorten(task_name)}"
        self.log_error(fl_ctx, f"{where} failed: {reason.logged}", fire_event=False)


# --- the site's own rules ---


def demanded_limits(fl_ctx: FLContext) -> Limits | None:
    """Return the privacy limits for every answer of the site; None if the site's files require no privacy.

    The result combines the strictest value of each limit that applies: the site's policy, the filters of the active
    scope and those of the default scope (a job cannot avoid the latter by choosing another scope). If any of these
    requires privacy, the job's own filters count too, so that the answer will also satisfy them.

    Raises ``SettingsError`` if the policy cannot be read.
    """
    policy = policy_of(fl_ctx)
    demands, own = _limits_of(scope_filters(fl_ctx)), {"delta": DEFAULT_DELTA, **policy.limits()}
    if own.keys() == Limits.model_fields.keys():  # else it lacks a limit that a release needs
        demands.append(Limits(**own))
    return strictest(*demands, *_limits_of(result_filters(fl_ctx) or ()), policy) if demands else None


def _limits_of(filters: Iterable[Filter]) -> list[Limits]:
    return [one.limits() for one in filters if isinstance(one, DifferentialPrivacyFilter)]


def release(task: str, answer: Shareable, fl_ctx: FLContext, limits: Limits) -> Shareable:
    """Return the release of ``answer`` under ``limits``, marked for the filters that follow.

    Raises ``RefusedError``, before any entry in the ledger, if the answer holds anything that differential privacy
    does not cover, or if a later filter of the job could add such content.
    """
    site = str(fl_ctx.get_identity_name())
    with failing_closed(f"site {site}: differential privacy"):
        if answer.get_return_code(ReturnCode.OK) == ReturnCode.OK:
            chain = result_filters(fl_ctx)
            # A privacy filter in the chain checks the answer again, so it covers the filters before it.
            covered = [at for at, one in enumerate(chain or ()) if isinstance(one, DifferentialPrivacyFilter)]
            check_what_follows(site, chain if chain is None else chain[max(covered, default=-1) + 1 :])
        return mark(make_release(site, task, answer, fl_ctx, limits, secure_normal), limits)


def check_reports(answer: Shareable, order: SiteTask, allowed: tuple[str, ...] | None) -> None:
    """Raise ``SettingsError`` if an answer holds a report that is not in ``allowed``; None allows everything.

    Only the content of the answer counts, whatever the protocol says.
    """
    if allowed is None or order.task == TASK_CENSUS:
        return
    for what, names in _reports_in(answer, order):
        if set(names).isdisjoint(allowed):
            forbidden = " or ".join(map(repr, names)) or "a report that has no name"
            text = f"the answer holds {what}: the site forbids {forbidden} (allowed_reports)."
            raise SettingsError(text, public=True)


def _reports_in(answer: Shareable, order: SiteTask) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield an answer's additional contents, in words, each with its report names, of which one must be allowed."""
    # Imported here because FLARE's process otherwise needs neither methods nor models.
    from fdg_plugins.objectives import make_objective

    dxo, protocol = from_shareable(answer), order.request.protocol
    if order.custom is not None:
        load_files(protocol.plugins, order.custom)  # the site's work has already admitted them
    if dxo.meta.get(META_SITE_REPORT):
        report = make_objective(protocol.objective).report
        yield "tensors of the method", () if report is None else (report,)
    if dxo.meta.get(META_REPORT, {}).get("training_split") is not None:
        yield "losses on the training split", (REPORT_TRAINING_LOSS, REPORT_GAP)
    if order.task == TASK_STATISTICS and dxo.data:
        yield "normalization statistics", (REPORT_STATISTICS,)
    if dxo.data_kind == DataKind.WEIGHT_DIFF and protocol.keep_local_models:
        yield "a model that is kept among the results", (REPORT_LOCAL_MODEL,)
    if order.task == TASK_SCORE:
        yield "the scores of a finished model", (REPORT_EVALUATION,)
    if order.task in (TASK_TRAIN, TASK_EVALUATE, TASK_SCORE):
        yield from (("scores of its task beyond the primary one", (scores,)) for scores in protocol.learned.reports)


# --- a task and its answer as FLARE's messages ---


def read_order(task_name: str, site: str, job: str, shareable: Shareable) -> SiteTask:
    """Return what a task of ``job`` asks for; raise ``RequestError`` for an invalid task."""
    dxo = from_shareable(shareable)
    if dxo.data_kind != DataKind.WEIGHTS:
        raise RequestError(
            f"the server sent {dxo.data_kind}, expected the global model (WEIGHTS); a COLLECTION needs "
            f"ExchangeReceiveFilter in the job's site config, for the data of {TASK_TRAIN!r}."
        )
    meta = dxo.meta or {}
    if task_name == TASK_CENSUS:
        census = CensusRequest.read(meta.get(META_REQUEST), "census request", RequestError)
        return SiteTask(task_name, site, census, job=job)
    if task_name not in TASKS:
        raise RequestError(f"the server asks for the unknown task {shorten(task_name)}.")
    request = TaskRequest.read(meta.get(META_REQUEST), "task request", RequestError)
    # Counted from 0; the round after the last one only evaluates. The site names its files by it.
    number = shareable.get_header(AppConstants.CURRENT_ROUND, 0)
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= request.protocol.rounds:
        raise RequestError(f"the task is of round {shorten(number)}, expected 0 to {request.protocol.rounds}.")
    received = (meta.get(META_RECEIVED) or {}) if task_name == TASK_TRAIN else {}
    if task_name == TASK_TRAIN and request.exchanged and not received:
        raise RequestError(
            "the server's tensors beside the model did not arrive: the job's configs need ExchangeSendFilter at the "
            f"server and ExchangeReceiveFilter at the sites, for the data of {TASK_TRAIN!r}."
        )
    state, received = (
        {name: torch.as_tensor(value) for name, value in tensors.items()} for tensors in (dxo.data, received)
    )
    return SiteTask(task_name, site, request, number, state, received, job)


def make_answer(order: SiteTask, result: TaskResult) -> Shareable:
    """Return FLARE's answer to a task, given its result; a report needs its run and round, which FLARE drops."""
    value, tensors = result.value, result.tensors
    if order.task in (TASK_CENSUS, TASK_EVALUATE, TASK_SCORE):
        return DXO(DataKind.METRICS, data=value).to_shareable()
    if order.task == TASK_STATISTICS:
        return DXO(DataKind.METRICS, data=tensors["statistics"]).to_shareable()
    meta: dict[str, Any] = {META_SITE_REPORT: tensors["report"]} if tensors["report"] else {}
    if order.task == TASK_PROBE:
        answer = DXO(DataKind.METRICS, data=value, meta=meta).to_shareable()
    else:
        report: TrainReport = value["report"]
        meta |= {META_SAMPLES: value["samples"], META_REPORT: report.model_dump()}
        if report.received is not None:
            meta[MetaKey.INITIAL_METRICS] = {f"val_{name}": score for name, score in report.received.values().items()}
        answer = DXO(DataKind.WEIGHT_DIFF, data=tensors["update"], meta=meta).to_shareable()
    answer.set_header(HEADER_RUN, order.request.run)
    answer.set_header(AppConstants.CURRENT_ROUND, order.round_number)
    return answer
