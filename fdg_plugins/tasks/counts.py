# SPDX-License-Identifier: Apache-2.0
"""Counts of predictions that add up over batches, sites and domains, and the scores that follow from their sums.

A site sends whole numbers, never a probability of an image. What is lost is where in its bin a probability lies, so
each score comes with an interval, :class:`Bounded`, in which that of the probabilities themselves is certain to lie.

Shapes: probabilities ``[B, Y]`` in [0, 1]; a histogram is ``[2, K]`` with K = 512 bins of equal width, in row 1 the
images that have the class (or were classified correctly), in row 0 the others; a confusion matrix is ``[Y, Y]``, rows
by label and columns by prediction. Scores are float64; None if nothing was counted that defines one.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from itertools import groupby
from re import fullmatch
from typing import NamedTuple

import numpy as np
import torch

from fdg_plugins.tasks.score import ScoreKind

BINS = 512
WIDE_BINS = 16  # of a reliability diagram
CALIBRATION_BOUND = 1 / (2 * BINS)
PROBABILITIES = "probabilities"  # [Y, 2, K]: histograms of the probability of each class
CONFUSION = "confusion"  # [Y, Y]
CONFIDENCE = "confidence"  # [1, 2, K]: histogram of the probability of the class that is given
BY_CLASS = {PROBABILITIES, CONFUSION}  # which have a row for each class
FEWEST = 30  # images of a class, below which a score of the class is marked
CALIBRATION = "calibration_error"
OF_CLASSES = ("auroc", "auprc", "f1", "balanced_accuracy", CALIBRATION, "sensitivity_at_<percent>")

NORMAL = 1.96  # standard errors on either side of a mean, for 95 %


class Bounded(NamedTuple):
    """A score; that of the probabilities themselves is from ``lowest`` to ``highest``, if it is from counts.

    ``error``: its standard error, over other images of the same kind, at most; None if it is not known.
    """

    value: float
    lowest: float
    highest: float
    error: float | None = None

    def interval_in(self, kind: ScoreKind) -> tuple[float, float] | None:
        """Return the 95 % interval over other images, widened by what the histograms lose; None if it is not known."""
        if self.error is None:
            return None
        low, high = self.lowest - NORMAL * self.error, self.highest + NORMAL * self.error
        return max(kind.lowest, low), min(kind.highest, high)


def exactly(value: float, error: float | None = None) -> Bounded:
    """Return a score of which nothing is lost."""
    return Bounded(value, value, value, error)


Counts = Mapping[str, np.ndarray]
ByClass = Callable[[np.ndarray], list[Bounded | None]]


class ReliabilityBin(NamedTuple):
    """The images with a confidence in one of 16 bins: their number, mean confidence, and the share that is right."""

    images: int
    confidence: float
    correct: float


# --- counting, on the device ---


def histograms(probabilities: torch.Tensor, members: torch.Tensor) -> torch.Tensor:
    """Return the histogram of each column, int64 ``[Y, 2, K]``, of ``[B, Y]`` values; ``members``: bool, for row 1.

    >>> histograms(torch.tensor([[0.25], [0.75]]), torch.tensor([[False], [True]]))[0, :, [128, 384]].tolist()
    [[1, 0], [0, 1]]
    """
    columns = probabilities.shape[1]
    bins = (probabilities * BINS).long().clamp(0, BINS - 1)  # of a power of two: no rounding
    first = 2 * torch.arange(columns, device=bins.device) + members.long()
    return torch.bincount((first * BINS + bins).flatten(), minlength=columns * 2 * BINS).view(columns, 2, BINS)


def confusion(labels: torch.Tensor, predicted: torch.Tensor, num_classes: int) -> torch.Tensor:
    """Return how many images of each label were given each class, int64 ``[Y, Y]``."""
    cells = torch.bincount(labels * num_classes + predicted, minlength=num_classes**2)
    return cells.view(num_classes, num_classes)


# --- scores of one class against the rest, from its histogram [2, K] ---


def roc_area(histogram: np.ndarray) -> Bounded | None:
    """Return the area under the ROC curve (AUROC): the share of pairs of a member and another that are in order.

    Pairs in one bin count as half in order; the interval takes none, or all of them, to be. The standard error is that
    of DeLong, DeLong, Clarke-Pearson, "Comparing the Areas under Two or More Correlated Receiver Operating
    Characteristic Curves", Biometrics 44, 1988: from the deviation, over the images of either kind, of the share of the
    other kind that is below.
    """
    others, members = histogram.astype(np.float64)
    if not (pairs := members.sum() * others.sum()):
        return None
    below = float((members * (others.cumsum() - others)).sum() / pairs)
    tied = float((members * others).sum() / pairs)
    error = None
    if min(others.sum(), members.sum()) > 1:
        shares = [(one.cumsum() - one / 2) / one.sum() for one in (members, others)]
        variances = [np.cov(share, fweights=one) / one.sum() for share, one in zip(shares, histogram, strict=True)]
        error = math.sqrt(sum(map(float, variances)))
    return Bounded(below + tied / 2, below, below + tied, error)


def precision_area(histogram: np.ndarray) -> Bounded | None:
    """Return the average precision (AUPRC): the mean over the members of the precision at their probability.

    In a bin with k members and m others, with a members and f others above, each member's precision is taken to be
    ``(a+k) / (a+k+f+m)``. It is at most ``(a+k) / (a+k+f)``, and that of the j-th at least ``(a+j) / (a+j+f+m)``, whose
    sum over j is at least ``k - (f+m) ln((a+k+f+m) / (a+f+m))``.
    """
    others, members = histogram[:, ::-1].astype(np.float64)
    total = members.sum()
    if not total or not others.sum():
        return None
    used = members > 0
    k, hits, m, false = (each[used] for each in (members, members.cumsum(), others, others.cumsum()))
    missed = false * np.log1p(k / np.maximum(hits - k + false, 1))  # 0 of a bin with no other in it or above
    values = (k * hits / (hits + false), k - missed, k * hits / (hits + false - m))
    return Bounded(*(float(each.sum() / total) for each in values))


def sensitivity_at(histogram: np.ndarray, percent: int) -> Bounded | None:
    """Return the highest sensitivity with a specificity of at least ``percent`` %, over thresholds at bins' edges.

    A threshold inside the bin below may do better, by at most the members in it.
    """
    others, members = histogram
    total, num_others = int(members.sum()), int(others.sum())
    if not total or not num_others:
        return None
    edge = int(np.flatnonzero(100 * np.append(0, others.cumsum()) >= percent * num_others)[0])
    value, highest = (int(members[max(at, 0) :].sum()) / total for at in (edge, edge - 1))
    return Bounded(value, value, highest)


# --- scores of predictions ---


def outcomes(counted: np.ndarray) -> np.ndarray:
    """Return true positives, false positives, false negatives and true negatives of each class, ``[4, Y]``.

    ``counted``: a confusion matrix, or histograms ``[Y, 2, K]``, in which a probability of at least 0.5 is a positive.
    """
    if counted.ndim == 2:
        hits = counted.diagonal()
        false, missed = counted.sum(axis=0) - hits, counted.sum(axis=1) - hits
        return np.stack([hits, false, missed, counted.sum() - hits - false - missed])
    (negatives, missed), (false, hits) = (half.sum(axis=2).T for half in np.split(counted, 2, axis=2))
    return np.stack([hits, false, missed, negatives])


def f1_scores(counted: np.ndarray) -> list[Bounded | None]:
    """Return ``2 TP / (2 TP + FP + FN)`` of each class; None for a class in neither truth nor prediction."""
    return [_ratio(2 * hits, 2 * hits + false + missed) for hits, false, missed, _ in outcomes(counted).T]


def recalls(counted: np.ndarray) -> list[Bounded | None]:
    """Return the share of each class's images that are given it; their mean is the balanced accuracy."""
    return [_ratio(hits, hits + missed) for hits, _, missed, _ in outcomes(counted).T]


