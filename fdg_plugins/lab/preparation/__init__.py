# SPDX-License-Identifier: Apache-2.0
"""Prepare a data set on disk: from a download to the layout that ``open_domain`` reads, checked and hashed.

    source = open_source(Path("~/Downloads/pacs").expanduser())
    prepared = prepare(dataset_spec("pacs"), source, Path("/data"))
    prepared.verdict.differences  # empty if the images match the known counts of the data set

``sources`` and ``archives`` read the download, ``hub`` downloads, ``layouts``, ``camera_traps`` and ``mask_layouts``
map source files to target files, ``copying`` copies them (``pictures`` converts), ``counts`` and ``manifest``
check them.
"""

from fdg_plugins.lab.preparation.archives import open_source
from fdg_plugins.lab.preparation.copying import Copied, Track, untracked
from fdg_plugins.lab.preparation.counts import Counts, Verdict, count_images, judge
from fdg_plugins.lab.preparation.hub import HubSource
from fdg_plugins.lab.preparation.items import Item
from fdg_plugins.lab.preparation.layouts import Plan, make_plan
from fdg_plugins.lab.preparation.manifest import (
    Changes,
    Manifest,
    find_changes,
    read_manifest,
    write_manifest,
)
from fdg_plugins.lab.preparation.prepare import Prepared, prepare
from fdg_plugins.lab.preparation.sources import Source

__all__ = [
    "Changes",
    "Copied",
    "Counts",
    "HubSource",
    "Item",
    "Manifest",
    "Plan",
    "Prepared",
    "Source",
    "Track",
    "Verdict",
    "count_images",
    "find_changes",
    "judge",
    "make_plan",
    "open_source",
    "prepare",
    "read_manifest",
    "untracked",
    "write_manifest",
]
