# SPDX-License-Identifier: Apache-2.0
"""The accuracy of a constant answer: below it, a classifier has learned no more than which class is the commonest."""

import statistics
from collections.abc import Iterable, Mapping

from fdg_plugins.lab.analysis.runs import Run
from fdg_plugins.tasks import DEFAULT_TASK


def commonest_in_domains(runs: Iterable[Run]) -> dict[str, float]:
    """Return the share of the commonest class of each held-out domain, mean over the seeds.

    There is none for tasks whose score is not the share of images that are right.
    """
    shares: dict[str, dict[int, float]] = {}
    for run in filter(_is_by_image, runs):
        replies = [run.record.census[site] for site in run.record.held_out if site in run.record.census]
        counts = [sum(column) for column in zip(*(reply.class_counts for reply in replies), strict=False)]
        if any(counts):
            shares.setdefault(run.target, {})[run.seed] = max(counts) / sum(counts)
    return {name: statistics.fmean(own.values()) for name, own in shares.items()}


def note_on_domains(shares: Mapping[str, float], columns: Iterable[str]) -> list[str]:
    """Return a note with the ``shares`` of the domains that are among the ``columns``, in their order."""
    found = {name: shares[name] for name in columns if name in shares}
    parts = [f"{name} {100 * share:.1f}" for name, share in found.items()]
    if len(found) > 1:
        parts.append(f"on average {100 * statistics.fmean(found.values()):.1f}")
    named = "Always naming the held-out domain's commonest class is right in this percentage of its images"
    return [f"{named}: {', '.join(parts)}."] if parts else []


def commonest_at_sites(run: Run) -> float | None:
    """Return the accuracy on the sites' own test images if each site's answer is always its commonest class.

    Nearly so: a census counts the classes of the images that a site trains on and of those that it tests on together.
    None for a task whose score is not the share of images that are right, and without test images.
    """
    if not _is_by_image(run):
        return None
    replies = [run.record.census[site] for site in run.record.sources if any(run.record.census[site].class_counts)]
    images = sum(reply.num_validation for reply in replies)
    right = sum(reply.num_validation * max(reply.class_counts) / sum(reply.class_counts) for reply in replies)
    return right / images if images else None


def note_on_sites(found: Iterable[tuple[str, Run]], images: str) -> list[str]:
    """Return a note with :func:`commonest_at_sites` in each column; ``found``: the column of each run, in order.

    ``images``: what the sites' own test images are called.
    """
    shares: dict[str, list[float]] = {}
    for column, run in found:
        if (share := commonest_at_sites(run)) is not None:
            shares.setdefault(column, []).append(share)
    parts = [f"{column} {100 * statistics.fmean(own):.1f}" for column, own in shares.items()]
    named = "Always naming the site's own commonest class is right in about this percentage of the"
    return [f"{named} {images}: {', '.join(parts)}."] if parts else []


def _is_by_image(run: Run) -> bool:
    """Return whether the score is the share of images that are right, as that of the default task."""
    return run.record.task.one_class_per_image and run.record.score == DEFAULT_TASK.score
