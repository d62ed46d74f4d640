# SPDX-License-Identifier: Apache-2.0
"""The records of data sets, by the form of their files, and the records of images and of what a domain holds."""

from collections.abc import Collection, Mapping
from dataclasses import KW_ONLY, dataclass, field
from pathlib import PurePosixPath
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

import pydantic

from fdg_plugins.data.site_names import site_names, split_site
from fdg_plugins.errors import SettingsError, nearest, shorten
from fdg_plugins.plugins.fields import check_fields
from fdg_plugins.plugins.own_dataset import FolderNames, MaskValues, PlainName

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff")
"""The suffixes of image files in folders; others are not read."""

FAMILY_NAMES = ("photographs", "digits", "label_skew", "segmentation")
"""The families that have a protocol (``fdg_plugins.settings.protocols``)."""

Folder = Annotated[str, pydantic.StringConstraints(pattern=r"^([A-Za-z0-9_][A-Za-z0-9_.-]*)?$")]
Channels = Annotated[int, pydantic.Field(ge=1, lt=10_000)]


@dataclass(frozen=True, kw_only=True)
class DatasetSpec:
    """The record of a data set; the position of a class in ``classes`` is its label at every site.

    ``channels`` is 3 for colour and 1 for grey images, ``dims`` 2 for images and 3 for volumes. ``folder`` holds the
    files below a data root; it is empty if ``needs_data_root`` is false, because an installed package then supplies the
    images. The ``families`` (by the channels, by the kind, and as named) determine the protocol and the method
    settings; ``protocol`` and ``stand_in_protocol`` override some of them. ``described``: a user's own data set, of
    which the job brings the description; a data root then is its folder.

    Raises ``SettingsError`` for a field of another type, names that are not those of folders or not different, and a
    family that is nearly one with a protocol.
    """

    layout: ClassVar[str] = "<class>/*.jpg"
    family_of_kind: ClassVar[str | None] = None

    name: PlainName
    title: str
    reference: str
    domains: FolderNames
    classes: Annotated[FolderNames, pydantic.Field(min_length=2)]
    channels: Channels
    dims: Annotated[int, pydantic.Field(ge=2, le=3)] = 2
    folder: Folder
    needs_data_root: bool = True
    task: str = "classification"
    family: str | None = None
    protocol: Mapping[str, Any] = field(default_factory=dict)
    stand_in_protocol: Mapping[str, Any] = field(default_factory=dict)
    described: bool = False

    @property
    def sites(self) -> tuple[str, ...]:
        """The name of each domain's site, in the order of the domains: the domain's own, if FLARE takes it."""
        return site_names(self.domains)

    @property
    def targets(self) -> tuple[str, ...]:
        """The domains that ``--targets all`` holds out in turn."""
        return self.domains

    @property
    def names(self) -> tuple[str, ...]:
        """All names that refer to this data set: its own."""
        return (self.name,)

    def share_of(self, site: str) -> tuple[str, tuple[int, int] | None]:
        """Return a site's domain by its name, and its part, if any: ``photo-3of10`` has the third of ten of ``photo``.

        The domain of an unknown name is that name.
        """
        name, part = split_site(site)
        domain_of = dict(zip(self.sites, self.domains, strict=True))
        if site not in domain_of and name in domain_of:
            return domain_of[name], part
        return domain_of.get(site, site), None

    def site_of(self, domain: str) -> str:
        """Return the name of a domain's site, or the domain itself if it is unknown."""
        return dict(zip(self.domains, self.sites, strict=True)).get(domain, domain)

    @property
    def families(self) -> tuple[str, ...]:
        """The one given by its channels, that of its kind, then the one it names."""
        by_channels = "digits" if self.channels == 1 else "photographs"
        return tuple(dict.fromkeys(name for name in (by_channels, self.family_of_kind, self.family) if name))

    def __post_init__(self) -> None:
        check_fields(self, f"data set {shorten(self.name)}")
        near = nearest(self.family, FAMILY_NAMES)
        if near is not None and self.family not in FAMILY_NAMES:
            raise SettingsError(field="family", value=self.family, expected=f"{near!r}, or a name less like it")


