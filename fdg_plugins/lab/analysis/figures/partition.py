# SPDX-License-Identifier: Apache-2.0
"""How images are divided over the source sites: a cell per site and class, with the number of its images.

Such figures show the label skew of a federation; papers draw them as circles.
"""

from collections.abc import Sequence
from statistics import median

from fdg_plugins.data.site_names import split_site
from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.analysis.figures.picture import Counts, Origin
from fdg_plugins.lab.analysis.runs import Run


def partition(runs: Sequence[Run]) -> tuple[Counts, ...]:
    """Return one figure for each partition among the runs; raise ``SettingsError`` if there is none.

    A run whose sites have a domain each divides none, whatever its protocol says.
    """
    found: dict[tuple[str, ...], Run] = {}
    for run in runs:
        census = [run.record.census[site] for site in run.record.sources]
        if run.record.protocol.partition != "equal" and any(reply.division is not None for reply in census):
            found[tuple(reply.split_hash for reply in census)] = run
    if not found:
        raise SettingsError(
            "no run divides a domain by its classes (partition), so its sites' classes are those of their domain."
        )
    return tuple(
        _counts(run, f"partition-{number}" if len(found) > 1 else "partition")
        for number, run in enumerate(found.values(), start=1)
    )


def _counts(run: Run, name: str) -> Counts:
    record, protocol = run.record, run.record.protocol
    sites = sorted(record.sources, key=lambda site: (record.census[site].domain, split_site(site)[1] or (0, 0), site))
    alpha = f", alpha {protocol.dirichlet_alpha:g}" if protocol.partition == "dirichlet" else ""
    sizes = sorted(sum(record.census[site].class_counts) for site in sites)
    return Counts(
        name=name,
        title=f"Images of each class at the sites: {protocol.partition}{alpha}",
        caption=f"{record.data}; {len(sites)} source sites of {sizes[0]:,} to {sizes[-1]:,} images, "
        f"median {median(sizes):,.10g}",
        origin=Origin(record.data, record.stand_in, record.initial_weights.label),
        sites=tuple(sites),
        domains=tuple(record.census[site].domain for site in sites),
        classes=record.classes,
        counts=tuple(tuple(record.census[site].class_counts) for site in sites),
    )
