# SPDX-License-Identifier: Apache-2.0
"""Domains of a data set, their splits, and batches of images that are identical for everyone who uses the same seed.

A site finds its data root, opens its domain once and builds a loader for every training epoch:

    root = find_data_root("pacs", data_root, cache)
    data = open_domain(root.path, "pacs", "photo", seed=1)
    check_images(data)
    batches = training_batches(data, image_size=224, batch_size=16, seed=1, scope=("site-1", round_number, epoch))

``catalogue`` has the data sets, ``roots`` finds a site's data root, ``folders``, ``pairs``, ``published`` and
``attributes`` list the images, ``own_folder`` and ``own_files`` find a user's own, ``splits`` and ``skew`` divide a
domain, ``domains`` opens it, ``decoding`` reads a file, ``soundness`` finds damaged files. ``sources`` says what a
source of images provides: ``image_files``, or ``pair_files`` with masks, transformed by ``presets``. ``images`` makes
batches of any source. The package reads only files below the data root.
"""

from fdg_plugins.data.augmentation import AugmentationRanges
from fdg_plugins.data.catalogue import CELEBA, DATASETS, PACS, ROTATED_DIGITS, ROTATED_MNIST, VLCS, dataset_spec
from fdg_plugins.data.domains import DomainData, SharedDomains, open_domain
from fdg_plugins.data.images import (
    ImageBatches,
    evaluation_batches,
    reported_batches,
    training_batches,
    training_epochs,
)
from fdg_plugins.data.own_folder import own_data
from fdg_plugins.data.presets import check_preset
from fdg_plugins.data.roots import DataRoot, find_data_root
from fdg_plugins.data.skew import Partition
from fdg_plugins.data.soundness import check_images, find_damaged, without_damaged
from fdg_plugins.data.specs import (
    AttributeSpec,
    DatasetSpec,
    ImageFolderSpec,
    PairSample,
    PublishedSpec,
    RotatedSpec,
    Sample,
    SegmentationSpec,
)

__all__ = [
    "CELEBA",
    "DATASETS",
    "PACS",
    "ROTATED_DIGITS",
    "ROTATED_MNIST",
    "VLCS",
    "AttributeSpec",
    "AugmentationRanges",
    "DataRoot",
    "DatasetSpec",
    "DomainData",
    "ImageBatches",
    "ImageFolderSpec",
    "PairSample",
    "Partition",
    "PublishedSpec",
    "RotatedSpec",
    "Sample",
    "SegmentationSpec",
    "SharedDomains",
    "check_images",
    "check_preset",
    "dataset_spec",
    "evaluation_batches",
    "find_damaged",
    "find_data_root",
    "open_domain",
    "own_data",
    "reported_batches",
    "training_batches",
    "training_epochs",
    "without_damaged",
]
