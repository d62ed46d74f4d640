# SPDX-License-Identifier: Apache-2.0
"""What lies among the image folders of a domain and is not used, as a user should hear of it.

It is noted while the folders are listed, so that nothing is listed twice; only folders that are not used are entered.
"""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from fdg_plugins.data.specs import IMAGE_SUFFIXES
from fdg_plugins.values import counted, visible

# Suffixes of images that are not read. They tell a folder of images from one of notes.
_OTHER_IMAGES = (
    *(".gif", ".heic", ".heif", ".avif", ".jfif", ".jp2", ".svg", ".tga", ".ppm", ".pgm"),
    *(".dcm", ".nii", ".nii.gz", ".mha", ".mhd", ".nrrd", ".raw", ".dng", ".cr2", ".nef", ".psd", ".npy"),
)

# Files that systems leave in folders of images, of which nobody needs to hear.
OF_SYSTEMS = frozenset({"thumbs.db", "desktop.ini"})
MOST_KINDS = 5


@dataclass
class Unused:
    """Paths below the data set's folder, by what they are.

    ``among``: the folders that hold the images, in words. ``loose``: images beside these folders. ``others``: files in
    them with another suffix. ``nested``: folders with images in them. ``folders``: folders that are neither classes nor
    parts, but hold images. What the site excludes is none of these.
    """

    among: str = "folders of classes"
    loose: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    nested: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)

    def phrases(self, base: Path | None = None) -> Iterator[str]:
        """Yield a phrase for each kind that there is; with the data set's folder, nested images are counted."""
        if self.nested:
            held = "" if base is None else f", with {sum(images_below(base / path) for path in self.nested):,} images"
            yield f"{counted(len(self.nested), 'folder')} in {self.among}{held}{_example(self.nested)}"
        if self.others:
            counts = Counter(PurePosixPath(path).suffix.lower() or "no suffix" for path in self.others)
            kinds = sorted(counts, key=lambda kind: (-counts[kind], kind))[:MOST_KINDS]
            told = ", ".join(f"{visible(kind)} {counts[kind]:,}" for kind in kinds)
            yield f"{counted(len(self.others), 'file')} with a suffix that is not read: {told}{_example(self.others)}"
        if self.loose:
            yield f"{counted(len(self.loose), 'image')} in no folder of a class{_example(self.loose)}"
        if self.folders:
            number = counted(len(self.folders), "folder")
            yield f"{number} without an image where one is expected{_example(self.folders)}"


def _example(paths: Sequence[str]) -> str:
    return f" ({'' if len(paths) == 1 else 'such as '}{visible(min(paths))})"


def is_image_name(name: str) -> bool:
    """Return whether a file of this name is an image, to be used."""
    return not name.startswith(".") and name.lower().endswith(IMAGE_SUFFIXES)


def images_below(folder: Path) -> int:
    """Return the number of images in a folder and the folders in it; links to folders are not followed."""
    return sum(is_image_name(name) for name in _names_below(folder))


def has_images_below(folder: Path) -> bool:
    """Return whether a folder, or one in it, holds images, be it of a kind that is not read."""
    known = (*IMAGE_SUFFIXES, *_OTHER_IMAGES)
    return any(name.lower().endswith(known) and not name.startswith(".") for name in _names_below(folder))


def _names_below(folder: Path) -> Iterator[str]:
    """Yield the names of files; what cannot be listed has none, and hidden folders are not entered."""
    for _, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from files
