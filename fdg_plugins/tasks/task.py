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
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch

from fdg_plugins.errors import check_extra
from fdg_plugins.plugins.fields import check_fields
from fdg_plugins.plugins.registry import Registry
from fdg_plugins.tasks.score import ScoreKind, Sum

SumAndCount = tuple[float, int]


class Stratified(Protocol):
    """An image of a data set, reduced to what a split needs."""

    @property
    def label(self) -> int:
        """The number of the image's class, in [0, Y); 0 if images have no class."""


@dataclass(frozen=True)
class Task(ABC):
    """What a network learns. A subclass is a value without state; all of its functions are pure.

    ``one_class_per_image``: whether a sample is an image; methods that require this reject other tasks.
    ``weighs_classes_equally``: whether a method averages a term over samples within each class of a batch first, as
    most samples are of one class. ``derived_kinds``: the scores that follow from the sums of others. ``report``: the
    declared report that the scores are, beyond loss and primary score, which a site may forbid; None if they tell no
    more. ``packages``: those of an optional extra without which no model can be trained or evaluated. ``loss_name`` and
    ``loss_unit`` say in figures what :meth:`loss` is.
    """

    one_class_per_image: ClassVar[bool]
    weighs_classes_equally: ClassVar[bool] = False
    derived_kinds: ClassVar[tuple[ScoreKind, ...]] = ()
    report: ClassVar[str | None] = None
    packages: ClassVar[tuple[str, ...]] = ()
    loss_name: ClassVar[str] = ""
    loss_unit: ClassVar[str] = ""

    name: str
    score: ScoreKind

    def __post_init__(self) -> None:
        check_fields(self, f"task {self.name!r}")

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name,)

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

    def kinds(self, num_classes: int) -> tuple[ScoreKind, ...]:
        """Return all scores that :meth:`sums` returns for Y classes, the primary one first."""
        return (self.score,)

    def may_lack(self, num_classes: int) -> frozenset[str]:
        """Return the names of the scores that an evaluation lacks if it has no sample of theirs."""
        return frozenset()

    def complaint(self, sums: Mapping[str, SumAndCount], images: int, num_classes: int) -> str | None:
        """Return the first problem in a site's scores over ``images`` images: names, ranges; None if there is none."""
        kinds = {kind.name: kind for kind in self.kinds(num_classes)}
        if not set(kinds) - self.may_lack(num_classes) <= set(sums) <= set(kinds):
            return f"its scores are {', '.join(sorted(sums)) or 'none'}, expected {', '.join(kinds)}"
        for name, (total, count) in sums.items():
            kind = kinds[name]
            if count < 1:
                return f"its {name} is over {count} samples, expected at least 1"
            if not kind.lowest <= total / count <= kind.highest:
                return f"its {name} is {total / count:g}, expected a number from {kind.lowest:g} to {kind.highest:g}"
        return None

    def derived(self, sums: Mapping[str, SumAndCount]) -> Mapping[str, float]:
        """Return the value of each of the ``derived_kinds``, by name, from the ``sums`` of any number of images."""
        return {}

    def left_out(self, sums: Mapping[str, SumAndCount], classes: Sequence[str]) -> tuple[str, ...]:
        """Return, in words, the parts of the images without which the derived scores of these ``sums`` were made."""
        return ()

    def remarks(self, sums: Mapping[str, SumAndCount], classes: Sequence[str]) -> tuple[str, ...]:
        """Return what a reader of the derived scores of these ``sums`` should know, each as part of a sentence."""
        return ()

    # --- how methods read a network ---

    @abstractmethod
    def samples_of(self, features: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the features of each sample, ``[S, D]``, and the samples' classes, ``[S]``, int64.

        ``features`` is the last layer's input for the batch, or its output (then D is Y).
        """

    @abstractmethod
    def samples_per_image(self, image_size: int, dims: int = 2) -> int:
        """Return S / B for images with ``dims`` sides of ``image_size`` pixels."""

    # --- data ---

    @abstractmethod
    def strata(self, classes: Sequence[str]) -> tuple[str, ...]:
        """Return the names of the strata: groups of images that a split divides separately, in the same proportion."""

    @abstractmethod
    def stratum(self, image: Stratified) -> int:
        """Return the number of an image's stratum."""

    @abstractmethod
    def class_counts(self, images: Iterable[Any], num_classes: int) -> tuple[int, ...]:
        """Return how many images contain each of the Y classes, ``[Y]``, as the census counts them.

        Unless there is one class per image, these are upper bounds.
        """


TASKS: Registry[Task] = Registry("task", "fdg_plugins.tasks", ["fdg_plugins.tasks"], Task)
"""All tasks by name: those of this package and those of plug-ins."""


@dataclass(frozen=True)
class Score:
    """The quality of a model on ``count`` images: the mean loss, and each score as a sum and a count."""

    loss: float
    count: int
    sums: Mapping[str, tuple[float, int]]

    def value(self, name: str) -> float:
        """Return the score called ``name``."""
        total, count = self.sums[name]
        return total / count


class Accumulator:
    """Sums over batches, from which a :class:`Score` is computed. They stay on ``device`` until they are read."""

    def __init__(self, task: Task, device: torch.device) -> None:
        self.task = task
        self._loss = torch.zeros((), dtype=torch.float64, device=device)
        self._images = 0
        self._sums: dict[str, Sum] = {}

    @torch.no_grad()
    def add(self, logits: torch.Tensor, targets: torch.Tensor) -> None:
        """Add a batch of B images with its logits, float32, and its targets."""
        self._loss += self.task.summed_loss(logits, targets).double()
        self._images += len(targets)
        for name, (total, count) in self.task.sums(logits, targets).items():
            before = self._sums.get(name, Sum(0, 0))
            self._sums[name] = Sum(before.total + total, before.samples + count)

    def score(self) -> Score:
        """Return the score over all added images, at least one, without the scores of which there was no sample."""
        sums = {name: (float(total), int(count)) for name, (total, count) in self._sums.items() if int(count)}
        return Score(float(self._loss) / self._images, self._images, sums)
