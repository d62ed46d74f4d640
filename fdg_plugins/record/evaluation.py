# SPDX-License-Identifier: Apache-2.0
"""The record of an evaluation of finished models, ``evaluation.json``."""

from collections.abc import Iterable

import numpy as np
import pydantic

from fdg_plugins.messages import ModelScores
from fdg_plugins.record.round_record import Recorded
from fdg_plugins.tasks import TASKS, Counts, ScoreKind, Task


class EvaluatedModel(Recorded):
    """A model: the SHA-256 of its file, its method, the data and the domains on which it was trained."""

    name: str
    sha256: str
    method: str
    trained_on: str
    sources: tuple[str, ...]


class SiteScores(Recorded):
    """What one site counted of the models by name; ``failures``: why it did not evaluate one."""

    domain: str
    images: int
    models: dict[str, ModelScores] = pydantic.Field(default_factory=dict)
    failures: dict[str, str] = pydantic.Field(default_factory=dict)


class EvaluationResult(Recorded):
    """The content of ``evaluation.json``; ``left_out``: the sites that evaluated none of the models, with the reason.

    No selection rule reads it.
    """

    schema_version: int = 1
    job: str
    started: str
    task: str
    scores: tuple[str, ...]
    data: str
    stand_in: bool
    classes: tuple[str, ...]
    models: tuple[EvaluatedModel, ...]
    sites: dict[str, SiteScores]
    left_out: dict[str, str]
    versions: dict[str, str]

    @property
    def learned(self) -> Task:
        """The task, with the scores that are computed from counts."""
        return TASKS.get(self.task).asked(self.scores)

    @property
    def score(self) -> ScoreKind:
        """The score by which models are compared."""
        return self.learned.score

    def counts(self, scores: Iterable[ModelScores]) -> Counts:
        """Return a model's counts, added up over sites."""
        each = [self.learned.read_counts(one.counts, len(self.classes)) for one in scores]
        return {name: np.sum([one[name] for one in each], axis=0) for name in self.learned.reads}
