# SPDX-License-Identifier: Apache-2.0
"""The contract of a task: everything that depends on what a network is to learn from an image.

Nothing outside this room knows what a target looks like, what the loss is, or how a model is judged. Shapes: images
``[B, C, H, W]``; logits as the network returns them, their first dimension B; targets as :meth:`Task.collate` makes
them, their first dimension B; Y classes; S samples of features, D numbers each. A *sample* is what has one class: an
image for classification, a pixel where every pixel has its own.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import torch

from fdg_plugins.tasks.score import ScoreKind, Sum

SumAndCount = tuple[float, int]


class Stratified(Protocol):
    """An image of a data set as far as a split knows it."""

    @property
    def label(self) -> int:
        """The number of the image's class, in [0, Y); where images have none, 0."""


@dataclass(frozen=True)
class Task(ABC):
    """What is learned. A subclass is a value without state; all of its functions are pure.

    ``one_class_per_image``: whether a sample is an image. Methods that need it are refused for other tasks.
    """

    one_class_per_image: ClassVar[bool]

    name: str
    score: ScoreKind

    @property
    def names(self) -> tuple[str, ...]:
        """All names that are understood."""
        return (self.name,)

    # --- targets ---

    @abstractmethod
    def target_of(self, sample: Any, read: Callable[[str], np.ndarray]) -> Any:
        """Return the target of one image; ``read`` returns the pixels of a file of the data set by its name."""

    @abstractmethod
    def collate(self, targets: Sequence[Any]) -> torch.Tensor:
        """Return the targets of B images as one tensor."""

    def view(
        self, view: Callable[[np.ndarray, int], np.ndarray], pixels: np.ndarray, target: Any, index: int
    ) -> tuple[np.ndarray, Any]:
        """Return image and target as the network is given them, from the pixels of the image at ``index`` of a split.

        ``view`` draws by ``index`` what it does to pixels; a target that lies on the image must move with it.
        """
        return view(pixels, index), target

    # --- loss and score ---

    @abstractmethod
    def loss(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the mean loss of the batch, a scalar that can be differentiated; logits in float32."""

    @abstractmethod
    def summed_loss(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return B times the mean loss; sums over batches, over all images, are the mean whatever the batches were."""

    @abstractmethod
    def sums(self, logits: torch.Tensor, targets: torch.Tensor) -> Mapping[str, Sum]:
        """Return the scores of a batch by name, the primary one first, as sums and counts on the device."""

    def kinds(self, num_classes: int) -> tuple[ScoreKind, ...]:
        """Return all scores that :meth:`sums` has for Y classes, the primary one first."""
        return (self.score,)

    def complaint(self, sums: Mapping[str, SumAndCount], images: int, num_classes: int) -> str | None:
        """Return what is wrong with the scores that a site reports of ``images`` images; None if nothing is.

        Checked are the names and that every score lies in its range.
        """
        kinds = {kind.name: kind for kind in self.kinds(num_classes)}
        if set(sums) != set(kinds):
            return f"its scores are {', '.join(sorted(sums)) or 'none'}, expected {', '.join(kinds)}"
        for name, (total, count) in sums.items():
            kind = kinds[name]
            if count < 1:
                return f"its {name} is over {count} samples, expected at least 1"
            if not kind.lowest <= total / count <= kind.highest:
                return f"its {name} is {total / count:g}, expected a number from {kind.lowest:g} to {kind.highest:g}"
        return None

    # --- how methods read a network ---

    @abstractmethod
    def samples_of(self, features: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return what the last layer reads of each sample, ``[S, D]``, and the samples' classes, ``[S]``, int64.

        ``features`` is what the last layer reads of the batch, or what it returns (then D is Y).
        """

    @abstractmethod
    def samples_per_image(self, image_size: int) -> int:
        """Return S over B for images of ``image_size`` times ``image_size`` pixels."""

    # --- data ---

    @abstractmethod
    def strata(self, classes: Sequence[str]) -> tuple[str, ...]:
        """Return the names of the groups of images that a split divides one by one, in the same proportion each."""

    @abstractmethod
    def stratum(self, image: Stratified) -> int:
        """Return the number of an image's group."""

    @abstractmethod
    def class_counts(self, images: Iterable[Any], num_classes: int) -> tuple[int, ...]:
        """Return how many images have each of the Y classes, as the census counts them."""