@dataclass(frozen=True, kw_only=True)
class ImageFolderSpec(DatasetSpec):
    """A data set stored as ``<data root>/<folder>/<domain>/<class>/<image file>``; classes are sorted by name.

    ``known_bad`` lists images to leave out everywhere, as ``<domain>/<class>/<file name without suffix>``.
    """

    channels: Literal[1, 3] = 3
    known_bad: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SegmentationSpec(DatasetSpec):
    """Images with masks: ``<data root>/<folder>/<domain>/{images,masks}/<stem>.<suffix>``, or a data list per domain.

    An image and its mask have the same stem; data lists: :mod:`fdg_plugins.data.pairs`. ``mask_values`` are the values
    in a mask file that stand for each class, in the order of the classes; empty: the value is the class's number.
    ``preset`` names the transforms from a file to the network's input (:mod:`fdg_plugins.data.presets`).
    """

    layout: ClassVar[str] = "images/* and masks/*"
    family_of_kind: ClassVar[str | None] = "segmentation"

    task: str = "segmentation"
    channels: Channels = 3
    preset: str = "photo"
    mask_values: MaskValues = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        values = [value for of_class in self.mask_values for value in of_class]
        is_whole = not self.mask_values or (len(self.mask_values) == len(self.classes) and all(self.mask_values))
        if not is_whole or len({*values}) < len(values):
            raise SettingsError(field="mask_values", value=self.mask_values, expected="some for each class, each once")

    @property
    def class_of_value(self) -> dict[int, int]:
        """The class number that each value in a mask file stands for."""
        listed = self.mask_values or tuple((number,) for number in range(len(self.classes)))
        return {value: number for number, values in enumerate(listed) for value in values}


@dataclass(frozen=True, kw_only=True)
class RotatedSpec(DatasetSpec):
    """Grey images distributed over the domains; domain ``k`` rotates its images by ``angles[k]`` degrees.

    ``source`` names the data set of the original images, ``size`` is their height and width in pixels, and ``limit`` is
    the number of images used, None for all. Without a data root, ``stand_in`` is opened instead.
    """

    source: str
    angles: tuple[int, ...]
    size: int = 28
    limit: int | None = None
    stand_in: "RotatedSpec | None" = None
    channels: Channels = 1


@dataclass(frozen=True, kw_only=True)
class PublishedSpec(DatasetSpec):
    """Images published as a training and a test part, in few files: many sites share ``train``, ``test`` is held out.

    ``files`` has the paths below ``folder``, by part, those that are read together in one tuple; a record begins with
    ``label_bytes``, the last of which is the label. ``size`` is the height and width of an image in pixels. Without a
    data root, digits stand in.
    """

    family_of_kind: ClassVar[str | None] = "label_skew"

    files: Mapping[str, tuple[tuple[str, ...], ...]]
    label_bytes: int = 1
    size: int
    domains: FolderNames = ("test", "train")

    @property
    def targets(self) -> tuple[str, ...]:
        """The published test part alone: nobody holds out the part that is there to train on."""
        return ("test",)


@dataclass(frozen=True, kw_only=True)
class AttributeSpec(DatasetSpec):
    """Image files in one folder, and two lists that give each image's attributes and its published part.

    The paths of ``image_folder``, ``attribute_list`` and ``part_list`` are below ``folder``. An image that has the
    attribute ``target`` is of the first class, and any other of the second; images that have ``attribute`` are
    evaluated apart. The domains are the keys of ``parts``, whose values stand for them in the list.
    """

    family_of_kind: ClassVar[str | None] = "label_skew"

    image_folder: str
    attribute_list: str
    part_list: str
    target: str
    attribute: str
    parts: Mapping[str, str] = field(default_factory=lambda: {"test": "2", "train": "0"})
    domains: FolderNames = ("test", "train")
    channels: Channels = 3
    task: str = "group_classification"


KnownSpec: TypeAlias = AttributeSpec | ImageFolderSpec | PublishedSpec | RotatedSpec | SegmentationSpec
"""Every kind of data set that this package reads from files."""


@dataclass(frozen=True)
class Sample:
    """One image: its ``label`` in [0, Y), and what it belongs to (``group``; empty: nothing is declared).

    ``file`` is its POSIX path below the data set's folder; of images in memory, the position in the order in which they
    were distributed over the domains, e.g. ``00017``. An image with a ``mask``, the path of which may begin with
    ``../``, has the label 0, as its pixels have classes. So has one with any number of classes, of which ``present``
    has 1 for each class of the data set that the image has, else 0. ``attribute``: 1 if it has the data set's, else 0.
    """

    file: str
    label: int
    _: KW_ONLY
    group: str = ""
    mask: str = ""
    present: tuple[int, ...] = ()
    attribute: int = 0


def without_suffix(file: str) -> str:
    """Return the POSIX path ``file`` without the suffix of its last component; other dots remain."""
    return file.removesuffix(PurePosixPath(file).suffix)


@dataclass(frozen=True)
class Listing:
    """What a domain holds, by names alone.

    ``images`` are sorted by file, and ``skipped`` are the files left out because they are known to be bad, or the site
    excludes them. ``unused`` says, in phrases, what else lies there. ``parts``: the files for ``training``, and perhaps
    for ``validation`` and ``test``, if somebody divides the domain; ``origin`` says in the split's name who. Without
    ``validation``, the seed draws a tenth of ``training``; without ``test``, all images are for tests. ``group``: what
    keeps images together, such as ``patient``, if somebody says so.
    """

    images: tuple[Sample, ...]
    skipped: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    parts: Mapping[str, Collection[str]] = field(default_factory=dict)
    origin: str = ""
    group: str | None = None
