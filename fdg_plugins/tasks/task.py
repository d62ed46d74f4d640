# SPDX-License-Identifier: Apache-2.0
"""The contract of a task: everything that depends on what a network learns from an image.

Only ``fdg_plugins.tasks`` knows the form of a target, the loss, and the evaluation of a model. Shapes: images
``[B, C, H, W]``, or volumes ``[B, C, H, W, Z]``; logits as the network returns them, with B as the first dimension;
targets as the data set's source of images returns them, with B as the first dimension, in an evaluation perhaps with
more than a loss may see; Y classes; S samples of D features each. A *sample* is a unit with one class: an image for
classification, a pixel if every pixel has its own class.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import torch

from fdg_plugins.errors import SettingsError, check_extra
from fdg_plugins.plugins.fields import check_fields
from fdg_plugins.plugins.registry import Registry
from fdg_plugins.plugins.reports import REPORT_SCORES
from fdg_plugins.tasks.counts import FEWEST, Bounded, CountedScore, Counts, exactly, shape_of, support, unpack
from fdg_plugins.tasks.score import ScoreKind, Sum

SumAndCount = tuple[float, int]
Sums = Mapping[str, SumAndCount]


@dataclass(frozen=True)
class Task(ABC):
    """What a network learns. A subclass is a value without state; all of its functions are pure.

    ``one_class_per_image``: whether a sample is an image; methods that require this reject other tasks.
    ``has_classes``: whether every sample has one class; ``by_pixel``: whether samples are pixels, so that a network has
    one feature vector for each, and most samples are of one class. ``derived_kinds``: the scores that :meth:`summary`
    derives from the sums of others. ``report``: the declared report that the scores are, beyond loss and primary score,
    which a site may forbid; None if they tell no more. ``packages``: those of an optional extra without which no model
    can be trained or evaluated. ``can_score``: the names of scores that can be asked for. ``scores``: those that were
    (:meth:`asked`), which evaluations have beside the task's own.
    """

    one_class_per_image: ClassVar[bool]
    has_classes: ClassVar[bool] = True
    by_pixel: ClassVar[bool] = False
    derived_kinds: ClassVar[tuple[ScoreKind, ...]] = ()
    report: ClassVar[str | None] = None
    packages: ClassVar[tuple[str, ...]] = ()
    can_score: ClassVar[tuple[str, ...]] = ()

    name: str
    score: ScoreKind
    scores: tuple[str, ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        check_fields(self, f"task {self.name!r}")

    def asked(self, scores: Sequence[str]) -> Self:
        """Return this task with the ``scores`` that evaluations shall also have; raise ``SettingsError`` for others."""
        for name in (one for one in scores if self.kind_asked(one) is None):
            expected = f"for task {self.name!r}: {', '.join(self.can_score) or 'no score beside its own'}"
            raise SettingsError(field="scores", value=name, expected=expected, public=True)
        return replace(self, scores=tuple(dict.fromkeys(scores)))

    def check_packages(self) -> None:
        """Raise ``SettingsError`` if one of the ``packages`` is not installed on this machine."""
        for package in self.packages:
            check_extra(package, f"task {self.name!r}")

    # --- logits, loss and score ---

    def logits(
        self, model: Callable[[torch.Tensor], torch.Tensor], images: torch.Tensor, size: int | None = None
    ) -> torch.Tensor:
        """Return the model's logits for a batch that is evaluated; a model's features are computed in the same way.

        ``size``: the side of the images that the model is trained on, None if they are of any size; logits of larger
        images are put together from windows of that size.
        """
        return model(images)

    @abstractmethod
    def loss(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the mean loss of the batch, a differentiable scalar, from logits in float32."""

    @abstractmethod
    def summed_loss(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return B times the mean loss: summed over batches and divided by all images, it gives the overall mean."""

    @abstractmethod
    def sums(self, logits: torch.Tensor, targets: torch.Tensor) -> Mapping[str, Sum]:
        """Return the scores of a batch by name, the primary one first, as sums and counts on the device."""

    def each(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the primary score of each image of a batch, bool or float64 ``[B]`` from 0 to 1.

        By it, two models are compared image by image; a task without one returns none.
        """
        return torch.empty(0, dtype=torch.bool)

    def kinds(self, num_classes: int) -> tuple[ScoreKind, ...]:
        """Return all scores that :meth:`sums` returns for Y classes, the primary one first."""
        return (self.score,)

    def counts_images(self, name: str) -> bool:
        """Return whether a score has every image in it once."""
        return False

    def complaint(self, sums: Sums, images: int, num_classes: int) -> str | None:
        """Return the first problem in a site's scores over ``images`` images: names, ranges; None if there is none."""
        kinds = {kind.name: kind for kind in self.kinds(num_classes)}
        if not {name for name in kinds if kinds[name].always} <= set(sums) <= set(kinds):
            return f"its scores are {', '.join(sorted(sums)) or 'none'}, expected {', '.join(kinds)}"
        for name, (total, count) in sums.items():
            kind = kinds[name]
            if self.counts_images(name) and count != images:
                return f"its {name} is over {count} images, expected {images}"
            if count < 1:
                return f"its {name} is over {count} samples, expected at least 1"
            if not kind.lowest <= total / count <= kind.highest:
                return f"its {name} is {total / count:g}, expected a number from {kind.lowest:g} to {kind.highest:g}"
        return None

    def summary(self, sums: Sums, counts: Counts) -> dict[str, Bounded]:
        """Return the primary score, and all that follow from the sums and counts of any number of images, by name.

        Of a score from counts, the mean over classes has its name, that of a class ``<name>_<class number>``; those of
        which there is no image are left out.
        """
        total, count = sums[self.score.name]
        found = {self.score.name: exactly(total / count)}
        for one in filter(None, map(self.counted, self.scores)):
            found |= one.values(counts[one.reads]) if one.reads in counts else {}
        return found

    def remarks(self, sums: Sums, counts: Counts, classes: Sequence[str]) -> tuple[str, ...]:
        """Return what a reader of the :meth:`summary` should know, each as part of a sentence."""
        found, remarks = self.summary(sums, counts), []
        for kind in (kind for kind in self.summary_kinds if kind.name in found):
            value, lowest, highest, _ = found[kind.name]
            if (bound := max(value - lowest, highest - value)) > 0:
                remarks.append(f"{kind.title} within {kind.factor * bound:.2f}")
        few = () if (images := support(counts)) is None else zip(classes, images.tolist(), strict=True)
        if marked := [f"{name} ({count})" for name, count in few if count < FEWEST]:
            remarks.append(f"fewer than {FEWEST} images are counted of {', '.join(marked)}")
        return tuple(remarks)

    # --- scores that are asked for ---

    def kind_asked(self, name: str) -> ScoreKind | None:
        """Return the kind of a score that can be asked for; None for an unknown name."""
        return None if (found := self.counted(name)) is None else found.kind

    def counted(self, name: str) -> CountedScore | None:
        """Return how the score ``name`` follows from counts; None if this task has no such score."""
        return None

    def counts(self, logits: torch.Tensor, targets: torch.Tensor) -> Mapping[str, torch.Tensor]:
        """Return the counts of a batch that the ``scores`` need, whole numbers by name, on the device."""
        return {}

    @property
    def summary_kinds(self) -> tuple[ScoreKind, ...]:
        """The scores by which models are summarised beside the primary one: derived ones, then those asked for."""
        return (*self.derived_kinds, *filter(None, map(self.kind_asked, self.scores)))

    @property
    def reports(self) -> tuple[str, ...]:
        """The declared reports that the scores are, each of which a site may forbid."""
        return tuple(filter(None, (self.report, REPORT_SCORES if self.scores else None)))

    @property
    def reads(self) -> tuple[str, ...]:
        """The names of the counts that the ``scores`` need."""
        return tuple(dict.fromkeys(one.reads for one in filter(None, map(self.counted, self.scores))))

    def read_counts(self, packed: Mapping[str, Sequence[int]], num_classes: int) -> Counts:
        """Return the counts in a message, by name; raise ``ValueError`` for other names or another size."""
        if packed.keys() != {*self.reads}:
            names = [", ".join(sorted(found)) or "none" for found in (packed, self.reads)]
            raise ValueError(f"its counts are {names[0]}, expected {names[1]}")
        return {name: unpack(packed[name], shape_of(name, num_classes)) for name in self.reads}

    def checked(
        self, sums: Sums, packed: Mapping[str, Sequence[int]], images: int, num_classes: int, *, whole: bool = True
    ) -> Counts:
        """Return the counts in a site's message; raise ``ValueError`` if they, or ``sums``, contradict each other.

        ``whole``: whether no count of a class is withheld.
        """
        if (wrong := self.complaint(sums, images, num_classes)) is not None:
            raise ValueError(wrong)
        counts = self.read_counts(packed, num_classes)
        if whole and (wrong := self.complaint_on_counts(counts, sums, images)) is not None:
            raise ValueError(wrong)
        return counts

    def complaint_on_counts(self, counts: Counts, sums: Sums, images: int) -> str | None:
        """Return the first contradiction in a site's counts over ``images`` images; None if there is none."""
        for name, found in counts.items():
            totals = found.sum(axis=(-2, -1))  # of each class, where classes are counted separately
            if int(found.max()) > images or (totals != images).any():
                return f"its {name} do not count {images} images each"
        return None

    # --- how methods read a network ---

    @abstractmethod
    def samples_of(self, features: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the features of each sample, ``[S, D]``, and the samples' classes, ``[S]``, int64.

        ``features`` is the last layer's input for the batch, or its output (then D is Y).
        """

    def samples_per_image(self, image_size: int, dims: int = 2) -> int:
        """Return S / B for images with ``dims`` sides of ``image_size`` pixels."""
        return image_size**dims if self.by_pixel else 1

    # --- data ---

    def strata(self, classes: Sequence[str]) -> tuple[str, ...]:
        """Return the names of the strata: groups of images that a split divides separately, in the same proportion."""
        return ("images",)

    def stratum(self, image: Any) -> int:
        """Return the number of an image's stratum."""
        return 0

    @abstractmethod
    def class_counts(self, images: Iterable[Any], num_classes: int) -> tuple[int, ...]:
        """Return how many images contain each of the Y classes, ``[Y]``, as the census counts them.

        Unless there is one class per image, these are upper bounds.
        """


TASKS: Registry[Task] = Registry("task", "fdg_plugins.tasks", ["fdg_plugins.tasks"], Task)
"""All tasks by name: those of this package and those of plug-ins."""


@dataclass(frozen=True)
class Score:
    """The quality of a model on ``count`` images: mean loss, each score as a sum and a count, and counts by name."""

    loss: float
    count: int
    sums: Sums
    counts: Counts = field(default_factory=dict)


class Accumulator:
    """Sums over batches, from which a :class:`Score` is computed. They stay on ``device`` until they are read."""

    def __init__(self, task: Task, device: torch.device) -> None:
        self.task = task
        self._loss = torch.zeros((), dtype=torch.float64, device=device)
        self._images = 0
        self._sums: dict[str, Sum] = {}
        self._counts: dict[str, torch.Tensor] = {}

    @torch.no_grad()
    def add(self, logits: torch.Tensor, targets: torch.Tensor) -> None:
        """Add a batch of B images with its logits, float32, and its targets."""
        self._loss += self.task.summed_loss(logits, targets).double()
        self._images += len(targets)
        for name, (total, count) in self.task.sums(logits, targets).items():
            before = self._sums.get(name, Sum(0, 0))
            self._sums[name] = Sum(before.total + total, before.samples + count)
        for name, counted in self.task.counts(logits, targets).items():
            self._counts[name] = self._counts[name] + counted if name in self._counts else counted

    def score(self) -> Score:
        """Return the score over all added images, at least one, without the scores of which there was no sample."""
        sums = {name: (float(total), int(count)) for name, (total, count) in self._sums.items() if int(count)}
        counts = {name: counted.cpu().numpy() for name, counted in self._counts.items()}
        return Score(float(self._loss) / self._images, self._images, sums, counts)
