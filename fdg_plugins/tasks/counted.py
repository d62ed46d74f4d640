# SPDX-License-Identifier: Apache-2.0
"""The scores that an evaluation has when a protocol asks for them by name, and the counts from which they follow."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from re import fullmatch

import numpy as np

from fdg_plugins.tasks.counts import (
    BINS,
    Bounded,
    balanced_accuracies,
    calibration_error,
    f1_scores,
    mean_of,
    precision_area,
    recalls,
    roc_area,
    sensitivity_at,
)
from fdg_plugins.tasks.score import ScoreKind

PROBABILITIES = "probabilities"  # [Y, 2, K]: histograms of the probability of each class
CONFUSION = "confusion"  # [Y, Y]
CONFIDENCE = "confidence"  # [1, 2, K]: histogram of the probability of the class that is given
FEWEST = 30  # images of a class, below which a score of the class is marked
CALIBRATION = "calibration_error"
OF_CLASSES = ("auroc", "auprc", "f1", "balanced_accuracy", CALIBRATION, "sensitivity_at_<percent>")

Counts = Mapping[str, np.ndarray]
ByClass = Callable[[np.ndarray], list[Bounded | None]]


@dataclass(frozen=True)
class CountedScore:
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
    shapes = {PROBABILITIES: (num_classes, 2, BINS), CONFUSION: (num_classes, num_classes), CONFIDENCE: (1, 2, BINS)}
    return shapes[counts]


def support(counts: Counts) -> np.ndarray | None:
    """Return how many images of each class were counted, ``[Y]``; None if the counts do not show it."""
    if CONFUSION in counts:
        return np.asarray(counts[CONFUSION].sum(axis=1))
    return np.asarray(counts[PROBABILITIES][:, 1].sum(axis=1)) if PROBABILITIES in counts else None


@cache
def counted_score(name: str, *, independent: bool = False) -> CountedScore | None:
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
        percent = int(found[1])
        title = f"Sensitivity at {percent} % specificity"
        rows[name] = (title, PROBABILITIES, _each(lambda one: sensitivity_at(one, percent)))
    if name not in rows:
        return None
    title, reads, of = rows[name]
    return CountedScore(ScoreKind(name, title, higher_is_better=name != CALIBRATION), reads, of)


def _each(score: Callable[[np.ndarray], Bounded | None]) -> ByClass:
    return lambda histograms: [score(one) for one in histograms]
