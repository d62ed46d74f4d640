# SPDX-License-Identifier: Apache-2.0
"""Domains on disk, their splits, and batches of images that are the same for everyone who uses the same seed.

A site opens its domain once and builds a loader for every epoch it trains:

    data = open_domain(data_root, "pacs", "photo", seed=1)
    check_images(data)
    batches = training_batches(data, image_size=224, batch_size=16, seed=1, scope=("site-1", round_number, epoch))

``catalogue`` knows the data sets, ``splits`` divides a domain, ``domains`` finds and checks it on disk,
``transforms`` decodes and augments, ``images`` makes batches. Only files below the data root are read.
"""

from fdg_plugins.data.catalogue import PACS, ImageFolderSpec, Sample, dataset_spec
from fdg_plugins.data.domains import DomainData, check_images, open_domain
from fdg_plugins.data.images import DomainImages, ImageBatches, evaluation_batches, training_batches
from fdg_plugins.data.transforms import evaluation_transform, training_transform

__all__ = [
    "PACS",
    "DomainData",
    "DomainImages",
    "ImageBatches",
    "ImageFolderSpec",
    "Sample",
    "check_images",
    "dataset_spec",
    "evaluation_batches",
    "evaluation_transform",
    "open_domain",
    "training_batches",
    "training_transform",
]
