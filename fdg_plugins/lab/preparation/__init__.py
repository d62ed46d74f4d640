# SPDX-License-Identifier: Apache-2.0
"""Prepare a data set on disk: from a download to the layout that ``open_domain`` reads, checked and hashed.

prepared = prepare(dataset_spec("pacs"), Path("~/Downloads/PACS.zip").expanduser(), Path("/data"))
prepared.verdict.differences  # empty if the images match the known counts of the data set
"""

from fdg_plugins.lab.preparation.checks import (
    Changes,
    Counts,
    Manifest,
    Verdict,
    count_images,
    find_changes,
    judge,
    read_manifest,
    write_manifest,
)
from fdg_plugins.lab.preparation.prepare import Prepared, prepare

__all__ = [
    "Changes",
    "Counts",
    "Manifest",
    "Prepared",
    "Verdict",
    "count_images",
    "find_changes",
    "judge",
    "prepare",
    "read_manifest",
    "write_manifest",
]
