# SPDX-License-Identifier: Apache-2.0
"""The data sets that this package knows by name."""

import tomllib
from dataclasses import replace
from functools import lru_cache
from importlib.resources import files
from typing import Any

from fdg_plugins.data.specs import (
    AttributeSpec,
    DatasetSpec,
    ImageFolderSpec,
    KnownSpec,
    PublishedSpec,
    RotatedSpec,
    SegmentationSpec,
)
from fdg_plugins.errors import SettingsError
from fdg_plugins.plugins.own_dataset import DatasetRef, OwnDataset
from fdg_plugins.plugins.registry import Registry


def _classes(name: str) -> tuple[str, ...]:
    """Return one of the long lists of ``class_names.toml``."""
    text = files("fdg_plugins.data").joinpath("class_names.toml").read_text(encoding="utf-8")
    return tuple(tomllib.loads(text)[name].split())


PACS = ImageFolderSpec(
    name="pacs",
    folder="pacs",
    title="PACS",
    reference="Li, Yang, Song, Hospedales: Deeper, Broader and Artier Domain Generalization, ICCV 2017",
    domains=("art_painting", "cartoon", "photo", "sketch"),
    classes=("dog", "elephant", "giraffe", "guitar", "horse", "house", "person"),
    known_bad=("sketch/dog/n02103406_4068-1",),
)

VLCS = ImageFolderSpec(
    name="vlcs",
    folder="vlcs",
    title="VLCS",
    reference="Fang, Xu, Rockmore: Unbiased Metric Learning: On the Utilization of Multiple Datasets and Web Images "
    "for Softening Bias, ICCV 2013",
    domains=("caltech101", "labelme", "sun09", "voc2007"),
    classes=("bird", "car", "chair", "dog", "person"),
)

OFFICE_HOME = ImageFolderSpec(
    name="officehome",
    folder="officehome",
    title="Office-Home",
    reference="Venkateswara, Eusebio, Chakraborty, Panchanathan: Deep Hashing Network for Unsupervised Domain "
    "Adaptation, CVPR 2017",
    domains=("art", "clipart", "product", "real_world"),
    classes=_classes("officehome"),
)

# Terra Incognita has more camera traps and species; this selection is DomainBed's, and papers follow it.
TERRA_INCOGNITA = ImageFolderSpec(
    name="terraincognita",
    folder="terraincognita",
    title="TerraIncognita",
    reference="Beery, Van Horn, Perona: Recognition in Terra Incognita, ECCV 2018",
    domains=("location_38", "location_43", "location_46", "location_100"),
    classes=("bird", "bobcat", "cat", "coyote", "dog", "empty", "opossum", "rabbit", "raccoon", "squirrel"),
)

_DOMAINNET_DOMAINS = ("clipart", "infograph", "painting", "quickdraw", "real", "sketch")

DOMAINNET = ImageFolderSpec(
    name="domainnet",
    folder="domainnet",
    title="DomainNet",
    reference="Peng, Bai, Xia, Huang, Saenko, Wang: Moment Matching for Multi-Source Domain Adaptation, ICCV 2019",
    domains=_DOMAINNET_DOMAINS,
    classes=_classes("domainnet"),
)

DOMAINNET_10 = ImageFolderSpec(
    name="domainnet10",
    folder="domainnet10",
    title="DomainNet (10 classes)",
    reference="Li, Jiang, Zhang, Kamp, Dou: FedBN: Federated Learning on Non-IID Features via Local Batch "
    "Normalization, ICLR 2021",
    domains=_DOMAINNET_DOMAINS,
    classes=(
        "bird",
        "feather",
        "headphones",
        "ice_cream",
        "teapot",
        "tiger",
        "whale",
        "windmill",
        "wine_glass",
        "zebra",
    ),
)

OFFICE_CALTECH_10 = ImageFolderSpec(
    name="officecaltech10",
    folder="office_caltech10",
    title="Office-Caltech10",
    reference="Gong, Shi, Sha, Grauman: Geodesic Flow Kernel for Unsupervised Domain Adaptation, CVPR 2012",
    domains=("amazon", "caltech10", "dslr", "webcam"),
    classes=(
        "backpack",
        "bike",
        "calculator",
        "headphones",
        "keyboard",
        "laptop",
        "monitor",
        "mouse",
        "mug",
        "projector",
    ),
)

_ANGLES = (0, 15, 30, 45, 60, 75)
_ANGLE_DOMAINS = tuple(f"angle_{angle}" for angle in _ANGLES)
_DIGITS = tuple("0123456789")

ROTATED_DIGITS = RotatedSpec(
    name="rotateddigits",
    title="RotatedDigits",
    reference="Alpaydin, Kaynak: Optical Recognition of Handwritten Digits, UCI 1998, as scikit-learn brings it",
    domains=_ANGLE_DOMAINS,
    classes=_DIGITS,
    folder="",
    source="digits",
    angles=_ANGLES,
    needs_data_root=False,
)

