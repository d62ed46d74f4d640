# SPDX-License-Identifier: Apache-2.0
"""Domains of a data set, their splits, and batches of images that are identical for everyone who uses the same seed.

A site finds its data root, opens its domain once and builds a loader for every round:

    root = find_data_root("pacs", data_root, cache)
    data = open_domain(root.path, "pacs", "photo", seed=1)
    check_images(data)
    epochs = training_epochs(data, image_size=224, batch_size=16, seed=1, scope=("site-1", round_number), epochs=5)

``catalogue`` has the data sets, ``specs`` their records; ``own_files`` describes a user's own. A domain is listed by
names (``listing``, ``pairs``) or read as a whole (``published``), split (``splits``) and opened
(``domains``). ``decoding`` reads a file; ``image_files`` with ``augmentation``, or ``presets`` of images with masks,
make datasets of samples, and ``images`` makes batches. Only files below the data root are read.
"""

from fdg_plugins.data.catalogue import DATASETS, PACS, dataset_spec
from fdg_plugins.data.domains import DomainData, SharedDomains, find_data_root, open_domain
from fdg_plugins.data.own_files import own_data
from fdg_plugins.data.specs import DatasetSpec, SegmentationSpec

__all__ = [
    "DATASETS",
    "PACS",
    "DatasetSpec",
    "DomainData",
    "SegmentationSpec",
    "SharedDomains",
    "dataset_spec",
    "find_data_root",
    "open_domain",
    "own_data",
]