def balanced_accuracies(counted: np.ndarray) -> list[Bounded | None]:
    """Return the mean of sensitivity and specificity of each class, for labels that are independent of each other."""
    found = outcomes(counted).T
    pairs = [(_ratio(hits, hits + missed), _ratio(right, right + false)) for hits, false, missed, right in found]
    return [None if None in pair else mean_of(pair) for pair in pairs]


def reliability(histogram: np.ndarray) -> list[ReliabilityBin]:
    """Return the bins of a reliability diagram that have images; a confidence is taken to be in its bin's middle."""
    middles = (np.arange(BINS) + 0.5) / BINS
    count, correct, confidence = (
        each.reshape(WIDE_BINS, -1).sum(axis=1)
        for each in (histogram.sum(axis=0), histogram[1], histogram.sum(axis=0) * middles)
    )
    bins = zip(count.tolist(), confidence, correct, strict=True)
    return [ReliabilityBin(n, float(total / n), float(right / n)) for n, total, right in bins if n]


def calibration_error(histogram: np.ndarray) -> Bounded | None:
    """Return the expected calibration error: the mean over images of ``|share right - confidence|`` of their bins.

    Reference: Guo, Pleiss, Sun, Weinberger, "On Calibration of Modern Neural Networks", ICML 2017, equation 3, with 16
    bins. It is exact to half the width of a narrow bin, 1/1024.
    """
    bins = reliability(histogram)
    if not bins:
        return None
    total = sum(one.images for one in bins)
    value = sum(one.images * abs(one.correct - one.confidence) for one in bins) / total
    return Bounded(value, max(0.0, value - CALIBRATION_BOUND), min(1.0, value + CALIBRATION_BOUND))


