# SPDX-License-Identifier: Apache-2.0
"""What the server knows about a site's answer in advance: counts, steps and learning rates.

They follow from the protocol and the census. The server refuses an answer that contradicts them, because a method that
divides by a claimed value would trust the claim.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fdg_plugins.core.steps import batches_per_epoch, effective_steps
from fdg_plugins.data import dataset_spec
from fdg_plugins.errors import ContributionError
from fdg_plugins.messages import CensusReply, Evaluation, TrainReport
from fdg_plugins.objectives import SiteFacts, make_objective
from fdg_plugins.record.run_record import RunRecord
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.tasks import DEFAULT_TASK, TASKS, Task
from fdg_plugins.values import shorten


@dataclass(frozen=True)
class Expected:
    """What one site must report in one round if it follows the protocol on the data it counted in the census."""

    site: str
    domain: str
    num_train: int
    num_validation: int
    num_test: int
    epochs: int
    facts: SiteFacts
    judges_training: bool
    judges_personal: bool = False
    task: Task = DEFAULT_TASK

    def check_training(self, report: TrainReport, samples: Any) -> None:
        """Raise ``ContributionError`` naming the first value in a site's training report that is not as expected."""
        self._same("number of samples", samples, self.num_train, "counted in the census")
        self._same("domain", report.domain, self.domain, "told in the census")
        self._same("steps", report.steps, self.facts.steps, "of this protocol")
        self._close("effective_steps", report.effective_steps, self.facts.effective_steps)
        self._close("learning_rate", report.learning_rate, self.facts.learning_rate)
        if report.epoch_losses is not None:
            self._same("number of epoch_losses", len(report.epoch_losses), self.epochs, "of this protocol")
        for score in (report.received, report.local):
            if score is not None:
                self.check_score(score, "validation")
        if report.training_split is not None:
            self._check_training_split(report.training_split)
        if report.personal is not None:
            self.check_personal(report.personal)

    def _check_training_split(self, scores: Iterable[Evaluation]) -> None:
        if not self.judges_training:
            self._refuse("sent training_split, which this protocol does not ask for")
        for score in scores:
            self.check_score(score, "train")

    def check_personal(self, score: Evaluation) -> None:
        """Raise ``ContributionError`` for the score of a personal model that is not as expected, or not asked for."""
        if not self.judges_personal:
            self._refuse("sent the score of a personal model, which this method does not have")
        self.check_score(score, "validation")

    def check_score(self, score: Evaluation, split: Literal["train", "validation", "test"]) -> None:
        """Raise ``ContributionError`` if a score is for another split or covers another number of images."""
        counts = {"train": self.num_train, "validation": self.num_validation, "test": self.num_test}
        self._same("split of an evaluation", score.split, split, "asked for")
        self._same("count of an evaluation", score.count, counts[split], "counted in the census")
        sums = {name: (one.sum, one.count) for name, one in score.sums.items()}
        if (wrong := self.task.complaint(sums, score.count, len(self.facts.class_counts))) is not None:
            self._refuse(wrong)

    def _same(self, name: str, came: Any, expected: Any, why: str) -> None:
        # An array or tensor has no truth to compare by.
        if isinstance(came, bool) or not isinstance(came, int | float | str | np.generic) or came != expected:
            self._refuse(f"its {name} is {shorten(came)}, expected {expected!r} as {why}")

    def _close(self, name: str, came: float, expected: float) -> None:
        if not math.isclose(came, expected, rel_tol=1e-9):
            self._refuse(f"its {name} is {came:.6g}, expected {expected:.6g} under this protocol")

    def _refuse(self, reason: str) -> None:
        raise ContributionError(f"site {self.site}: {reason}.")


def expected_of(site: str, protocol: Protocol, reply: CensusReply, round_number: int) -> Expected:
    """Return what ``site`` must report in round ``round_number``, counted from 0, given its census reply."""
    objective = make_objective(protocol.objective)
    epochs = protocol.local_epochs + objective.more_epochs
    steps = epochs * batches_per_epoch(reply.num_train, protocol.batch_size)
    task = TASKS.get(protocol.task)
    samples = task.samples_per_image(protocol.image_size, dataset_spec(protocol.dataset).dims)
    return Expected(
        site=site,
        domain=reply.domain,
        num_train=reply.num_train,
        num_validation=reply.num_validation,
        num_test=reply.num_test,
        epochs=epochs,
        facts=SiteFacts(
            steps=steps,
            effective_steps=effective_steps(steps, protocol.momentum),
            learning_rate=protocol.learning_rate_at(round_number),
            num_train=reply.num_train * samples,
            class_counts=tuple(count * samples for count in reply.class_counts),
        ),
        judges_training=protocol.gap_split == "train",
        judges_personal=objective.personalises,
        task=task,
    )


def expectations(record: RunRecord, round_number: int) -> Mapping[str, Expected]:
    """Return, by site, what each site of a run must report in round ``round_number``, counted from 0."""
    return {
        site: expected_of(site, record.protocol, reply, round_number) for site, reply in sorted(record.census.items())
    }
