# SPDX-License-Identifier: Apache-2.0
"""What the papers' tables call data sets, domains and methods, and what this package calls them. None: has no such.

The names on the left are those of ``data/paper-results.csv``, which are lower-case forms of the printed ones. Methods
and what they are made of are called there by names that this package understands, or by none.
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
"""From a data set of this package to the papers' name of it. Images or classes may differ in number: ``REMARKS``."""

DOMAINS = {
    "pacs": {name: name for name in ("art_painting", "cartoon", "photo", "sketch")},
    "vlcs": {name: name for name in ("caltech101", "labelme", "sun09", "voc2007")},
    "officehome": {name: name for name in ("art", "clipart", "product", "real_world")},
    "terraincognita": {name: name for name in ("location_38", "location_43", "location_46", "location_100")},
    "domainnet": {name: name for name in ("clipart", "infograph", "painting", "quickdraw", "real", "sketch")},
    "rotatedmnist": {angle: f"angle_{angle}" for angle in ("0", "15", "30", "45", "60", "75")},
}
"""From a printed held-out domain to this package's name, by the papers' name of the data set."""

REMARKS = {
    ("fediir", "rotatedmnist"): "RotatedMNIST of 70,000 images",
    ("feddim", "rotatedmnist"): "RotatedMNIST of 7,000 images",
    ("feddg-ga", "domainnet"): "the paper does not say which classes of DomainNet; the accuracies fit a subset of 10",
}
"""What the papers' texts say of a data set that its name does not, by paper and the papers' name of the data set."""


def method_of(printed: str) -> str | None:
    """Return this package's name of a method in a federated table; None if it has no such method."""
    try:
        return parse_method(printed).name
    except SettingsError:
        return None
