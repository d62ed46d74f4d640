# SPDX-License-Identifier: Apache-2.0
"""What a site's training and evaluation yield, ready to send or to keep; and what it counts of a finished model."""

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

import numpy as np
import torch

from fdg_plugins.core.bootstrap import GAINS, PAIRED
from fdg_plugins.messages import Evaluation, ScoreSum, TrainReport
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives.objective import to_report
from fdg_plugins.state.site_memory import Kept
from fdg_plugins.tasks import Counts, Score
from fdg_plugins.tasks.counts import BY_CLASS, pack, support


class TrainResult(NamedTuple):
    """The result of one round of local training.

    ``update``: local - global, as dense contiguous CPU tensors. ``report``: the training report. ``tensors``: the
    method's report. ``kept``: what the site keeps for its next round: the tensors of the method's memory, its own
    parameters and buffers, and its momentum; the last two are empty if there are none or any is not finite.
    """

    update: dict[str, torch.Tensor]
    report: TrainReport
    tensors: dict[str, torch.Tensor]
    kept: Kept


def evaluation_of(split: Literal["train", "validation", "test"], score: Score) -> Evaluation:
    """Return a model's score on a split as a message."""
    sums = {name: ScoreSum(sum=total, count=count) for name, (total, count) in score.sums.items()}
    counts = {name: pack(counted) for name, counted in score.counts.items()}
    return Evaluation(split=split, loss=score.loss, count=score.count, sums=sums, counts=counts)


def personal_part(model: ExtractorClassifier, names: Iterable[str]) -> dict[str, torch.Tensor]:
    """Return the parameters and buffers ``names`` of ``model``; none of them if any is not finite."""
    state = model.state_dict()
    own = to_report({name: state[name] for name in names})
    usable = all(bool(value.isfinite().all()) for value in own.values())
    return own if usable else {}


def make_update(local: Mapping[str, torch.Tensor], received: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return local - global for every key of ``received``, as dense contiguous CPU tensors, which FLARE requires.

    A tensor that the network has under several names was received under each, and began with the last of them: under
    differential privacy, each has separate noise. Truth values have no difference: theirs is true where the two are
    not the same.
    """
    places = {name: (value.data_ptr(), value.shape, value.stride()) for name, value in local.items()}
    begun = {places[name]: name for name in local if name in received}
    update = {}
    for name in received:
        after, before = local[name].detach().cpu(), received[begun[places[name]]].cpu()
        difference = after != before if before.dtype is torch.bool else after - before
        update[name] = difference.contiguous(memory_format=torch.contiguous_format)
    return update


def paired_counts(earlier: torch.Tensor, later: torch.Tensor) -> tuple[int, ...]:
    """Return how many of N images both models classify correctly, only the earlier, only the later, and neither.

    ``earlier`` and ``later``: which each classifies correctly, bool ``[N]``, in the order of the images; or their
    scores from 0 to 1, float64: then the numbers of images by what is gained
    (:data:`~fdg_plugins.core.bootstrap.GAINS`).

    >>> paired_counts(torch.tensor([True, True, False]), torch.tensor([True, False, False]))
    (1, 1, 0, 1)
    """
    if earlier.dtype == torch.bool:
        return tuple(torch.bincount(2 * (~earlier).long() + (~later).long(), minlength=len(PAIRED)).tolist())
    steps = ((later - earlier + 1) * (len(GAINS) // 2)).round().long()
    return tuple(torch.bincount(steps, minlength=len(GAINS)).tolist())


def few_of(members: np.ndarray, images: int, least: int) -> np.ndarray:
    """Return the numbers of the classes that fewer than ``least`` images have or lack; ``members``: how many have each.

    A class without images, or of all images, tells of none which image it is, and is none of them.
    """
    others = images - members
    return np.flatnonzero(((members > 0) & (members < least)) | ((others > 0) & (others < least)))


def without_few(counts: Counts, images: int, least: int) -> tuple[Counts, tuple[int, ...]]:
    """Return the counts of so many images, with zeros in the place of the classes :func:`few_of`, and these classes."""
    if (members := support(counts)) is None:
        return counts, ()
    few, kept = few_of(members, images, least), {name: one.copy() for name, one in counts.items()}
    for name in BY_CLASS & kept.keys():
        kept[name][few] = 0
    return kept, tuple(few.tolist())
