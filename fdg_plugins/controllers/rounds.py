# SPDX-License-Identifier: Apache-2.0
"""The rounds of a run: requests to the sites, aggregation of their answers, and the files written."""

import time
from collections.abc import Callable, Collection, Iterable
from functools import partial

from nvflare.app_common.abstract.fl_model import FLModel

from fdg_plugins.aggregators import take_step
from fdg_plugins.controllers.guard import Guard
from fdg_plugins.controllers.messenger import Messenger, ModelSender, Request, StragglerTimeout
from fdg_plugins.controllers.reception import Answers, SiteStatistics, expectations
from fdg_plugins.controllers.run_files import FILES, ServerRun
from fdg_plugins.errors import DataError, FDGError, calling, counted, logged, told
from fdg_plugins.filters import EXCHANGE_PROP, ExchangeRound
from fdg_plugins.messages import META_REPORT, TASK_EVALUATE, TASK_PROBE, TASK_STATISTICS, TASK_TRAIN, TaskRequest
from fdg_plugins.record.round_record import AggregationRecord, RoundRecord
from fdg_plugins.record.run_record import EvaluationRecord, RunRecord
from fdg_plugins.record.text import why_unchanged
from fdg_plugins.training.global_model import count_bytes, save_local_models

MAX_IDLE_ROUNDS = 3  # in a row, without a step, after which a run ends


