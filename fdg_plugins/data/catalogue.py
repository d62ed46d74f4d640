# SPDX-License-Identifier: Apache-2.0
"""The data sets this package knows by name, and what one labelled image of them is."""

from dataclasses import dataclass

from fdg_plugins.errors import SettingsError


@dataclass(frozen=True)
class ImageFolderSpec:
    """A data set kept as ``<data root>/<folder>/<domain>/<class>/<image file>``.

    ``classes`` are sorted by name: the position of a class is its label at every site. ``known_bad``
    names images that are left out everywhere, as ``<domain>/<class>/<file name without suffix>``.
    """

    name: str
    folder: str
    title: str
    reference: str
    domains: tuple[str, ...]
    classes: tuple[str, ...]
    known_bad: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sample:
    """One labelled image: ``file`` is its POSIX path below the data set's folder, ``label`` lies in [0, Y)."""

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

_SPECS = {spec.name: spec for spec in (PACS,)}


def dataset_spec(name: str) -> ImageFolderSpec:
    """Return the data set called ``name``; SettingsError, listing the known names, if there is none."""
    if name not in _SPECS:
        raise SettingsError(f"data set {name!r} is unknown; expected one of: {', '.join(sorted(_SPECS))}.")
    return _SPECS[name]
