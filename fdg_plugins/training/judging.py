# SPDX-License-Identifier: Apache-2.0
"""Computes a method's report and the model's score on the training split in a single pass."""

from collections.abc import Callable, Iterable, Iterator

import torch

from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives.objective import FeatureBatch, evaluating, see
from fdg_plugins.tasks import DEFAULT_TASK, Accumulator, Score, Task
from fdg_plugins.training.loop import Batches, DevicePolicy

Report = Callable[[ExtractorClassifier, Iterable[FeatureBatch], int], dict[str, torch.Tensor]]


def report_and_judge(
    report: Report,
    model: ExtractorClassifier,
    batches: Batches,
    num_classes: int,
    policy: DevicePolicy,
    task: Task = DEFAULT_TASK,
    size: int | None = None,
) -> tuple[dict[str, torch.Tensor], Score]:
    """Return the tensors that ``report`` computes for ``model``, and the model's score, from one pass over ``batches``.

    Both are bitwise identical to the results of separate passes, except that logits put together from windows of
    ``size`` pixels agree only up to rounding. ``batches`` are on the device; those that the report does not read count
    for the score only.
    """
    found, rest = Accumulator(task, policy.device), iter(batches)
    tensors = report(model, _judged(see(model, rest, task, size), model, policy, found, size), num_classes)
    for images, targets in rest:
        found.add(_logits(model, images, policy, task, size), targets)
    return tensors, found.score()


def _judged(
    seen: Iterable[FeatureBatch],
    model: ExtractorClassifier,
    policy: DevicePolicy,
    found: Accumulator,
    size: int | None,
) -> Iterator[FeatureBatch]:
    """Yield the batches of ``seen`` unchanged, adding each one to the score first."""
    for batch in seen:
        # A report's features are float32. If the site evaluates in bfloat16, compute the features again.
        if policy.bfloat16:
            logits = _logits(model, batch.images, policy, batch.task, size)
        else:
            with evaluating(model), torch.no_grad():
                logits = model.classifier(batch.features)
        found.add(logits, batch.targets)
        yield batch


@torch.no_grad()
def _logits(
    model: ExtractorClassifier, images: torch.Tensor, policy: DevicePolicy, task: Task, size: int | None
) -> torch.Tensor:
    """Return the float32 logits as an evaluation computes them."""
    with evaluating(model), policy.autocast():
        logits = task.logits(model, images, size)
    return logits.float()