def mean_from(total: float, count: int, squares: float) -> Bounded:
    """Return the mean over ``count`` images from the sums of their values and of the squares."""
    mean = total / count
    error = math.sqrt(max(0.0, squares / count - mean**2) / (count - 1)) if count > 1 else None
    return exactly(mean, error)


def mean_of(scores: Sequence[Bounded | None]) -> Bounded | None:
    """Return the mean of those scores that are known, such as the macro average over classes; None if none is."""
    known = [score for score in scores if score is not None]
    errors = [one.error for one in known if one.error is not None]
    if not known:
        return None
    # A mean's standard error is at most the mean of them, however the scores depend on each other.
    error = float(np.mean(errors)) if len(errors) == len(known) else None
    value, lowest, highest = np.mean([one[:3] for one in known], axis=0).tolist()
    return Bounded(value, lowest, highest, error)


def _ratio(part: int, whole: int) -> Bounded | None:
    return exactly(float(part / whole)) if whole else None


# --- scores that are asked for by name ---


class CountedScore(NamedTuple):
    """A score that follows from the counts called ``reads``; ``of`` returns it for each class, or once for all."""

    kind: ScoreKind
    reads: str
    of: ByClass

    def values(self, counts: np.ndarray) -> dict[str, Bounded]:
        """Return the mean over the classes by the score's name, and each class's by ``<name>_<class number>``."""
        each, name = self.of(counts), self.kind.name
        found = {name: mean_of(each)}
        if len(each) > 1:
            found |= {f"{name}_{number}": one for number, one in enumerate(each)}
        return {name: one for name, one in found.items() if one is not None}


def shape_of(counts: str, num_classes: int) -> tuple[int, ...]:
    """Return the shape of counts by their name."""
    return (num_classes,) * 2 if counts == CONFUSION else (num_classes if counts == PROBABILITIES else 1, 2, BINS)


def support(counts: Counts) -> np.ndarray | None:
    """Return how many images of each class were counted, ``[Y]``; None if the counts do not show it."""
    if CONFUSION in counts:
        return np.asarray(counts[CONFUSION].sum(axis=1))
    return np.asarray(counts[PROBABILITIES][:, 1].sum(axis=1)) if PROBABILITIES in counts else None


@cache
def counted_score(name: str, *, independent: bool) -> CountedScore | None:
    """Return a score of classifications by name, None for an unknown one.

    ``independent``: whether an image has any number of classes, each with its probability, or one class.
    """
    given, sure = (PROBABILITIES, PROBABILITIES) if independent else (CONFUSION, CONFIDENCE)
    rows: dict[str, tuple[str, str, ByClass]] = {
        "auroc": ("AUROC", PROBABILITIES, _each(roc_area)),
        "auprc": ("AUPRC", PROBABILITIES, _each(precision_area)),
        "f1": ("F1", given, f1_scores),
        "balanced_accuracy": ("Balanced accuracy", given, balanced_accuracies if independent else recalls),
        CALIBRATION: ("Calibration error", sure, _each(calibration_error)),
    }
    if found := fullmatch(r"sensitivity_at_([1-9]\d?)", name):
        at = partial(sensitivity_at, percent=int(found[1]))
        rows[name] = (f"Sensitivity at {found[1]} % specificity", PROBABILITIES, _each(at))
    if name not in rows:
        return None
    title, reads, of = rows[name]
    return CountedScore(ScoreKind(name, title, higher_is_better=name != CALIBRATION), reads, of)


def _each(score: Callable[[np.ndarray], Bounded | None]) -> ByClass:
    return lambda histograms: [score(one) for one in histograms]


# --- on the way to the server ---


def pack(counts: np.ndarray) -> tuple[int, ...]:
    """Return whole numbers in a row, with -k in place of k zeros: most bins are empty.

    >>> pack(np.array([[0, 0, 3], [0, 7, 0]]))
    (-2, 3, -1, 7, -1)
    """
    runs = groupby(counts.ravel().tolist(), bool)
    return tuple(number for counted, run in runs for number in (run if counted else (-len(list(run)),)))


def unpack(packed: Sequence[int], shape: tuple[int, ...]) -> np.ndarray:
    """Return the array that was packed, int64; raise ``ValueError`` if it is not of this shape."""
    lengths = [max(1, -number) for number in packed]
    if sum(lengths) != math.prod(shape):  # before anything of the size that a message claims is made
        raise ValueError(f"{sum(lengths)} counts, expected {math.prod(shape)}")
    return np.repeat(np.maximum(np.array(packed, dtype=np.int64), 0), lengths).reshape(shape)
