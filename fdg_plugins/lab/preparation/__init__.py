# SPDX-License-Identifier: Apache-2.0
"""Prepare a data set on disk: from a download to the layout that ``open_domain`` reads, checked and hashed.

source = open_source(Path("~/Downloads/pacs").expanduser())
prepared = prepare(dataset_spec("pacs"), source, Path("/data"))
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
from fdg_plugins.lab.preparation.hub import HubSource
from fdg_plugins.lab.preparation.prepare import Prepared, prepare
from fdg_plugins.lab.preparation.sources import Source, open_source

__all__ = [
    "Changes",
    "Counts",
    "HubSource",
    "Manifest",
    "Prepared",
    "Source",
    "Verdict",
    "count_images",
    "find_changes",
    "judge",
    "open_source",
    "prepare",
    "read_manifest",
    "write_manifest",
]
