# SPDX-License-Identifier: Apache-2.0
"""FLARE's workflow for federated domain generalization: census, rounds, held-out evaluation, record."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.abstract.model import make_model_learnable
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.app_event_type import AppEventType

from fdg_plugins.aggregators import RunFacts, UpdateAggregator, flat_names, make_aggregator, needed_reports
from fdg_plugins.controllers.kept_results import keep_results
from fdg_plugins.controllers.messenger import Aborted, Messenger, Request
from fdg_plugins.controllers.monitoring import publish_evaluation, publish_round
from fdg_plugins.controllers.rounds import Rounds
from fdg_plugins.controllers.tracking import Tracker
from fdg_plugins.errors import ContributionError, DataError, FDGError, SettingsError, counted, told
from fdg_plugins.flare.allow_list import count_other_components, warning_of
from fdg_plugins.flare.broken_uploads import register_server_tensors
from fdg_plugins.flare.components import SERVER
from fdg_plugins.flare.deploy_map import named_sites
from fdg_plugins.flare.disk_offload import tensors_in_files
from fdg_plugins.flare.filter_chain import server_result_filters
from fdg_plugins.flare.internals import fetch
from fdg_plugins.flare.metrics import start_reporting
from fdg_plugins.flare.rejoin import welcome_returning_sites
from fdg_plugins.flare.simulator import in_simulator
from fdg_plugins.flare.site_file import allowed_at_server
from fdg_plugins.flare.trackers import chosen_tracker
from fdg_plugins.messages import META_REQUEST, TASK_CENSUS, CensusReply, CensusRequest
from fdg_plugins.plans.plans import Plans, check_filters, check_settings, make_plans
from fdg_plugins.plugins.admission import admit
from fdg_plugins.plugins.reports import REPORT_STATISTICS
from fdg_plugins.plugins.versions import OF_AUDIT, code_of, installed_versions
from fdg_plugins.record.census import (
    Federation,
    check_connected,
    check_min_sites,
    check_reports,
    check_versions,
    new_record,
    take_census,
)
from fdg_plugins.record.checkpoint import has_checkpoint, require_checkpoint
from fdg_plugins.record.method_settings import method_label, name_of_run
from fdg_plugins.record.run_record import InitialWeights, Method, RunRecord
from fdg_plugins.record.text import (
    evaluation_line,
    final_table,
    marks,
    precision_line,
    round_line,
    stats,
)
from fdg_plugins.settings.protocol import AUTO, SGD, environment_settings
from fdg_plugins.settings.uses import uses_of
from fdg_plugins.state.folders import VARIABLE as STATE_VARIABLE
from fdg_plugins.state.folders import held_run, state_beside, state_folder
from fdg_plugins.tasks import TASKS
from fdg_plugins.training.global_model import initial_model


class FederationController(Messenger):
    """Runs a census, then rounds of local training and aggregation; the held-out domain only evaluates.

    In each round, the source sites evaluate the received model before they train it, and the held-out sites evaluate
    the same model. Every site has exactly one task, and round r evaluates the model after round r - 1.

    The constructor validates nothing. An invalid job ends its run with a one-sentence reason before any site is asked.

    Args:
        aggregator_id: id of the job component that is an
            :class:`~fdg_plugins.aggregators.UpdateAggregator`; ignored if ``aggregator`` is given.
        protocol: fields of :class:`~fdg_plugins.settings.protocol.Protocol` that differ from its defaults.
        stand_in_protocol: protocol fields, or aggregator settings, that override the above when the sites have no
            real data and use the stand-in.
        poll: interval between checks for answers, in seconds, from 0.0001 to 60.
        aggregator: the server's aggregation rule, a name or ``{"name": ..., <its settings>}``
            (:func:`~fdg_plugins.aggregators.make_aggregator`).
        resume: id of the job that started the run; this job continues that run after its last complete round.
        tracking: ``"mlflow"`` or ``"wandb"``, which get the run's metrics in addition to TensorBoard; the server's
            ``FDG_TRACKING`` overrides it. Where they are kept is the server's setting, not the job's.
        with_current_plugin: resume the run although plug-in files have changed since; its record says so.
    """

    def __init__(
        self,
        aggregator_id: str = "aggregator",
        protocol: dict[str, Any] | None = None,
        stand_in_protocol: dict[str, Any] | None = None,
        poll: float = 0.005,
        aggregator: str | dict[str, Any] | None = None,
        resume: str | None = None,
        tracking: str | None = None,
        with_current_plugin: bool = False,
    ) -> None:
        super().__init__(poll=poll)
        self.aggregator = aggregator
        self.aggregator_id = aggregator_id
        self.protocol = protocol
        self.stand_in_protocol = stand_in_protocol
        self.resume = resume
        self.tracking = tracking
        self.with_current_plugin = with_current_plugin
        self._code: dict[str, str] = {}  # of the plug-ins in use, by what it is called among the versions
        self._rounds: Rounds | None = None

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Answer ``show_stats`` and ``nvflare job stats`` with the progress of the run."""
        super().handle_event(event_type, fl_ctx)
        if event_type == fetch("InfoCollector.EVENT_TYPE_GET_STATS"):
            collector = fl_ctx.get_prop(fetch("InfoCollector.CTX_KEY_STATS_COLLECTOR"))
            told = stats(self._rounds.record) if self._rounds else {"phase": "census"}
            collector.add_info(type(self).__name__, told)

    def run(self) -> None:
        """Run the job to completion; a problem that the user can fix ends it with a one-sentence reason."""
        register_server_tensors()
        welcome_returning_sites(self.engine)
        try:
            self._run()
        except Aborted as order:
            self._stop(str(order))
            if in_simulator(self.fl_ctx):  # there, an abort means that a site died, not a user's request
                self.panic(str(order))
        except FDGError as error:
            self._stop(str(error))
            self.panic(str(error))
        except Exception as error:
            self._stop(told(error))
            raise  # FLARE logs the traceback and ends the job

    def _run(self) -> None:
        self.check_poll()
        tracking = chosen_tracker(self.tracking, os.environ)
        start_reporting()
        self._admit_plugins()
        aggregator = self._aggregator()
        plans = self._plans(aggregator)
        state = state_folder(self.engine.get_workspace(), self._run_id)
        meta = self.fl_ctx.get_prop(FLContextKey.JOB_META) or {}
        with held_run(state, meta, lambda: bool(self.abort_signal.triggered)):
            self._run_held(aggregator, plans, tracking, state)

    def _run_held(self, aggregator: UpdateAggregator, plans: Plans, tracking: str | None, state: Path) -> None:
        """Begin the run or go on with it, while no other job can."""
        if self.resume is not None:
            require_checkpoint(state, self.resume)  # before any site is asked in the run's name
        goes_on = self.resume is not None or has_checkpoint(state)
        federation = self._census(plans, goes_on=goes_on)
        self._warn_of_wide_lists(federation)
        rounds = self._new_rounds(plans, federation, aggregator, state)
        offloads = rounds.record.protocol.enable_tensor_disk_offload  # as this job asks, also when it resumes a run
        record = rounds.resume(other_files=self.with_current_plugin) if goes_on else rounds.record
        self._rounds = rounds  # not before: a refused job would write a record without the run's rounds
        self._mark = marks(record)
        self._announce(record)
        if record.rounds and record.status != "finished":
            self.say(f"run {record.run} goes on after round {len(record.rounds)}")
        with tensors_in_files(self.engine, offloads, self._run_id) as files:
            if files is not None:
                self.say(f"updates are written to {files} as they arrive")
            if record.status == "finished":
                self.say(f"run {record.run} had finished; events for trackers are those of the job that computed it")
            else:
                with Tracker(self, record, tracking, self.fl_ctx) as tracker:
                    self._train(rounds, record, tracker)
        self.say(f"finished\n{final_table(record)}")
        self.say(f"record, models and TensorBoard events: {rounds.files.folder}")
        self._keep_results(rounds)  # once the tracker has written its last
        simulated = (*record.sources, *record.held_out) if in_simulator(self.fl_ctx) else ()
        rounds.remove_state(state_beside(state, site) for site in simulated)

    def _plans(self, aggregator: UpdateAggregator) -> Plans:
        """Return the plans for real data and for the stand-in, which fit the aggregator and the job's filters."""
        plans = make_plans(
            {} if self.protocol is None else self.protocol,
            {} if self.stand_in_protocol is None else self.stand_in_protocol,
            os.environ,
            flat_names(aggregator.settings(), environment_settings(os.environ)),
        )
        check_settings(aggregator, plans)
        check_filters(plans, lambda task: server_result_filters(task, self.fl_ctx))
        return plans

    def _new_rounds(self, plans: Plans, federation: Federation, aggregator: UpdateAggregator, state: Path) -> Rounds:
        """Return the rounds of a run that begins with the initial model, after checking what the census found."""
        plan = plans.stand_in if federation.stand_in else plans.real
        check_min_sites(plan.protocol, federation)
        aggregator = aggregator.configured(plan.aggregator)
        check_reports(federation, needed_reports(plan.protocol, aggregator))
        model, weights, exchange, last_layer = initial_model(
            plan.protocol, len(federation.classes), len(federation.sources)
        )
        if model.reestimated:
            check_reports(federation, {REPORT_STATISTICS: f"batch_norm {plan.protocol.batch_norm!r}"})
        counts = {site: federation.replies[site].class_counts for site in federation.sources}
        domains = {site: federation.replies[site].domain for site in federation.sources}
        aggregator.facts = RunFacts(counts, last_layer, plan.protocol.clip_to_median, domains)
        method = Method(
            aggregator=type(aggregator).__name__, settings=aggregator.settings(), objective=plan.protocol.objective
        )
        record = new_record(federation, plan.protocol, method, InitialWeights(**vars(weights)), self._code)
        record.run = self._run_id
        return Rounds(self, aggregator, model, record, Path(self.get_run_dir()), exchange, state)

    def _admit_plugins(self) -> None:
        """Raise ``SettingsError`` for a plug-in that the server's operator does not allow, before loading any."""
        workspace = self.engine.get_workspace()
        rule = self.aggregator
        if rule is None:  # of a component of the job's own, the weighting that it names
            rule = {"weighting": getattr(self.get_component(self.aggregator_id), "weighting", None)}
        uses = uses_of(rule, (self.protocol, self.stand_in_protocol), os.environ)
        custom = Path(workspace.get_app_custom_dir(self.fl_ctx.get_job_id())) if uses.files else None
        admit(uses.names, uses.files, custom, allowed_at_server(self.fl_ctx))
        self._code = code_of(uses.names, uses.files)

    @property
    def _run_id(self) -> str:
        return str(self.fl_ctx.get_job_id()) if self.resume is None else self.resume

    def _aggregator(self) -> UpdateAggregator:
        if self.aggregator is not None:
            named = make_aggregator(self.aggregator)
            named.fl_ctx = self.fl_ctx  # FLARE sets it only on components of the job
            return named
        aggregator = self.get_component(self.aggregator_id)
        if not isinstance(aggregator, UpdateAggregator):
            raise SettingsError(field="aggregator_id", value=self.aggregator_id, expected="an UpdateAggregator's id")
        return aggregator

    def _census(self, plans: Plans, *, goes_on: bool) -> Federation:
        sites = tuple(sorted(client.name for client in self.engine.get_clients()))
        check_connected(named_sites(self.fl_ctx), sites)
        request = CensusRequest(
            protocol=plans.real.protocol,
            stand_in_protocol=plans.stand_in.protocol,
            run=self._run_id,
            goes_on=goes_on,
        )
        replies: dict[str, CensusReply] = {}

        def on_answer(site: str, model: FLModel) -> None:
            replies[site] = CensusReply.read(model.metrics, f"site {site}: census", ContributionError)

        meta = {META_REQUEST: request.model_dump(mode="json")}
        data = FLModel(params_type=ParamsType.FULL, params={}, current_round=0, meta=meta)
        self.say(f"census of {counted(len(sites), 'site')}: {', '.join(sites)}")
        protocol = plans.real.protocol
        failures = self.ask([Request(TASK_CENSUS, sites, data, on_answer)], protocol.task_timeout)
        federation = take_census(replies, failures, protocol.target, TASKS.get(protocol.task))
        check_versions(federation, {**installed_versions(OF_AUDIT), **self._code})
        return federation

    def _warn_of_wide_lists(self, federation: Federation) -> None:
        """Warn about each participant whose operator allows classes that these jobs do not need; name the fix."""
        if in_simulator(self.fl_ctx):
            return
        own = count_other_components(Path(self.engine.get_workspace().get_root_dir()), SERVER)
        counts = {f"site {site}": reply.num_other_components for site, reply in federation.replies.items()}
        for owner, count in {"the server": own, **counts}.items():
            if text := warning_of(owner, count):
                self.warning(text)

    def _train(self, rounds: Rounds, record: RunRecord, tracker: Tracker) -> None:
        first, offloads = len(record.rounds) + 1, record.protocol.enable_tensor_disk_offload
        for number in range(first, record.protocol.rounds + 1):
            self._tell_widgets(number, rounds)
            finished, evaluation = rounds.run_round(number)
            self.say(round_line(record, finished, evaluation))
            tracker.evaluation(evaluation, self.fl_ctx)
            tracker.round(finished, self.fl_ctx)
            publish_round(record, finished, evaluation)
            if number == first and offloads and finished.sites and not finished.bytes_in_files:
                self.warning(
                    "enable_tensor_disk_offload has no effect: the updates came in memory, as they do in FLARE's "
                    "simulator and from filters that make arrays of tensors."
                )
        last = rounds.evaluate_last()
        record.status = "finished"
        rounds.files.save()
        self.say(evaluation_line(record, last))
        tracker.evaluation(last, self.fl_ctx)
        publish_evaluation(record, last)

    def _keep_results(self, rounds: Rounds) -> None:
        """Keep the results of a simulation that nobody else keeps, and say what FLARE will do to the workspace."""
        if not in_simulator(self.fl_ctx) or os.environ.get(STATE_VARIABLE) or self.local_tasks is not None:
            return
        workspace = Path(self.engine.get_workspace().get_root_dir()).parent
        try:
            folder = keep_results(rounds.files.folder, workspace, name_of_run(rounds.record))
            self.say(f"FLARE erases {workspace} when it simulates there again; the results are also in {folder}")
        except DataError as error:  # the run has finished regardless
            self.warning(str(error))

    def _tell_widgets(self, number: int, rounds: Rounds) -> None:
        """Notify FLARE's widgets that a round starts, as FLARE's own workflows do."""
        learnable = make_model_learnable(rounds.model.state, {})
        self.fl_ctx.set_prop(AppConstants.GLOBAL_MODEL, learnable, private=True, sticky=True)
        self.fl_ctx.set_prop(AppConstants.CURRENT_ROUND, number - 1, private=True, sticky=False)
        self.event(AppEventType.ROUND_STARTED)

    def _announce(self, record: RunRecord) -> None:
        protocol = record.protocol
        held_out = f"{', '.join(record.held_out)} ({protocol.target})"
        self.say(f"{record.data}: sources {', '.join(record.sources)}; held out {held_out}")
        self.say(method_label(record))
        self.say(
            f"{protocol.model} ({record.initial_weights.label}), {protocol.image_size} px, "
            f"{counted(protocol.rounds, 'round')} of {counted(protocol.local_epochs, 'epoch')}, "
            f"batch {protocol.batch_size}, learning rate {protocol.learning_rate:g}"
            f"{'' if protocol.optimizer == SGD else f', {protocol.optimizer}'}"
        )
        if protocol.precision == AUTO:
            self.say(precision_line(record))
        from_scratch = record.initial_weights.label == "from scratch"
        if protocol.pretrained == "auto" and from_scratch and not record.stand_in:
            self.warning(
                "No ImageNet weights are on the server (FDG_PRETRAINED_FILE names them): training starts from scratch."
            )

    def _stop(self, reason: str) -> None:
        self.error(f"stopped: {reason}")
        if self._rounds is not None:
            self._rounds.record.status, self._rounds.record.stopped_because = "stopped", reason
            with suppress(DataError):  # the disk may be unwritable, which the log already says
                self._rounds.files.save_record()
