# SPDX-License-Identifier: Apache-2.0
"""The answers to one round's requests, each checked against what the server knows about its site in advance.

Counts, steps and learning rates follow from the protocol and the census. The server refuses an answer that contradicts
them, because a method that divides by a claimed value would trust the claim.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

import numpy as np
import torch
from nvflare.app_common.abstract.fl_model import FLModel

from fdg_plugins.aggregators.contributions import NotFiniteError
from fdg_plugins.controllers.run_files import ServerRun
from fdg_plugins.core.batch_statistics import ChannelSums, pooled
from fdg_plugins.core.outliers import far_above_median
from fdg_plugins.core.steps import batches_per_epoch, effective_steps
from fdg_plugins.data import dataset_spec
from fdg_plugins.errors import ContributionError, one_line, shorten
from fdg_plugins.flare.stored_tensor import is_reference, size_of
from fdg_plugins.messages import (
    META_CHECKED_REPORTS,
    META_REPORT,
    META_SAMPLES,
    META_UPDATE_BYTES,
    TASK_TRAIN,
    CensusReply,
    Evaluation,
    SiteEvaluation,
    TrainReport,
)
from fdg_plugins.models.batch_norm import NormLayer
from fdg_plugins.objectives import SiteFacts, make_objective
from fdg_plugins.objectives.exchange import PayloadValidator
from fdg_plugins.plugins.reports import CheckedReports
from fdg_plugins.record.round_record import LocalRecord
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.tasks import DEFAULT_TASK, Task
from fdg_plugins.training.global_model import count_bytes
from fdg_plugins.training.statistics import read_payload, running_statistics


@dataclass(frozen=True)
class Expected:
    """What one site must report in one round if it follows the protocol on the data it counted in the census."""

    site: str
    reply: CensusReply
    epochs: int
    facts: SiteFacts
    judges_training: bool
    judges_personal: bool = False
    task: Task = DEFAULT_TASK

    def check_training(self, report: TrainReport, samples: Any) -> None:
        """Raise ``ContributionError`` naming the first value in a site's training report that is not as expected."""
        self._same("number of samples", samples, self.reply.num_train, "counted in the census")
        self._same("domain", report.domain, self.reply.domain, "told in the census")
        self._same("steps", report.steps, self.facts.steps, "of this protocol")
        for name in ("effective_steps", "learning_rate"):
            came, expected = getattr(report, name), getattr(self.facts, name)
            if not math.isclose(came, expected, rel_tol=1e-9):
                self._refuse(f"its {name} is {came:.6g}, expected {expected:.6g} under this protocol")
        if report.epoch_losses is not None:
            self._same("number of epoch_losses", len(report.epoch_losses), self.epochs, "of this protocol")
        if report.training_split is not None and not self.judges_training:
            self._refuse("sent training_split, which this protocol does not ask for")
        self.check_score(report.received, "validation")
        self.check_score(report.local, "validation", counted=False)
        for score in report.training_split or ():
            self.check_score(score, "train", counted=False)
        self.check_personal(report.personal)

    def check_personal(self, score: Evaluation | None, *, has_model: bool = True) -> None:
        """Raise ``ContributionError`` for the score of a personal model that is not as expected, or not asked for.

        ``has_model``: whether the site may have such a model; a held-out one has none.
        """
        if score is not None and not (self.judges_personal and has_model):
            self._refuse("sent the score of a personal model, which it does not have under this method")
        self.check_score(score, "validation")

    def check_score(
        self, score: Evaluation | None, split: Literal["train", "validation", "test"], *, counted: bool = True
    ) -> None:
        """Raise ``ContributionError`` if a score is for another split or covers another number of images.

        ``counted``: whether the scores that the protocol asks for belong to it.
        """
        if score is None:
            return
        self._same("split of an evaluation", score.split, split, "asked for")
        self._same("count of an evaluation", score.count, getattr(self.reply, f"num_{split}"), "counted in the census")
        task, classes = self.task if counted else self.task.asked(()), len(self.facts.class_counts)
        sums = {name: (one.sum, one.count) for name, one in score.sums.items()}
        try:
            task.checked(sums, score.counts, score.count, classes)
        except ValueError as error:
            self._refuse(str(error))

    def _same(self, name: str, came: Any, expected: Any, why: str) -> None:
        # An array or tensor has no truth to compare by.
        if isinstance(came, bool) or not isinstance(came, int | float | str | np.generic) or came != expected:
            self._refuse(f"its {name} is {shorten(came)}, expected {expected!r} as {why}")

    def _refuse(self, reason: str) -> NoReturn:
        raise ContributionError(f"site {self.site}: {reason}.")


