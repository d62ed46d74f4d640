# SPDX-License-Identifier: Apache-2.0
"""Whether the runs of a table had all images of a data set whose numbers of images are known."""

from collections.abc import Iterable, Iterator
from typing import Any

from fdg_plugins.data import RotatedSpec, dataset_spec
from fdg_plugins.data.catalogue import origin_of
from fdg_plugins.data.skew import EQUAL
from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.analysis.runs import Run
from fdg_plugins.messages import CensusReply


def parts_judged(runs: Iterable[Run]) -> tuple[str, ...]:
    """Return in words the held-out domains that were judged on other images than all: ``9 of 1,670 images of photo``.

    They are compared with the releases whose images were counted; files known to be mislabelled count as present,
    damaged ones that a site left out as missing. Runs with thinned or label-skewed domains are not looked at.
    """
    return _distinct(text for run in runs for text in _part(run, run.target, _judged(run)))


def parts_of_sources(runs: Iterable[Run]) -> tuple[str, ...]:
    """Return in the same way the source domains of which the sites train and validate on other images than all."""
    return _distinct(
        text for run in runs for domain, count in _trained(run).items() for text in _part(run, domain, count)
    )


def images_in_words(run: Run) -> tuple[str, ...]:
    """Return in words that a run's data were thinned, or are not all that the data set has; empty for all of it."""
    most = run.record.protocol.max_samples_per_domain
    if most is not None:
        return (f"at most {most} images per domain",)
    if run.record.stand_in:
        return ()
    trained = _trained(run)
    of_domains = (known_images(run.dataset, domain) for domain in trained)
    to_train = [sum(counts) for counts in zip(*of_domains, strict=False)]
    found = (
        ("training", sum(trained.values()), to_train),
        ("test", _judged(run), known_images(run.dataset, run.target)),
    )
    return tuple(
        f"{count:,} of {known[0]:,} {part} images" for part, count, known in found if known and count not in known
    )


def known_images(dataset: Any, domain: str, *, certain: bool = False) -> list[int]:
    """Return the numbers of images that a domain has, one for each release of the data set.

    There are none for a user's own data and for drawings. ``certain``: only numbers that were counted.
    """
    if not isinstance(dataset, str):
        return []
    try:
        spec = dataset_spec(dataset)
    except SettingsError:  # of a plug-in that is not at hand
        return []
    releases = [one.images for one in origin_of(dataset).releases if one.certain or not certain]
    if domain not in spec.domains:  # of a record of another version of the data set
        return []
    if isinstance(spec, RotatedSpec):  # all images of a release are dealt to the domains in turn
        totals = [min(total, spec.limit or total) for total in (sum(images.values()) for images in releases)]
        return [len(range(spec.domains.index(domain), total, len(spec.domains))) for total in totals]
    return [images[domain] for images in releases if domain in images]


def _judged(run: Run) -> int:
    replies = (reply for site, reply in run.record.census.items() if site in run.record.held_out)
    return max((reply.num_test + reply.num_skipped for reply in replies), default=0)


def _trained(run: Run) -> dict[str, int]:
    """Return the number of images of each source domain, over the sites that share it.

    Not by their classes, of which a census has an upper bound where images have several.
    """
    replies: dict[str, list[CensusReply]] = {}
    for reply in run.record.census.values():
        if reply.domain != run.target:
            replies.setdefault(reply.domain, []).append(reply)
    return {
        domain: sum(one.num_train + one.num_validation for one in own) + max(one.num_skipped for one in own)
        for domain, own in replies.items()
    }


def _part(run: Run, domain: str, count: int) -> Iterator[str]:
    """Yield in words that a run had ``count`` images of a domain, if it is known to have another number."""
    protocol = run.record.protocol
    if run.record.stand_in or protocol.max_samples_per_domain is not None or protocol.partition != EQUAL:
        return
    known = known_images(run.dataset, domain, certain=True)
    if known and count not in known:
        yield f"{count:,} of {known[0]:,} images of {domain}"


def _distinct(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(texts)))
