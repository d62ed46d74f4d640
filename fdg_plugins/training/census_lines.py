# SPDX-License-Identifier: Apache-2.0
"""What a site's own log says of its answer to the census: these lines name files, and stay at the site."""

from collections.abc import Iterator

from fdg_plugins.messages import CensusReply
from fdg_plugins.training.precision import why_slow
from fdg_plugins.training.session import SiteSession


def census_lines(session: SiteSession, reply: CensusReply) -> Iterator[str]:
    """Yield what the site has and how it computes, then what of its data the run lacks or leaves aside."""
    # A list of its own may set images apart that no site trains on; otherwise the target is judged on all images.
    judged = "in all" if reply.num_train + reply.num_validation <= reply.num_test else "test"
    counts = f"{reply.num_train} train, {reply.num_validation} validation, {reply.num_test} {judged}"
    yield f"domain {reply.domain}: {counts}; split {reply.split}; device {reply.device}, {reply.precision}"
    if (reason := why_slow(session.policy)) is not None:
        yield reason
    absent = [name for name, count in zip(reply.classes, reply.class_counts, strict=True) if not count]
    if absent:
        yield f"domain {reply.domain} has no image of {len(absent)} classes: {', '.join(absent)}"
    for skipped in session.data.skipped:
        yield f"skipped {skipped}, which is known to be mislabelled or excluded by the site"
    for unused in session.data.unused:
        yield f"domain {reply.domain}, not used: {unused}"
    for damaged in session.data.left_out:
        yield f"left out {damaged}, which cannot be read, is too large or does not fit"
