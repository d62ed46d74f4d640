# SPDX-License-Identifier: Apache-2.0
"""The data sets this package knows by name, and what one labelled image of them is."""

from dataclasses import dataclass

from fdg_plugins.errors import SettingsError


@dataclass(frozen=True, kw_only=True)
class DatasetSpec:
    """What every data set has: the position of a class in ``classes`` is its label at every site.

    ``channels`` is 3 for colour and 1 for grey images. ``needs_data_root`` is false where the images come
    with an installed package.
    """

    name: str
    title: str
    reference: str
    domains: tuple[str, ...]
    classes: tuple[str, ...]
    channels: int
    needs_data_root: bool = True


@dataclass(frozen=True, kw_only=True)
class ImageFolderSpec(DatasetSpec):
    """A data set kept as ``<data root>/<folder>/<domain>/<class>/<image file>``; classes are sorted by name.

    ``known_bad`` names images that are left out everywhere, as ``<domain>/<class>/<file name without suffix>``.
    """

    folder: str
    channels: int = 3
    known_bad: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RotatedSpec(DatasetSpec):
    """Grey images that are dealt to the domains and turned, in domain ``k``, by ``angles[k]`` degrees.

    ``source`` names the images before that, ``size`` is their height and width in pixels, and ``limit``
    how many of them are used, None for all. ``stand_in`` is opened instead where there is no data root.
    """

    source: str
    angles: tuple[int, ...]
    size: int = 28
    limit: int | None = None
    stand_in: "RotatedSpec | None" = None
    channels: int = 1


@dataclass(frozen=True)
class Sample:
    """One labelled image: ``label`` lies in [0, Y), and ``file`` tells the image from all others of the data set.

    ``file`` is the image's POSIX path below the data set's folder; for images kept in memory, it is the
    position in the order in which they were dealt to the domains, e.g. ``00017``.
    """

    file: str
    label: int

    @property
    def stem(self) -> str:
        """The path without the suffix of the file name, e.g. ``photo/dog/056_0001``."""
        return without_suffix(self.file)


def without_suffix(file: str) -> str:
    """Return the POSIX path ``file`` without the suffix of its last part; other dots stay."""
    folder, slash, name = file.rpartition("/")
    return folder + slash + (name.rpartition(".")[0] or name)


PACS = ImageFolderSpec(
    name="pacs",
    folder="pacs",
    title="PACS",
    reference="Li, Yang, Song, Hospedales: Deeper, Broader and Artier Domain Generalization, ICCV 2017",
    domains=("art_painting", "cartoon", "photo", "sketch"),
    classes=("dog", "elephant", "giraffe", "guitar", "horse", "house", "person"),
    known_bad=("sketch/dog/n02103406_4068-1",),
)

_ANGLES = (0, 15, 30, 45, 60, 75)
_ANGLE_DOMAINS = tuple(f"angle_{angle}" for angle in _ANGLES)
_DIGITS = tuple("0123456789")
_ROTATED_REFERENCE = (
    "Ghifary, Kleijn, Zhang, Balduzzi: Domain Generalization for Object Recognition with Multi-task "
    "Autoencoders, ICCV 2015"
)

ROTATED_DIGITS = RotatedSpec(
    name="rotateddigits",
    title="RotatedDigits",
    reference="Alpaydin, Kaynak: Optical Recognition of Handwritten Digits, UCI 1998, as scikit-learn brings it",
    domains=_ANGLE_DOMAINS,
    classes=_DIGITS,
    source="digits",
    angles=_ANGLES,
    needs_data_root=False,
)

ROTATED_MNIST = RotatedSpec(
    name="rotatedmnist",
    title="RotatedMNIST",
    reference=_ROTATED_REFERENCE,
    domains=_ANGLE_DOMAINS,
    classes=_DIGITS,
    source="mnist",
    angles=_ANGLES,
    stand_in=ROTATED_DIGITS,
)

# FedDIM's paper gives RotatedMNIST 7,000 images, FedIIR's 70,000.
ROTATED_MNIST_7K = RotatedSpec(
    name="rotatedmnist_7k",
    title="RotatedMNIST (7,000)",
    reference=_ROTATED_REFERENCE,
    domains=_ANGLE_DOMAINS,
    classes=_DIGITS,
    source="mnist",
    angles=_ANGLES,
    limit=7000,
    stand_in=ROTATED_DIGITS,
)

_SPECS: dict[str, ImageFolderSpec | RotatedSpec] = {
    spec.name: spec for spec in (PACS, ROTATED_DIGITS, ROTATED_MNIST, ROTATED_MNIST_7K)
}


def dataset_spec(name: str) -> ImageFolderSpec | RotatedSpec:
    """Return the data set called ``name``; SettingsError, listing the known names, if there is none."""
    if name not in _SPECS:
        raise SettingsError(f"data set {name!r} is unknown; expected one of: {', '.join(sorted(_SPECS))}.")
    return _SPECS[name]
