# SPDX-License-Identifier: Apache-2.0
"""The answers to one round's requests, each validated against what the server knows about its site."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from nvflare.app_common.abstract.fl_model import FLModel

from fdg_plugins.aggregators import NotFiniteError, UpdateAggregator
from fdg_plugins.controllers.channel import ReportChannel
from fdg_plugins.controllers.expectations import Expected
from fdg_plugins.errors import ContributionError
from fdg_plugins.flare.stored_tensor import is_reference, size_of
from fdg_plugins.messages import (
    META_REPORT,
    META_SAMPLES,
    META_UPDATE_BYTES,
    TASK_TRAIN,
    Evaluation,
    SiteEvaluation,
    TrainReport,
)
from fdg_plugins.plugins.reports import CheckedReports
from fdg_plugins.record.run_record import LocalRecord, RunRecord
from fdg_plugins.training.global_model import count_bytes
from fdg_plugins.values import one_line


@dataclass
class Answers:
    """The result of one round's requests, by site.

    ``scores``: evaluations of the model that was sent. ``personal``: of the sites' own models at that time. ``local``:
    local training behind each usable update.
    ``refused_reports`` and ``refused_updates``: reasons for each refusal. ``not_finite``: sites where the model that
    was sent gave no finite loss or update. ``statistics``: sites whose normalization statistics the model that was sent
    has. ``bytes_up``: bytes of all tensors that arrived; ``bytes_in_files``: of updates in files.
    """

    scores: dict[str, Evaluation] = field(default_factory=dict)
    personal: dict[str, Evaluation] = field(default_factory=dict)
    local: dict[str, LocalRecord] = field(default_factory=dict)
    refused_reports: dict[str, str] = field(default_factory=dict)
    refused_updates: dict[str, str] = field(default_factory=dict)
    not_finite: set[str] = field(default_factory=set)
    statistics: tuple[str, ...] = ()
    bytes_up: int = 0
    bytes_in_files: int = 0
    unchecked: str | None = None  # a site whose answer lacks the checked reports that determine the weights

    def take_score(self, site: str, score: Evaluation) -> None:
        """Record a site's score for the model that was sent."""
        self.scores[site] = score
        if not math.isfinite(score.loss):
            self.not_finite.add(site)


@dataclass(frozen=True)
class Reception:
    """Reads a round's answers into ``answers``; each method raises ``ContributionError`` for an unusable answer."""

    record: RunRecord
    aggregator: UpdateAggregator
    channel: ReportChannel
    expected: Mapping[str, Expected]
    answers: Answers

    def take_update(self, site: str, answer: FLModel) -> None:
        """Take a site's update and its training report."""
        self._count(answer)
        try:
            self._take_update(site, answer)
        finally:
            # FLARE's context holds the last answer, and hence its files, until the next answer arrives.
            if self.record.protocol.enable_tensor_disk_offload and isinstance(answer.params, dict):
                answer.params.clear()

    def take_score(self, site: str, answer: FLModel) -> None:
        """Take the score of a site that only evaluates the model that was sent."""
        found = SiteEvaluation.read(answer.metrics, f"site {site}: evaluation", ContributionError)
        score, held_out = found.of_global, site in self.record.held_out
        self.expected[site].check_score(score, "test" if held_out else "validation")
        self._take_personal(site, found.personal)
        self.answers.take_score(site, score)

    def take_report(self, task: str, site: str, answer: FLModel) -> None:
        """Take the method's report, which makes up the whole answer to ``task``."""
        checked, exchange = self._read_reports(task, site, answer), self.channel.exchange
        if exchange is not None and exchange.report not in checked.looked_at:
            raise ContributionError(f"site {site}: its answer is not a report.")
        self.channel.take(task, site, checked)

    def _read_reports(self, task: str, site: str, answer: FLModel) -> CheckedReports:
        """Return the reports in an answer to ``task``; record the reason if the method's report was refused."""
        checked, exchange = self.channel.read(task, answer), self.channel.exchange
        self.answers.bytes_up += checked.num_bytes
        if exchange is not None and exchange.report in checked.refused:
            reason = checked.refused[exchange.report]
            self.answers.refused_reports[site] = one_line(reason.removeprefix(f"site {site}: "))
        return checked

    def _take_update(self, site: str, answer: FLModel) -> None:
        answers = self.answers
        checked = self._read_reports(TASK_TRAIN, site, answer)
        report = TrainReport.read(answer.meta.get(META_REPORT), f"site {site}: report", ContributionError)
        self.expected[site].check_training(report, answer.meta.get(META_SAMPLES))
        if report.received is not None:
            answers.take_score(site, report.received)
        if report.personal is not None:
            answers.personal[site] = report.personal
        self._accept(site, answer)
        # Only of an update that could be used: one of another form passes the job's check unread.
        if self.aggregator.rule().needs_reports and self.aggregator.rule().shares not in checked.looked_at:
            answers.unchecked = site
        self.channel.take(TASK_TRAIN, site, checked)
        answers.local[site] = LocalRecord(
            epoch_losses=report.epoch_losses,
            local=report.local,
            steps=report.steps,
            learning_rate=report.learning_rate,
            num_samples=answer.meta[META_SAMPLES],
            seconds=report.seconds,
            keeps_state=report.keeps_state,
        )

    def _take_personal(self, site: str, score: Evaluation | None) -> None:
        """Record the score of a site's own model; refuse one that the site cannot have."""
        if score is None:
            return
        self.expected[site].check_personal(score)
        if site in self.record.held_out:
            raise ContributionError(
                f"site {site}: sent the score of a personal model, which held-out sites do not have."
            )
        self.answers.personal[site] = score

    def _accept(self, site: str, answer: FLModel) -> None:
        try:
            self.aggregator.accept_model(answer)
        except NotFiniteError:
            self.answers.not_finite.add(site)
            raise

    def _count(self, answer: FLModel) -> None:
        """Add the size of an update as it arrived, whether or not it can be used; a rounded one has been widened since.

        Nothing in the answer has been checked yet, so the size that the filter has noted counts only if it can be.
        """
        size, came = count_bytes(answer.params), (answer.meta or {}).get(META_UPDATE_BYTES)
        is_rounded = self.record.protocol.update_precision != "float32"  # else no filter has set it
        self.answers.bytes_up += came if is_rounded and isinstance(came, int) and 0 <= came <= size else size
        if isinstance(answer.params, Mapping):
            self.answers.bytes_in_files += sum(map(size_of, filter(is_reference, answer.params.values())))
