# SPDX-License-Identifier: Apache-2.0
"""Small data sets in the layouts in which the real ones are published, written for the tests."""

import io
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fdg_plugins.data import dataset_spec
from fdg_plugins.data.specs import ImageFolderSpec

FOLDERS = {
    "pacs": ("kfold", {name: name for name in ("art_painting", "cartoon", "photo", "sketch")}),
    "vlcs": ("VLCS", {"caltech101": "Caltech101", "labelme": "LabelMe", "sun09": "SUN09", "voc2007": "VOC2007"}),
    "officehome": (
        "OfficeHomeDataset_10072016",
        {"art": "Art", "clipart": "Clipart", "product": "Product", "real_world": "Real World"},
    ),
    "domainnet10": ("domain_net", {"clipart": "clipart", "real": "real"}),
}
"""By data set: the folder that its archive holds, and what the domains are called in it; of DomainNet two of six."""


def image(number: int) -> bytes:
    """Return a PNG of four pixels that differs from that of any other number below 2**24."""
    colour = (number >> 16 & 255, number >> 8 & 255, number & 255)
    stream = io.BytesIO()
    Image.new("RGB", (2, 2), colour).save(stream, "PNG")
    return stream.getvalue()


def published(dataset: str, per_class: int = 2) -> dict[str, bytes]:
    """Return the files of a data set by their paths, as its archive has them."""
    spec = dataset_spec(dataset)
    assert isinstance(spec, ImageFolderSpec)
    classes = dataset_spec("domainnet").classes if dataset == "domainnet10" else spec.classes
    top, domains = FOLDERS[dataset]
    paths = [
        f"{top}/{domain}/{name}/{number:05d}.jpg"
        for domain in domains.values()
        for name in classes
        for number in range(per_class)
    ]
    return {path: image(number) for number, path in enumerate(paths)}


def write_files(folder: Path, files: Mapping[str, bytes]) -> Path:
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return folder


def write_zip(path: Path, files: Mapping[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def write_tar(path: Path, files: Mapping[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz" if path.name.endswith("gz") else "w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def write_idx(path: Path, values: NDArray[np.uint8]) -> None:
    """Write bytes in MNIST's format: two zeros, 8 for uint8, the number of dimensions, and each size in four bytes."""
    header = bytes([0, 0, 8, values.ndim]) + b"".join(size.to_bytes(4, "big") for size in values.shape)
    path.write_bytes(header + values.tobytes())


def content_below(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield path and content of every file below ``folder`` that is not hidden."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.name.startswith("."):
            yield path.relative_to(folder).as_posix(), path.read_bytes()
