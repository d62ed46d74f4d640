# SPDX-License-Identifier: Apache-2.0
"""A site's FLARE Executor: answers the server's tasks, from census to evaluate, and never raises an exception."""

from dataclasses import replace
from pathlib import Path

from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal
from nvflare.app_opt.pt.decomposers import TensorDecomposer
from nvflare.fuel.utils import fobs

from fdg_plugins.audit.auditor import audit_event, note_returned
from fdg_plugins.errors import FDGError, SettingsError, shorten
from fdg_plugins.executors.gate import check_reports, demanded_limits, release
from fdg_plugins.executors.orders import make_answer, protocols_of, read_order
from fdg_plugins.executors.training_process import TrainingProcess
from fdg_plugins.executors.work import SiteTask, SiteWork, TaskResult, failure_of, mark
from fdg_plugins.filters.release import mark as mark_released
from fdg_plugins.filters.release import refusal
from fdg_plugins.flare.allow_list import count_other_components
from fdg_plugins.flare.components import SITE
from fdg_plugins.flare.origin import FetchedTasks
from fdg_plugins.flare.peers import is_foreign_event
from fdg_plugins.flare.simulator import in_simulator, shared_work
from fdg_plugins.flare.site_file import site_config_of
from fdg_plugins.messages import HEADER_REASON, TASK_CENSUS, TASK_EVALUATE, TASK_PROBE, TASK_STATISTICS, TASK_TRAIN
from fdg_plugins.privacy.reasons import Reason, make_reason, may_tell_names, reason_of
from fdg_plugins.settings.site_config import SiteConfig
from fdg_plugins.state.folders import mark_in_use, remove_expired, state_folder

TASKS = (TASK_CENSUS, TASK_STATISTICS, TASK_PROBE, TASK_TRAIN, TASK_EVALUATE)


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
        self._stand_in = False

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
        """Return the answer to one task; an error reply carries a one-sentence reason as a header."""
        try:
            if not self._fetched.take(self, task_name, shareable, fl_ctx):
                raise SettingsError(
                    "the site does only tasks that it fetched from the server itself, and this one came another way.",
                    public=True,
                )
            answer = self._answer(task_name, shareable, fl_ctx, abort_signal)
        except Exception as error:  # noqa: BLE001 - the boundary to FLARE: tell the server why, keep the site running
            self._log_failure(task_name, reason := reason_of(error, names=may_tell_names(fl_ctx)), fl_ctx)
            if not isinstance(error, FDGError):
                self.log_exception(fl_ctx, "unforeseen error")
            answer = make_reply(ReturnCode.EXECUTION_EXCEPTION, {HEADER_REASON: reason.told})
        return note_returned(task_name, answer, fl_ctx)

    def _answer(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        """Return the answer to a task of the server, released under the site's privacy limits if it has any."""
        if task_name not in TASKS:
            return make_reply(ReturnCode.TASK_UNKNOWN, {HEADER_REASON: f"unknown task {shorten(task_name)}."})
        site = str(fl_ctx.get_identity_name())
        limits = demanded_limits(site, fl_ctx)
        answer = self._work_on(task_name, site, shareable, fl_ctx, abort_signal)
        if limits is None:
            return answer
        try:
            return release(site, task_name, answer, fl_ctx, limits)
        except FDGError as error:
            self._log_failure(task_name, reason := reason_of(error, names=may_tell_names(fl_ctx)), fl_ctx)
            return mark_released(refusal(error, reason.told), limits)

    def _work_on(
        self, task_name: str, site: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal
    ) -> Shareable:
        """Return the work's answer to a task, or an error reply."""
        try:
            config = site_config_of(site, fl_ctx)
            order, run = read_order(task_name, site, str(fl_ctx.get_job_id()), shareable)
            if any(protocol.get("plugins") for protocol in protocols_of(order.request)):
                custom = fl_ctx.get_engine().get_workspace().get_app_custom_dir(order.job)
                order = replace(order, custom=str(custom))
            outcome = self._do(order, run, config, fl_ctx, abort_signal)
            if outcome.kind == "ok":
                answer = make_answer(task_name, outcome, shareable)
                check_reports(answer, order, config.allowed_reports)
                return answer
        except Exception as error:  # noqa: BLE001 - its text must satisfy the site's rules, as any answer must
            outcome = failure_of(error)
        return self._error_reply(task_name, outcome, fl_ctx)

    def _error_reply(self, task_name: str, outcome: TaskResult, fl_ctx: FLContext) -> Shareable:
        """Log why a task has no answer and return the error reply."""
        if outcome.kind == "aborted":
            self.log_info(fl_ctx, f"{self._about(task_name, fl_ctx)} was aborted.")
            return make_reply(ReturnCode.TASK_ABORTED)
        reason = make_reason(outcome.reason, outcome.public or "the task failed.", names=may_tell_names(fl_ctx))
        self._log_failure(task_name, reason, fl_ctx)
        if outcome.trace:
            self.log_error(fl_ctx, outcome.trace, fire_event=False)
        return make_reply(ReturnCode.EXECUTION_EXCEPTION, {HEADER_REASON: reason.told})

    def _do(self, order: SiteTask, run: str, config: SiteConfig, fl_ctx: FLContext, abort_signal: Signal) -> TaskResult:
        """Return the outcome of an order, done in this process or in a separate one."""
        folder = state_folder(fl_ctx.get_engine().get_workspace(), run)
        mark_in_use(folder)
        isolate = not in_simulator(fl_ctx) if config.isolate is None else config.isolate
        outcome = self._worker(order.site, shared_work(fl_ctx), isolate=isolate).do_work(
            order,
            config,
            folder,
            should_stop=lambda: bool(abort_signal.triggered),
            say=lambda line: self.log_info(fl_ctx, line),
        )
        if outcome.stand_in is not None:
            self._stand_in = outcome.stand_in
        if order.task == TASK_CENSUS and outcome.kind == "ok" and not in_simulator(fl_ctx):  # else: one list for all
            others = count_other_components(Path(fl_ctx.get_engine().get_workspace().get_root_dir()), SITE)
            return replace(outcome, value={**outcome.value, "num_other_components": others})
        return outcome

    def _worker(self, site: str, shared: SiteWork | None, *, isolate: bool) -> SiteWork | TrainingProcess:
        """Return the worker, created at the first task because the constructor must not start anything.

        ``shared`` is that of all sites in this process, if there are several.
        """
        if not isolate:
            self._work = self._work or shared or SiteWork()
            return self._work

        def log(line: str) -> None:
            self.logger.info(f"{mark(self._stand_in)}site {site} | training process: {line}")

        self._process = self._process or TrainingProcess(log)
        return self._process

    def _about(self, task_name: str, fl_ctx: FLContext) -> str:
        return f"{mark(self._stand_in)}site {fl_ctx.get_identity_name()} | task {shorten(task_name)}"

    def _log_failure(self, task_name: str, reason: Reason, fl_ctx: FLContext) -> None:
        self.log_error(fl_ctx, f"{self._about(task_name, fl_ctx)} failed: {reason.logged}", fire_event=False)
