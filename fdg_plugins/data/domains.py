# SPDX-License-Identifier: Apache-2.0
"""One domain of a data set as a site finds it: checked, listed in a fixed order, split, and divided among sites.

Opening a domain of image folders reads folder names only; ``check_images`` is the separate, slower look
into the files. Images that come in one array are read, turned and kept in memory when the domain is opened.
"""

from dataclasses import dataclass
from pathlib import Path

from fdg_plugins.data.catalogue import ImageFolderSpec, RotatedSpec, Sample, dataset_spec
from fdg_plugins.data.decoding import open_image
from fdg_plugins.data.folders import existing_folders, list_domain
from fdg_plugins.data.image_files import ImageFiles
from fdg_plugins.data.rotated import ImageArray, rotated_domain
from fdg_plugins.data.splits import Split, listed_split, part_of, seeded_split
from fdg_plugins.errors import DataError, SettingsError

__all__ = ["DomainData", "Sample", "check_images", "open_domain"]


@dataclass(frozen=True)
class DomainData:
    """The images of one domain at one site.

    ``images`` is where they come from: files below a folder, by the ``file`` of each sample, or an array. ``test`` is
    what a held-out domain is judged on: all of the domain, or what its official test list names. ``skipped`` are the
    files left out because they are known to be bad.
    """

    dataset: str
    domain: str
    images: ImageFiles | ImageArray
    classes: tuple[str, ...]
    train: tuple[Sample, ...]
    validation: tuple[Sample, ...]
    test: tuple[Sample, ...]
    split: str
    split_hash: str
    skipped: tuple[str, ...]


def open_domain(
    data_root: Path | None,
    dataset: str,
    domain: str,
    *,
    seed: int,
    max_samples: int | None = None,
    part: tuple[int, int] | None = None,
    image_memory: int = 0,
) -> DomainData:
    """List and split the images of a domain: those in ``<data_root>/<data set>/<domain>/<class>/``, or turned digits.

    Without a data root, RotatedMNIST is replaced by RotatedDigits, which the name of the split shows. Of
    image folders, the official lists are used where they are found below the data set's folder; else
    comes a 90/10 split that depends on ``seed`` and on nothing but the names of the images.
    ``max_samples`` keeps that many images of the domain, chosen by ``seed`` in proportion to the classes.
    ``part``, the number of a site among that many of the domain, counted from 1, keeps the site's share of
    the training and of the validation images; the test images stay those of the whole domain.
    ``image_memory``: bytes of decoded images that are kept in memory, so that each is decoded once; of files only.

    Raises SettingsError for an unknown data set or domain, too small a ``max_samples`` or an impossible
    ``part``, and DataError for a data root, folders or files that are missing, broken, empty or unexpected,
    links that leave the data root, and lists that do not fit the images.
    """
    spec = dataset_spec(dataset)
    if domain not in spec.domains:
        raise SettingsError(
            f"domain {domain!r} is unknown in data set {spec.name}; expected one of: {', '.join(spec.domains)}."
        )
    images, split, skipped = _found(data_root, spec, domain, seed, max_samples, image_memory)
    if part is not None:
        split = part_of(split, spec, domain, part, seed=seed)
    return DomainData(
        dataset=spec.name,
        domain=domain,
        images=images,
        classes=spec.classes,
        train=split.train,
        validation=split.validation,
        test=split.test,
        split=split.name,
        split_hash=split.digest,
        skipped=skipped,
    )


def check_images(data: DomainData) -> None:
    """Open the header of every image file of ``data`` once; DataError naming the first that is no image."""
    if isinstance(data.images, ImageArray):
        return  # read as a whole when the domain was opened
    for file in dict.fromkeys(sample.file for sample in (*data.train, *data.validation, *data.test)):
        open_image(data.images.folder / file).close()


def _found(
    data_root: Path | None,
    spec: ImageFolderSpec | RotatedSpec,
    domain: str,
    seed: int,
    max_samples: int | None,
    image_memory: int,
) -> tuple[ImageFiles | ImageArray, Split, tuple[str, ...]]:
    """Return where the images of a domain come from, their split, and the known bad files among them."""
    if isinstance(spec, RotatedSpec):
        opened = spec if data_root is not None or spec.stand_in is None else spec.stand_in
        images, samples = rotated_domain(data_root, opened, domain)
        return images, seeded_split(samples, opened, domain, seed=seed, max_samples=max_samples), ()
    if data_root is None:
        raise DataError(f"data set {spec.name} has no data root; expected the folder that holds {spec.folder}/.")
    root = existing_folders(Path(data_root), spec, domain)
    found, skipped = list_domain(root, spec, domain)
    split = listed_split(found, spec, domain, root, seed=seed, max_samples=max_samples)
    split = split or seeded_split(found, spec, domain, seed=seed, max_samples=max_samples)
    return ImageFiles(root / spec.folder, image_memory), split, skipped
