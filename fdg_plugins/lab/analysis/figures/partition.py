# SPDX-License-Identifier: Apache-2.0
"""How images are divided over the source sites: a cell per site and class, with the number of its images.

Such figures show the label skew of a federation; papers draw them as circles.
"""

from collections.abc import Sequence
from statistics import median

from fdg_plugins.data.site_names import split_site
from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.analysis.figures.groups import origin_of
from fdg_plugins.lab.analysis.figures.picture import Counts
from fdg_plugins.lab.analysis.runs import Run
from fdg_plugins.record.run_record import RunRecord
from fdg_plugins.record.text import marks


def partition(runs: Sequence[Run]) -> tuple[Counts, ...]:
    """Return one figure for each partition among the runs; raise ``SettingsError`` if there is none.

    A run whose sites have a domain each divides none, whatever its protocol says.
    """
    records = {_identity(run.record): run for run in runs if _divides(run.record)}
    if not records:
        raise SettingsError(
            "no run divides a domain by its classes (partition), so its sites' classes are those of their domain."
        )
    names = _names([run.record for run in records.values()])
    return tuple(_counts(run, name) for run, name in zip(records.values(), names, strict=True))


def _divides(record: RunRecord) -> bool:
    """Return whether sources share a domain by its classes."""
    has_parts = any(record.census[site].whole_split is not None for site in record.sources)
    return has_parts and record.protocol.partition != "equal"


def _identity(record: RunRecord) -> tuple[tuple[str, str], ...]:
    """Return what tells partitions apart: the hash of every source's images."""
    return tuple((site, record.census[site].split_hash) for site in record.sources)


def _names(records: Sequence[RunRecord]) -> list[str]:
    """Return a file name for each record, numbered if there are several."""
    return [f"partition-{number}" if len(records) > 1 else "partition" for number in range(1, len(records) + 1)]


def _counts(run: Run, name: str) -> Counts:
    record, protocol = run.record, run.record.protocol
    sites = sorted(record.sources, key=lambda site: (record.census[site].domain, split_site(site)[1] or (0, 0), site))
    alpha = f", alpha {protocol.dirichlet_alpha:g}" if protocol.partition == "dirichlet" else ""
    sizes = sorted(sum(record.census[site].class_counts) for site in sites)
    mark = f"[{marks(record)}] " if record.stand_in else ""
    return Counts(
        name=name,
        title=f"Images of each class at the sites: {protocol.partition}{alpha}",
        caption=f"{mark}{record.data}; {len(sites)} source sites of {sizes[0]:,} to {sizes[-1]:,} images, "
        f"median {median(sizes):,.10g}",
        origin=origin_of([run]),
        sites=tuple(sites),
        domains=tuple(record.census[site].domain for site in sites),
        classes=record.classes,
        counts=tuple(tuple(record.census[site].class_counts) for site in sites),
    )
