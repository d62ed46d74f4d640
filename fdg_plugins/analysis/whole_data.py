# SPDX-License-Identifier: Apache-2.0
"""Whether the runs of a table had all images of a data set whose numbers of images are known."""

from collections.abc import Iterable, Mapping, Set

from fdg_plugins.analysis.runs import Run
from fdg_plugins.data import RotatedSpec, dataset_spec
from fdg_plugins.data.origins import origin_of
from fdg_plugins.data.skew import EQUAL
from fdg_plugins.errors import SettingsError


def parts_judged(runs: Iterable[Run]) -> tuple[str, ...]:
    """Return in words the held-out domains that were judged on other images than all: ``9 of 1,670 images of photo``.

    They are compared with the releases whose images were counted; files known to be mislabelled count as present,
    damaged ones that a site left out as missing. Runs with thinned or label-skewed domains are not looked at.
    """
    found = {text for run in runs if (text := _part_judged(run)) is not None}
    return tuple(sorted(found))


def part_trained(run: Run) -> str | None:
    """Return in words how many images the source sites share, if the data set has another number; else None."""
    domains = {run.record.census[site].domain for site in run.record.sources}
    known = [sum(images[domain] for domain in domains) for images in _releases(run, domains)]
    trained = sum(sum(run.record.census[site].class_counts) for site in run.record.sources)
    return f"{trained:,} of {known[0]:,} training images" if known and trained not in known else None


def _part_judged(run: Run) -> str | None:
    if run.record.protocol.max_samples_per_domain is not None or run.record.protocol.partition != EQUAL:
        return None
    known = [images[run.target] for images in _releases(run, {run.target}, certain=True)]
    replies = (run.record.census[site] for site in run.record.held_out)
    judged = max((reply.num_test + reply.num_skipped for reply in replies), default=0)
    return f"{judged:,} of {known[0]:,} images of {run.target}" if known and judged not in known else None


def _releases(run: Run, domains: Set[str], *, certain: bool = False) -> list[Mapping[str, int]]:
    """Return the known numbers of images by domain, of releases that have ``domains``.

    There are none for a user's own data, drawings and turned images. ``certain``: only numbers that were counted.
    """
    if run.record.stand_in or not isinstance(run.dataset, str):
        return []
    try:
        spec = dataset_spec(run.dataset)
    except SettingsError:  # of a plug-in that is not at hand
        return []
    if isinstance(spec, RotatedSpec):
        return []
    releases = (one for one in origin_of(run.dataset).releases if one.certain or not certain)
    return [one.images for one in releases if domains <= one.images.keys()]
