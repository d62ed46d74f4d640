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

from fdg_plugins.data import DATASETS, dataset_spec
from fdg_plugins.data.specs import ImageFolderSpec, PublishedSpec

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


EACH = 3  # images of a class in a file of arrays


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


def spec_of(name: str) -> PublishedSpec:
    spec = DATASETS.get(name)
    assert isinstance(spec, PublishedSpec)
    return spec


def write_arrays(root: Path, name: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Write small files of a data set; return images and labels of each part, as they are to be read."""
    spec, generator = spec_of(name), np.random.default_rng(1)
    found: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for domain, parts in spec.files.items():
        images, labels = [], []
        for names in parts:
            files = [root / spec.folder / file for file in names]
            own = np.repeat(np.arange(len(spec.classes)), EACH).astype(np.uint8)
            shape = (len(own), spec.size, spec.size) if spec.channels == 1 else (len(own), 3, spec.size, spec.size)
            pixels = generator.integers(0, 256, size=shape, dtype=np.uint8)
            files[0].parent.mkdir(parents=True, exist_ok=True)
            if spec.channels == 1:
                write_idx(files[0], pixels)
                write_idx(files[1], own)
            else:
                head = [own[:, None]] if name == "cifar10" else [own[:, None] // 5, own[:, None]]
                np.concatenate([*head, pixels.reshape(len(own), -1)], axis=1).tofile(files[0])
            images.append(pixels)
            labels.append(own)
        found[domain] = np.concatenate(images), np.concatenate(labels)
    return found