ROTATED_MNIST = RotatedSpec(
    name="rotatedmnist",
    title="RotatedMNIST",
    reference="Ghifary, Kleijn, Zhang, Balduzzi: Domain Generalization for Object Recognition with Multi-task "
    "Autoencoders, ICCV 2015",
    domains=_ANGLE_DOMAINS,
    classes=_DIGITS,
    folder="mnist",
    source="mnist",
    angles=_ANGLES,
    stand_in=ROTATED_DIGITS,
)

# The FedDIM paper uses 7,000 images of RotatedMNIST, the FedIIR paper 70,000.
ROTATED_MNIST_7K = replace(ROTATED_MNIST, name="rotatedmnist_7k", title="RotatedMNIST (7,000)", limit=7000)

VESSELS = SegmentationSpec(
    name="vessels",
    folder="vessels",
    title="Retinal vessels",
    reference="Staal et al., IEEE TMI 23(4), 2004 (DRIVE); Hoover, Kouznetsova, Goldbaum, IEEE TMI 19(3), 2000 "
    "(STARE); Fraz et al., IEEE TBME 59(9), 2012 (CHASE_DB1); Budai et al., Int. J. Biomed. Imaging, 2013 (HRF)",
    domains=("chase_db1", "drive", "hrf", "stare"),
    classes=("background", "vessel"),
    mask_values=((0,), (255,)),
)

MNIST = PublishedSpec(
    name="mnist",
    title="MNIST",
    reference="LeCun, Bottou, Bengio, Haffner: Gradient-Based Learning Applied to Document Recognition, 1998",
    classes=_DIGITS,
    channels=1,
    folder="mnist",
    source="mnist",
    size=28,
    protocol={"image_size": 28},
)

# Of EMNIST's six divisions, the one of 70,000 digits, which is the number that the FedOMG paper states.
EMNIST = replace(
    MNIST,
    name="emnist",
    title="EMNIST (MNIST division)",
    reference="Cohen, Afshar, Tapson, van Schaik: EMNIST: an extension of MNIST to handwritten letters, IJCNN 2017",
    folder="emnist",
    source="emnist",
)

CIFAR_10 = PublishedSpec(
    name="cifar10",
    title="CIFAR-10",
    reference="Krizhevsky: Learning Multiple Layers of Features from Tiny Images, 2009",
    classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    channels=3,
    folder="cifar10",
    source="cifar10",
    size=32,
)

CIFAR_100 = replace(
    CIFAR_10,
    name="cifar100",
    title="CIFAR-100",
    classes=_classes("cifar100"),
    folder="cifar100",
    source="cifar100",
)

# FedOMG's appendix E.5 reports the worst group's accuracy on CelebA; which attribute is learned and which groups are
# judged is not known from it. Ours are those of Sagawa et al., ICLR 2020; the image size of 64 is ours, too.
CELEBA = AttributeSpec(
    name="celeba",
    title="CelebA",
    reference="Liu, Luo, Wang, Tang: Deep Learning Face Attributes in the Wild, ICCV 2015; classes and groups: Sagawa, "
    "Koh, Hashimoto, Liang: Distributionally Robust Neural Networks for Group Shifts, ICLR 2020",
    classes=("blond", "not_blond"),
    folder="celeba",
    image_folder="img_align_celeba",
    attribute_list="list_attr_celeba.txt",
    part_list="list_eval_partition.txt",
    target="Blond_Hair",
    attribute="Male",
    protocol={"task": "group_classification", "image_size": 64},
    stand_in_protocol={"image_size": 32},
)


DATASETS: Registry[DatasetSpec] = Registry("data set", "fdg_plugins.datasets", [__name__], DatasetSpec)
"""All data sets by name: those above and those of plug-ins."""


def dataset_spec(dataset: DatasetRef) -> KnownSpec:
    """Return the record of a data set: the one called so, or that of a description.

    Raises SettingsError, listing the known names, if there is none. A plug-in can supply an :class:`ImageFolderSpec`,
    a :class:`SegmentationSpec`, or a :class:`RotatedSpec` with a source of this package.
    """
    if isinstance(dataset, OwnDataset):
        return described_spec(dataset)
    spec = DATASETS.get(dataset)
    if not isinstance(spec, KnownSpec):
        raise SettingsError(
            f"data set {dataset!r} is a {type(spec).__name__}, expected an ImageFolderSpec.", public=True
        )
    return spec


@lru_cache(maxsize=64)
def described_spec(own: OwnDataset) -> ImageFolderSpec | SegmentationSpec:
    """Return the record of a described data set, whose folder is the data root itself."""
    common: dict[str, Any] = {
        **{"name": own.name, "title": own.title or own.name, "reference": "a data set of one's own"},
        **{"domains": own.domains, "classes": own.classes, "folder": "", "described": True},
    }
    if own.task == "classification":
        return ImageFolderSpec(**common)
    return SegmentationSpec(
        **common, channels=own.channels, dims=own.dims, preset=own.preset, mask_values=own.mask_values
    )
