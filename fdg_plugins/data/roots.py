# SPDX-License-Identifier: Apache-2.0
"""The source of a site's images: the data root that its owner configured, a stand-in, or an installed package."""

from pathlib import Path
from typing import NamedTuple

from fdg_plugins.data.catalogue import dataset_spec
from fdg_plugins.data.folders import is_folder, refuse_unfinished
from fdg_plugins.data.specs import PublishedSpec, RotatedSpec
from fdg_plugins.data.stand_in import STAND_INS, ensure_stand_in, is_stand_in
from fdg_plugins.errors import DataError
from fdg_plugins.plugins.own_dataset import DatasetRef


class DataRoot(NamedTuple):
    """The folder for ``open_domain``, None if it needs none, and whether the images only stand in for others."""

    path: Path | None
    stand_in: bool


def find_data_root(dataset: DatasetRef, data_root: Path | None, cache: Path | None) -> DataRoot:
    """Return the data root that a site configures for ``dataset``, or the stand-in if it configures none.

    The stand-ins of PACS, CelebA and the vessels are drawn below ``cache`` (default: this user's cache of the package).
    Those of RotatedMNIST, MNIST, EMNIST and CIFAR are the digits that come with scikit-learn; requested by its own
    name, RotatedDigits is not a stand-in.

    Raises DataError for a configured root that does not exist (such a site never falls back to a stand-in), for a
    data set in it whose preparation has not ended, and for a missing root if the data set has no stand-in. Raises
    SettingsError for an unknown data set.
    """
    spec = dataset_spec(dataset)
    if not spec.needs_data_root:
        return DataRoot(None, stand_in=False)
    if data_root is not None:
        if not is_folder(data_root):
            raise DataError(
                f"data root {data_root} is not a folder; FDG_DATA_ROOT or fdg_site.json names it.",
                public="its data root is not a folder.",
            )
        refuse_unfinished(data_root, spec)
        return DataRoot(data_root, stand_in=is_stand_in(data_root, spec.folder))
    if isinstance(spec, PublishedSpec | RotatedSpec):
        return DataRoot(None, stand_in=True)
    if not spec.described and spec.name in STAND_INS:
        return DataRoot(ensure_stand_in(cache, spec.name), stand_in=True)
    holds = "its domains" if spec.described else f"{spec.folder}/, which fdg data prepare {spec.name} fills"
    raise DataError(
        f"data set {spec.name} has no data root and no stand-in; expected FDG_DATA_ROOT or fdg_site.json to name the "
        f"folder that holds {holds}.",
        public=True,
    )