def expectations(protocol: Protocol, census: Mapping[str, CensusReply], round_number: int) -> dict[str, Expected]:
    """Return, by site, what each must report in round ``round_number``, counted from 0, given its census reply."""
    objective, task = make_objective(protocol.objective), protocol.learned
    epochs, rate = protocol.local_epochs + objective.more_epochs, protocol.learning_rate_at(round_number)
    samples = task.samples_per_image(protocol.image_size, dataset_spec(protocol.dataset).dims)
    found = {}
    for site, reply in sorted(census.items()):
        steps = epochs * batches_per_epoch(reply.num_train, protocol.batch_size)
        counts = tuple(count * samples for count in reply.class_counts)
        facts = SiteFacts(steps, effective_steps(steps, protocol.momentum), rate, reply.num_train * samples, counts)
        found[site] = Expected(site, reply, epochs, facts, protocol.gap_split == "train", objective.personalises, task)
    return found


@dataclass
class Answers:
    """The answers to one round's requests, by site; each ``take_`` raises ``ContributionError`` for an unusable one.

    ``expected``: what each site must report. ``scores``: evaluations of the model that was sent. ``personal``: of the
    sites' own models at that time. ``local``: local training behind each usable update. ``reports``: for the method's
    exchange, committed together with the updates. ``failures`` and ``refused_reports``: why a
    site gave no usable answer, or no usable report. ``not_finite``: sites where the model that was sent gave no finite
    loss or update. ``statistics``: sites whose normalization statistics the model that was sent has. ``bytes_up``:
    bytes of all tensors that arrived; ``bytes_in_files``: of updates in files.
    """

    run: ServerRun
    expected: Mapping[str, Expected]
    scores: dict[str, Evaluation] = field(default_factory=dict)
    personal: dict[str, Evaluation] = field(default_factory=dict)
    local: dict[str, LocalRecord] = field(default_factory=dict)
    reports: dict[str, Any] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    refused_reports: dict[str, str] = field(default_factory=dict)
    not_finite: set[str] = field(default_factory=set)
    statistics: tuple[str, ...] = ()
    bytes_up: int = 0
    bytes_in_files: int = 0

    def take_update(self, site: str, answer: FLModel) -> None:
        """Take a site's update and its training report."""
        self._count(answer)
        try:
            self._take_update(site, answer)
        finally:
            # FLARE's context holds the last answer, and hence its files, until the next answer arrives.
            if self.run.record.protocol.enable_tensor_disk_offload and isinstance(answer.params, dict):
                answer.params.clear()

    def _take_update(self, site: str, answer: FLModel) -> None:
        checked = self._read_reports(site, answer)
        report = TrainReport.read(answer.meta.get(META_REPORT), f"site {site}: report", ContributionError)
        answer.meta[META_REPORT] = report  # so that the aggregator need not parse it again
        self.expected[site].check_training(report, answer.meta.get(META_SAMPLES))
        self._keep_scores(site, report.received, report.personal)
        try:
            self.run.aggregator.accept_model(answer)
        except NotFiniteError:
            self.not_finite.add(site)
            raise
        self._keep_report(TASK_TRAIN, site, checked)
        self.local[site] = LocalRecord(
            num_samples=answer.meta[META_SAMPLES],
            **{name: getattr(report, name) for name in LocalRecord.model_fields if name != "num_samples"},
        )

    def take_score(self, site: str, answer: FLModel) -> None:
        """Take the score of a site that only evaluates the model that was sent."""
        found = SiteEvaluation.read(answer.metrics, f"site {site}: evaluation", ContributionError)
        held_out, expected = site in self.run.record.held_out, self.expected[site]
        expected.check_score(found.of_global, "test" if held_out else "validation")
        expected.check_personal(found.personal, has_model=not held_out)
        self._keep_scores(site, found.of_global, found.personal)

    def take_report(self, task: str, site: str, answer: FLModel) -> None:
        """Take the method's report, which makes up the whole answer to ``task``."""
        checked = self._read_reports(site, answer)
        if self.run.exchange is not None and self.run.exchange.report not in checked.looked_at:
            raise ContributionError(f"site {site}: its answer is not a report.")
        self._keep_report(task, site, checked)

    def _keep_scores(self, site: str, score: Evaluation | None, personal: Evaluation | None) -> None:
        if score is not None:
            self.scores[site] = score
            if not math.isfinite(score.loss):
                self.not_finite.add(site)
        if personal is not None:
            self.personal[site] = personal

    def _read_reports(self, site: str, answer: FLModel) -> CheckedReports:
        """Return what the server's filters found of the reports in an answer; record why the method's was refused.

        A refused report does not invalidate its update.
        """
        checked = CheckedReports.of((answer.meta or {}).get(META_CHECKED_REPORTS))
        self.bytes_up += checked.num_bytes
        if self.run.exchange is not None and (reason := checked.refused.get(self.run.exchange.report)) is not None:
            self.refused_reports[site] = one_line(reason.removeprefix(f"site {site}: "))
        return checked

    def _keep_report(self, task: str, site: str, checked: CheckedReports) -> None:
        """Keep a site's report once its answer to ``task`` has been accepted, if such answers carry the reports."""
        exchange = self.run.exchange
        if exchange is not None and exchange.phase == task and exchange.report in checked:
            self.reports[site] = checked[exchange.report]

    def _count(self, answer: FLModel) -> None:
        """Add the size of an update as it arrived, whether or not it can be used; a rounded one has been widened since.

        Nothing in the answer has been checked yet, so the size that the filter has noted counts only if it can be.
        """
        size, came = count_bytes(answer.params), (answer.meta or {}).get(META_UPDATE_BYTES)
        is_rounded = self.run.record.protocol.update_precision != "float32"  # else no filter has set it
        self.bytes_up += came if is_rounded and isinstance(came, int) and 0 <= came <= size else size
        if isinstance(answer.params, Mapping):
            self.bytes_in_files += sum(map(size_of, filter(is_reference, answer.params.values())))

    def drop_update(self, site: str, reason: str) -> None:
        """Take a site's update, and its report, out of the round again."""
        self.run.aggregator.contributions.pop(site, None)
        self.reports.pop(site, None)
        self.local.pop(site, None)
        self.failures[site] = reason


