# SPDX-License-Identifier: Apache-2.0
"""What a network learns: targets, loss, scores, and how methods read features, as one declared value per task.

    >>> import torch
    >>> from fdg_plugins.tasks import TASKS
    >>> task = TASKS.get("classification")
    >>> logits, labels = torch.tensor([[2.0, 0.0], [0.0, 2.0]]), torch.tensor([0, 0])
    >>> round(float(task.loss(logits, labels)), 4)
    1.1269

A model is evaluated by sums and counts, which add up over batches, sites and domains; only their quotient is displayed:

    >>> score = task.sums(logits, labels)[task.score.name]
    >>> float(score.total), score.samples, task.score.text(float(score.total) / score.samples)
    (1.0, 2, '50.0 %')

An installed plug-in announces a task by an entry point of the group ``fdg_plugins.tasks``.
"""

from fdg_plugins.tasks.classification import CLASSIFICATION, GROUP_CLASSIFICATION, MULTILABEL
from fdg_plugins.tasks.counts import Counts
from fdg_plugins.tasks.score import ScoreKind, Sum
from fdg_plugins.tasks.segmentation import SEGMENTATION
from fdg_plugins.tasks.task import TASKS, Accumulator, Score, SumAndCount, Task

DEFAULT_TASK: Task = CLASSIFICATION
"""The task of a data set or protocol that specifies none."""

__all__ = [
    "CLASSIFICATION",
    "DEFAULT_TASK",
    "GROUP_CLASSIFICATION",
    "MULTILABEL",
    "SEGMENTATION",
    "TASKS",
    "Accumulator",
    "Counts",
    "Score",
    "ScoreKind",
    "Sum",
    "SumAndCount",
    "Task",
]
