# SPDX-License-Identifier: Apache-2.0
"""Where a site's images come from: the data root that its owner named, a stand-in, or an installed package."""

from pathlib import Path
from typing import NamedTuple

from fdg_plugins.data.catalogue import ImageFolderSpec, dataset_spec
from fdg_plugins.data.folders import is_folder
from fdg_plugins.data.stand_in import DATASET, ensure_stand_in, is_stand_in
from fdg_plugins.errors import DataError


class DataRoot(NamedTuple):
    """The folder to give to ``open_domain``, None if it needs none, and whether the images only stand in for others."""

    path: Path | None
    stand_in: bool


def find_data_root(dataset: str, data_root: Path | None, cache: Path | None) -> DataRoot:
    """Return the data root that a site names for ``dataset``, or the stand-in if it names none.

    The stand-in of PACS is drawn below ``cache`` (default: this user's cache of the package); that of
    RotatedMNIST is RotatedDigits, which comes with scikit-learn and under its own name is no stand-in. A
    root that is named but not there is a DataError: a site that was told where its data lies never trains
    on a stand-in instead; and so is no root for a data set that has no stand-in. SettingsError for an unknown
    data set.
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
        return DataRoot(data_root, stand_in=is_stand_in(data_root, spec.folder))
    if isinstance(spec, ImageFolderSpec):
        if spec.name != DATASET:
            raise DataError(
                f"data set {spec.name} has no data root and no stand-in; expected FDG_DATA_ROOT or fdg_site.json to "
                f"name the folder that holds {spec.folder}/, which fdg data prepare {spec.name} fills.",
                public=True,
            )
        return DataRoot(ensure_stand_in(cache), stand_in=True)
    return DataRoot(None, stand_in=True)
