# SPDX-License-Identifier: Apache-2.0
"""Domains of a data set, their splits, and batches of images that are identical for everyone who uses the same seed.

A site finds its data root, opens its domain once and builds a loader for every training epoch:

    root = find_data_root("pacs", data_root, cache)
    data = open_domain(root.path, "pacs", "photo", seed=1)
    check_images(data)
    batches = training_batches(data, image_size=224, batch_size=16, seed=1, scope=("site-1", round_number, epoch))

``catalogue`` has the data sets, ``specs`` their records. A domain is listed by names (``folders``, ``pairs``,
``published``, ``attributes``; a user's own by ``own_folder`` and ``own_files``), split (``splits``, ``skew``), and
opened (``domains``). ``decoding`` reads a file, ``image_files`` with ``augmentation``, or ``presets`` of images with
masks, make datasets of samples, and ``images`` makes batches. Only files below the data root are read.
"""

from fdg_plugins.data.augmentation import AugmentationRanges
from fdg_plugins.data.catalogue import CELEBA, DATASETS, PACS, ROTATED_DIGITS, ROTATED_MNIST, VLCS, dataset_spec
from fdg_plugins.data.domains import (
    DataRoot,
    DomainData,
    SharedDomains,
    check_images,
    find_damaged,
    find_data_root,
    open_domain,
    without_damaged,
)
from fdg_plugins.data.images import (
    ImageBatches,
    evaluation_batches,
    reported_batches,
    training_batches,
    training_epochs,
)
from fdg_plugins.data.own_folder import own_data
from fdg_plugins.data.presets import check_preset
from fdg_plugins.data.skew import Partition
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
