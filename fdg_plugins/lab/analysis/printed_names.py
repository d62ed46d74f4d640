# SPDX-License-Identifier: Apache-2.0
"""Map the papers' names of data sets, domains and methods to this package's names. None: no counterpart.

The names on the left are those of ``data/paper-results.csv``, which are lower-case forms of the printed ones. Methods
and their parts have names there that this package understands, or has no counterpart for.
"""

from fdg_plugins.errors import SettingsError
from fdg_plugins.plugins.composition import parse_method

PRINTED_DATASETS = {
    "pacs": "pacs",
    "vlcs": "vlcs",
    "officehome": "officehome",
    "terraincognita": "terraincognita",
    "domainnet": "domainnet",
    "domainnet10": "domainnet",
    "rotatedmnist": "rotatedmnist",
    "rotatedmnist_7k": "rotatedmnist",
}
"""From a data set of this package to the papers' name.

The images or classes may differ in number: ``REMARKS`` and ``OTHER_IMAGES``.
"""

DOMAINS = {
    "pacs": {name: name for name in ("art_painting", "cartoon", "photo", "sketch")},
    "vlcs": {name: name for name in ("caltech101", "labelme", "sun09", "voc2007")},
    "officehome": {name: name for name in ("art", "clipart", "product", "real_world")},
    "terraincognita": {name: name for name in ("location_38", "location_43", "location_46", "location_100")},
    "domainnet": {name: name for name in ("clipart", "infograph", "painting", "quickdraw", "real", "sketch")},
    "rotatedmnist": {angle: f"angle_{angle}" for angle in ("0", "15", "30", "45", "60", "75")},
}
"""From a printed held-out domain to this package's name, by the papers' name of the data set."""

NETWORKS = {"resnet18": "resnet18", "resnet50": "resnet50", "convnet": "groupnorm_convnet"}
"""From a printed backbone to this package's network. AlexNet has none."""

REMARKS = {
    ("fediir", "rotatedmnist"): "RotatedMNIST of 70,000 images",
    ("feddim", "rotatedmnist"): "RotatedMNIST of 7,000 images",
    ("feddg-ga", "domainnet"): "the paper does not say which classes of DomainNet; the accuracies fit a subset of 10",
}
"""Facts about a data set that only the papers' texts state, by paper and the papers' name of the data set."""

OTHER_IMAGES = {
    ("fediir", "rotatedmnist_7k"): "7,000 images instead of 70,000",
    ("feddim", "rotatedmnist"): "70,000 images instead of 7,000",
}
"""How a data set of this package differs from the one of a paper's numbers, by paper and data set."""


def method_of(printed: str) -> str | None:
    """Return this package's name of a method in a federated table; None if it has no such method."""
    try:
        return parse_method(printed).name
    except SettingsError:
        return None
