# SPDX-License-Identifier: Apache-2.0
"""Image files whose evaluation also tells an attribute of each image, which neither training nor a report ever does."""

from collections.abc import Sequence
from dataclasses import dataclass

from fdg_plugins.data.image_files import ImageFiles, WholeImages
from fdg_plugins.data.sources import Epochs
from fdg_plugins.data.specs import AttributeSample, Sample


@dataclass(frozen=True)
class AttributeFiles(ImageFiles):
    """Images with attributes below ``folder``, used whole: resized only, as they are in the papers' code.

    Targets are labels ``[B]`` in training and in what methods report, labels and attributes ``[B, 2]`` in evaluations.
    """

    reports_differ = True

    def training(self, samples: Sequence[Sample], image_size: int, epochs: Epochs) -> WholeImages:
        """Return the whole images with their labels, once per epoch."""
        return WholeImages(self, samples, image_size, len(epochs))

    def evaluation(self, samples: Sequence[Sample], image_size: int) -> "AttributeImages":
        """Return the whole images with labels and attributes."""
        return AttributeImages(self, samples, image_size)

    def reported(self, samples: Sequence[Sample], image_size: int, epochs: Epochs) -> WholeImages:
        """Return the whole images with their labels."""
        return WholeImages(self, samples, image_size)


class AttributeImages(WholeImages):
    """Samples as ``(image uint8 [3, S, S], (label, attribute))``, in batches with targets ``[B, 2]``."""

    def target_of(self, sample: Sample) -> tuple[int, int]:
        """Return label and attribute."""
        assert isinstance(sample, AttributeSample)
        return sample.label, sample.attribute
