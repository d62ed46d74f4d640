# SPDX-License-Identifier: Apache-2.0
"""The source of a site's images: the data root that its owner configured, a stand-in, or an installed package."""

from pathlib import Path
from typing import NamedTuple

from fdg_plugins.data.catalogue import dataset_spec
from fdg_plugins.data.folders import is_folder
from fdg_plugins.data.specs import DatasetSpec, PublishedSpec, RotatedSpec
from fdg_plugins.data.stand_in import DATASET, ensure_stand_in
from fdg_plugins.data.stand_in_faces import DATASET as FACES_DRAWN
from fdg_plugins.data.stand_in_faces import ensure_faces
from fdg_plugins.data.stand_in_files import is_stand_in
from fdg_plugins.data.stand_in_vessels import DATASET as VESSELS_DRAWN
from fdg_plugins.data.stand_in_vessels import ensure_vessels
from fdg_plugins.data.unfinished import refuse_unfinished
from fdg_plugins.errors import DataError
from fdg_plugins.plugins.own_dataset import DatasetRef


class DataRoot(NamedTuple):
    """The folder for ``open_domain``, None if it needs none, and whether the images only stand in for others."""

    path: Path | None
    stand_in: bool


def find_data_root(dataset: DatasetRef, data_root: Path | None, cache: Path | None) -> DataRoot:
    """Return the data root that a site configures for ``dataset``, or the stand-in if it configures none.

    The stand-ins of PACS, CelebA and the vessels are drawn below ``cache`` (default: this user's cache of the package).
    That of RotatedMNIST is RotatedDigits, which comes with scikit-learn; requested by its own name, RotatedDigits is
    not a stand-in. MNIST, EMNIST and CIFAR have the same digits as theirs, unrotated.

    Raises DataError for a configured root that does not exist (such a site never falls back to a stand-in), for a
    data set in it whose preparation has not ended, and for a missing root if the data set has no stand-in. Raises
    SettingsError for an unknown data set.
    """
    spec = dataset_spec(dataset)
    if not spec.needs_data_root:
        return DataRoot(None, stand_in=False)
    if data_root is not None:
        _refuse_missing(data_root)
        refuse_unfinished(data_root, spec)
        return DataRoot(data_root, stand_in=is_stand_in(data_root, spec.folder))
    if not isinstance(spec, PublishedSpec | RotatedSpec):
        return DataRoot(_drawn(spec, cache), stand_in=True)
    return DataRoot(None, stand_in=True)


def _drawn(spec: DatasetSpec, cache: Path | None) -> Path:
    """Draw the stand-in of a data set and return its root; raise DataError for one that has none."""
    if spec.described:
        raise DataError(
            f"your own data set {spec.name} has no data root; expected FDG_DATA_ROOT or fdg_site.json "
            "to name the folder that holds its domains.",
            public=True,
        )
    if spec.name == VESSELS_DRAWN:
        return ensure_vessels(cache)
    if spec.name == FACES_DRAWN:
        return ensure_faces(cache)
    if spec.name == DATASET:
        return ensure_stand_in(cache)
    raise DataError(
        f"data set {spec.name} has no data root and no stand-in; expected FDG_DATA_ROOT or fdg_site.json to name the "
        f"folder that holds {spec.folder}/, which fdg data prepare {spec.name} fills.",
        public=True,
    )


def _refuse_missing(data_root: Path) -> None:
    if not is_folder(data_root):
        raise DataError(
            f"data root {data_root} is not a folder; FDG_DATA_ROOT or fdg_site.json names it.",
            public="its data root is not a folder.",
        )
