# SPDX-License-Identifier: Apache-2.0
"""Domains of a data set, their splits, and batches of images that are identical for everyone who uses the same seed.

A site finds its data root, opens its domain once and builds a loader for every training epoch:

    root = find_data_root("pacs", data_root, cache)
    data = open_domain(root.path, "pacs", "photo", seed=1)
    check_images(data)
    batches = training_batches(data, image_size=224, batch_size=16, seed=1, scope=("site-1", round_number, epoch))

``catalogue`` defines the data sets, ``roots`` finds a site's data root, ``folders``, ``pairs``, ``published`` and
``attributes`` list the images, ``own_folder`` and ``own_files`` find a user's own, ``splits`` and ``skew`` divide a
domain, ``domains`` opens it, ``decoding`` reads a file, ``soundness`` finds damaged files. ``sources`` says what a
source of images provides: ``image_files``, or ``pair_files`` with masks, transformed by ``presets``. ``images`` makes
batches of any source. The package reads only files below the data root.
"""

from fdg_plugins.data.attributes import AttributeFiles
from fdg_plugins.data.augmentation import AugmentationRanges
from fdg_plugins.data.catalogue import (
    CELEBA,
    CIFAR_10,
    CIFAR_100,
    DATASETS,
    DOMAINNET,
    DOMAINNET_10,
    EMNIST,
    MNIST,
    OFFICE_CALTECH_10,
    OFFICE_HOME,
    PACS,
    ROTATED_DIGITS,
    ROTATED_MNIST,
    ROTATED_MNIST_7K,
    TERRA_INCOGNITA,
    VLCS,
    dataset_spec,
)
from fdg_plugins.data.domains import DomainData, SharedDomains, open_domain
from fdg_plugins.data.image_files import ArrayImages, DomainImages, ImageArray, ImageFiles, WholeImages
from fdg_plugins.data.images import (
    ImageBatches,
    evaluation_batches,
    reported_batches,
    shuffled_reported_batches,
    training_batches,
    training_epochs,
)
from fdg_plugins.data.own_folder import OwnData, own_data
from fdg_plugins.data.pair_files import PairFiles
from fdg_plugins.data.presets import PRESETS, check_preset
from fdg_plugins.data.roots import DataRoot, find_data_root
from fdg_plugins.data.skew import Partition
from fdg_plugins.data.soundness import Damaged, check_images, find_damaged, name_some, without_damaged
from fdg_plugins.data.sources import Epochs, ImageDataset, ImageSource
from fdg_plugins.data.specs import (
    AttributeSample,
    AttributeSpec,
    DatasetSpec,
    ImageFolderSpec,
    PairSample,
    PublishedSpec,
    RotatedSpec,
    Sample,
    SegmentationSpec,
)
from fdg_plugins.data.transforms import TrainingView, WholeView

__all__ = [
    "CELEBA",
    "CIFAR_10",
    "CIFAR_100",
    "DATASETS",
    "DOMAINNET",
    "DOMAINNET_10",
    "EMNIST",
    "MNIST",
    "OFFICE_CALTECH_10",
    "OFFICE_HOME",
    "PACS",
    "PRESETS",
    "ROTATED_DIGITS",
    "ROTATED_MNIST",
    "ROTATED_MNIST_7K",
    "TERRA_INCOGNITA",
    "VLCS",
    "ArrayImages",
    "AttributeFiles",
    "AttributeSample",
    "AttributeSpec",
    "AugmentationRanges",
    "Damaged",
    "DataRoot",
    "DatasetSpec",
    "DomainData",
    "DomainImages",
    "Epochs",
    "ImageArray",
    "ImageBatches",
    "ImageDataset",
    "ImageFiles",
    "ImageFolderSpec",
    "ImageSource",
    "OwnData",
    "PairFiles",
    "PairSample",
    "Partition",
    "PublishedSpec",
    "RotatedSpec",
    "Sample",
    "SegmentationSpec",
    "SharedDomains",
    "TrainingView",
    "WholeImages",
    "WholeView",
    "check_images",
    "check_preset",
    "dataset_spec",
    "evaluation_batches",
    "find_damaged",
    "find_data_root",
    "name_some",
    "open_domain",
    "own_data",
    "reported_batches",
    "shuffled_reported_batches",
    "training_batches",
    "training_epochs",
    "without_damaged",
]