class Rounds:
    """The rounds of one run; asks sites through the messenger."""

    def __init__(self, messenger: Messenger, run: ServerRun) -> None:
        self.messenger, self.run = messenger, run
        self.record, self.protocol = run.record, run.record.protocol
        self.model, self.rule, self.exchange = run.model, run.aggregator, run.exchange
        self.guard = Guard(run)
        self.sender = ModelSender(run.model)
        self.answers = Answers(run, {})  # to the requests of the round
        self._current: ExchangeRound | None = None

    def run_round(self, number: int) -> tuple[RoundRecord, EvaluationRecord]:
        """Run round ``number``, counted from 1; return its record and the evaluation of the model sent in it.

        Raises ``FDGError`` if too few sites are left.
        A round without a step that ends the run is not saved: a job that resumes the run repeats it.
        """
        started, sent_before = time.perf_counter(), self.sender.bytes_down
        record, answers = self.record, self._expect(number - 1)
        drawn = self.protocol.draw_sites(self._taking_part(record.sources), number)
        reasons = "; ".join(f"{site} {reason}" for site, reason in record.left_out.items())
        self._check_enough(drawn, f"sites are left to train ({reasons})")
        self._reestimate(number, drawn)
        self._begin(number, drawn)
        self._probe(number, drawn)
        judges = self._taking_part(record.held_out)
        if self.protocol.validate_all:
            judges = tuple(sorted({*judges, *self._taking_part(record.sources)} - set(drawn)))
        requests = [
            *self._requests(TASK_TRAIN, drawn, number, answers.take_update),
            *self._requests(TASK_EVALUATE, judges, number, answers.take_score),
        ]
        bytes_down = self.sender.bytes_down - sent_before + self._bytes_beside(drawn)
        self._ask(requests, TASK_TRAIN)
        answers.not_finite |= self.messenger.not_finite
        self._raise_if_broken()
        # The evaluation covers the model as sent, so record it, and keep the model if it is the best, before the step.
        evaluation = self._judge(number - 1, self._taking_part(record.sources) if self.protocol.validate_all else drawn)
        aggregating = time.perf_counter()
        aggregation, reason = self._step()
        ended = time.perf_counter()
        finished = RoundRecord(
            round=number,
            drawn=drawn,
            sites=tuple(sorted(answers.local)),
            statistics=answers.statistics,
            failures=dict(sorted(answers.failures.items())),
            refused_reports=dict(sorted(answers.refused_reports.items())),
            not_finite=tuple(sorted(answers.not_finite)),
            local=dict(sorted(answers.local.items())),
            aggregation=aggregation,
            classifier_disagreement=None if self.exchange is None else self.exchange.disagrees,
            reason=reason,
            seconds=ended - started,
            aggregation_seconds=ended - aggregating,
            bytes_down=bytes_down,
            bytes_up=answers.bytes_up,
            bytes_in_files=answers.bytes_in_files,
        )
        record.rounds.append(finished)
        check_progress(record)
        self.run.save()
        return finished, evaluation

    def evaluate_last(self) -> EvaluationRecord:
        """Have every site evaluate the model after the last round; return the evaluation."""
        done, sources = len(self.record.rounds), self._taking_part(self.record.sources)
        answers = self._expect(done)
        self._reestimate(done + 1, sources)
        sites = tuple(sorted((*sources, *self._taking_part(self.record.held_out))))
        self._ask(self._requests(TASK_EVALUATE, sites, done, answers.take_score))
        return self._judge(done, sources)

    def _expect(self, round_number: int) -> Answers:
        self.answers = Answers(self.run, expectations(self.protocol, self.record.census, round_number))
        return self.answers

    def _begin(self, number: int, drawn: tuple[str, ...]) -> None:
        self.rule.begin_round(self.model.layout, drawn, number - 1, self.protocol.rounds, self.record.left_out)
        if self.exchange is not None:
            facts = {site: expected.facts for site, expected in self.answers.expected.items()}
            self.exchange.begin_round(self.model.state, facts)
            self._current = ExchangeRound(self.exchange, number - 1)  # for the filters
            self.messenger.fl_ctx.set_prop(EXCHANGE_PROP, self._current, private=True, sticky=True)

    def _raise_if_broken(self) -> None:
        if self._current is not None and self._current.broken is not None:
            raise self._current.broken

    def _bytes_beside(self, sites: Iterable[str]) -> int:
        """Return the size of the tensors that the exchange sends to all of ``sites`` beside the model, in bytes."""
        return 0 if self.exchange is None else sum(count_bytes(self.exchange.broadcast(site)) for site in sites)

    def _check_enough(self, sites: Collection[str], what: str) -> None:
        if len(sites) < (least := self.protocol.min_sites):
            raise FDGError(f"{len(sites)} {what}, fewer than min_sites {least}.")

    def _taking_part(self, sites: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(site for site in sites if site not in self.record.left_out)

    def _ask(self, requests: list[Request], task: str = "") -> None:
        """Ask the sites; record the reason for each failure, and the sites that take no further part.

        ``task``: the one whose stragglers are waited for no longer than the protocol's ``patience``.
        """
        patience = None
        if task and self.protocol.patience is not None:
            patience = StragglerTimeout(self.protocol.patience, self.protocol.min_sites, task)
        failures = self.messenger.ask(requests, self.protocol.task_timeout, patience)
        self.sender.note(tuple(site for request in requests for site in request.sites), failures)
        for site in sorted(self.messenger.departed.keys() & self.record.census):
            self.record.left_out.setdefault(site, f"takes no further part: {self.messenger.departed[site]}")
        before = f"{task}: " if task in (TASK_STATISTICS, TASK_PROBE) else ""
        self.answers.failures |= {site: f"{before}{reason}" for site, reason in failures.items()}

    def _reestimate(self, number: int, sites: tuple[str, ...]) -> None:
        """Measure the model's normalization statistics anew at ``sites``, where the protocol says so.

        With fewer usable answers than ``min_sites``, the averaged statistics stay.
        """
        if not self.model.reestimated:
            return
        num_train = {site: self.record.census[site].num_train for site in sites}
        found = SiteStatistics(self.model.reestimated, num_train, self.protocol.outlier_ratio)
        requests = self._requests(TASK_STATISTICS, sites, number, found.take, exchanged=False)
        self._ask(requests, TASK_STATISTICS)
        for site, reason in found.refuse_outliers().items():
            self.messenger.warning(f"site {site}: statistics refused: {reason}")
            self.answers.failures[site] = f"{TASK_STATISTICS}: {reason}"
        self.answers.bytes_up += found.num_bytes
        try:
            self._check_enough(found.sites, "usable statistics came")
            self.model.replace(found.pooled())
        except FDGError as error:
            self.messenger.warning(f"The normalization statistics stay as averaged: {error}")
        else:
            self.answers.statistics = found.sites
            self.run.save_last()

    def _probe(self, number: int, drawn: tuple[str, ...]) -> None:
        """Request the reports that the method needs before training."""
        if self.exchange is None or self.exchange.phase != TASK_PROBE:
            return
        take = partial(self.answers.take_report, TASK_PROBE)
        self._ask(self._requests(TASK_PROBE, drawn, number, take), TASK_PROBE)
        self._raise_if_broken()
        self._refuse_reports()
        self.exchange.finish(self.answers.reports)
        self.answers.reports = {}

    def _requests(
        self,
        task: str,
        sites: tuple[str, ...],
        number: int,
        on_answer: Callable[[str, FLModel], None],
        *,
        exchanged: bool = True,
    ) -> list[Request]:
        request = TaskRequest(protocol=self.protocol, stand_in=self.record.stand_in, run=self.record.run)
        # A method may have something for some sites only, as another site's report.
        receiving = [site for site in sites if exchanged and self._bytes_beside((site,))]
        return self.sender.requests(task, sites, number, on_answer, request, receiving)

    def _judge(self, after_round: int, expected: Iterable[str]) -> EvaluationRecord:
        """Record the scores of the model; keep a copy if source validation selects it. The target never selects."""
        evaluation = self.record.add_evaluation(after_round, self.answers.scores, expected, self.answers.personal)
        self.record.choices = self.record.choose(FILES)
        for choice in self.record.choices:
            if choice.rule == "source_validation" and choice.after_round == after_round:
                self.run.keep_selected(after_round)
        return evaluation

    def _step(self) -> tuple[AggregationRecord | None, str | None]:
        """Take the round's step and return its record; else leave model and exchange unchanged, and return why."""
        self._refuse_updates()
        self._refuse_reports()
        try:
            return self._move()
        finally:
            self.rule.reset_stats()  # also if no step was taken, since updates may be held in files

    def _refuse_updates(self) -> None:
        try:
            refused = self.guard.updates(self.answers.expected)
            self.model.clamp_variances([one.update for one in self.rule.contributions.values()])
        except DataError:  # an update's file is gone; the step needs it too and reports the error
            return
        for site, reason in refused.items():
            self.messenger.warning(f"site {site}: {reason}")
            self.answers.drop_update(site, reason)

    def _refuse_reports(self) -> None:
        """Exclude outlying method reports from the round; an update goes with the report that gives its weight."""
        if self.exchange is None:
            return
        for site, reason in self.exchange.outliers(self.answers.reports, self.protocol.outlier_ratio).items():
            self.messenger.warning(f"site {site}: report refused: {reason}")
            self.answers.reports.pop(site)
            self.answers.refused_reports[site] = reason
            if self.rule.rule().shares == self.exchange.report:
                why = f"its weight follows from its report, which was refused: {reason}"
                self.answers.drop_update(site, why)

    def _move(self) -> tuple[AggregationRecord | None, str | None]:
        """Commit the round's updates together with their reports, or neither."""
        before, accepted = self.run.checkpoint(), self.rule.contributions
        longest = max((one.length for one in accepted.values()), default=0.0)
        keeps = self.protocol.keep_local_models and len(self.record.rounds) == self.protocol.rounds - 1
        updates = {site: contribution.update for site, contribution in accepted.items()} if keeps else {}
        try:
            self._check_enough(self.answers.local, "usable updates came")
            result = take_step(self.rule)
            aggregation = AggregationRecord.from_report(result.meta[META_REPORT])
            self.guard.step(result.params, longest)
            self.model.apply(result.params)
            if self.exchange is not None:
                if self.exchange.phase == TASK_TRAIN:
                    self.exchange.finish(self.answers.reports)
                with calling("exchange", self.exchange):
                    self.exchange.read_model(self.model.state)  # else it could not begin the next round
        except (FDGError, ArithmeticError) as error:
            self.run.restore(before)  # this also restores the weights derived from the round's reports
            self.messenger.warning(f"The model stays as it was: {logged(error)}")
            return None, told(error)
        description = self.record.description_of_model(len(self.record.rounds))
        save_local_models(self.run.folder, before.model, updates, description)
        self.run.keep_local_models()
        return aggregation, None


def check_progress(record: RunRecord) -> None:
    """Raise ``FDGError`` if the last three rounds, or all of a shorter run, left the model as it was."""
    most = min(MAX_IDLE_ROUNDS, record.protocol.rounds)
    last = record.rounds[-most:]
    if len(last) == most and all(one.is_idle for one in last):
        why = why_unchanged(last[-1])
        raise FDGError(f"{counted(most, 'round')} in a row left the model as it was; the last because {why}.")