class SiteStatistics:
    """The answers of one round's sites to the task ``statistics``.

    ``layers``: the layers to measure. ``num_train``: each site's training images, from the census. ``outlier_ratio``:
    that of the protocol; 0 disables the comparison of sites.
    """

    def __init__(
        self, layers: Mapping[str, NormLayer], num_train: Mapping[str, int], outlier_ratio: float = 0.0
    ) -> None:
        self.layers = layers
        self.num_train = num_train
        self.outlier_ratio = outlier_ratio
        self.num_bytes = 0
        self._by_site: dict[str, dict[str, ChannelSums]] = {}

    @property
    def sites(self) -> tuple[str, ...]:
        """The sites whose statistics count, sorted."""
        return tuple(sorted(self._by_site))

    def take(self, site: str, answer: FLModel) -> None:
        """Keep a site's statistics; raise ``ContributionError`` if they are malformed or not of its images."""
        self.num_bytes += count_bytes(answer.metrics)
        validator = PayloadValidator(f"site {site}: normalization statistics", ContributionError)
        self._by_site[site] = read_payload(validator, answer.metrics, self.layers, self.num_train[site])

    def refuse_outliers(self) -> dict[str, str]:
        """Exclude the sites whose inputs of a layer are far larger than is usual; return the reason for each.

        The size of a layer's inputs is the root of their mean square.
        """
        sizes = {
            site: {
                f"inputs of layer {layer}": math.sqrt(float(sums.squares.sum()) / (sums.count * len(sums.squares)))
                for layer, sums in found.items()
            }
            for site, found in self._by_site.items()
        }
        refused = far_above_median(sizes, self.outlier_ratio)
        for site in refused:
            del self._by_site[site]
        return refused

    def pooled(self) -> dict[str, torch.Tensor]:
        """Return the running statistics over the images of all these sites, by their names in the state dict."""
        return running_statistics(
            {layer: pooled({site: found[layer] for site, found in self._by_site.items()}) for layer in self.layers}
        )
