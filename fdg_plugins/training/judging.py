# SPDX-License-Identifier: Apache-2.0
"""The training split seen once, for a report of the method and for the model's score on it."""

from collections.abc import Callable, Iterable, Iterator

import torch

from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives.objective import Seen, evaluating, see
from fdg_plugins.tasks import DEFAULT_TASK, Accumulator, Score, Task
from fdg_plugins.training.loop import Arithmetic, Batches

Report = Callable[[ExtractorClassifier, Iterable[Seen], int], dict[str, torch.Tensor]]


def report_and_judge(
    report: Report,
    model: ExtractorClassifier,
    batches: Batches,
    num_classes: int,
    arithmetic: Arithmetic,
    task: Task = DEFAULT_TASK,
) -> tuple[dict[str, torch.Tensor], Score]:
    """Return what ``report`` makes of ``model`` and the model's score, both from one pass over ``batches``.

    Both have the bits of a pass of their own. Batches are on the device; what the report leaves unread is judged alone.
    """
    found, rest = Accumulator(task, arithmetic.device), iter(batches)
    tensors = report(model, _judged(see(model, rest, task), model, arithmetic, found), num_classes)
    for images, targets in rest:
        found.add(_logits(model, images, arithmetic), targets)
    return tensors, found.score()


def _judged(
    seen: Iterable[Seen], model: ExtractorClassifier, arithmetic: Arithmetic, found: Accumulator
) -> Iterator[Seen]:
    """Yield ``seen`` as it is, each batch counted before."""
    for batch in seen:
        # A report's features are float32; where the site judges in bfloat16, it needs a pass of its own.
        features = None if arithmetic.bfloat16 else batch.features
        found.add(_logits(model, batch.images, arithmetic, features), batch.targets)
        yield batch


@torch.no_grad()
def _logits(
    model: ExtractorClassifier, images: torch.Tensor, arithmetic: Arithmetic, features: torch.Tensor | None = None
) -> torch.Tensor:
    """Return the logits, float32, as an evaluation computes them; of ``features`` where these are known."""
    with evaluating(model), arithmetic.autocast():
        logits = model(images) if features is None else model.classifier(features)
    return logits.float()
