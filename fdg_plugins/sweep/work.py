# SPDX-License-Identifier: Apache-2.0
"""What a run has to do, as an estimate of its time counts it.

The unit of work is one image through one training step; judging an image is a forward pass, a third of that.
"""

from collections.abc import Mapping
from typing import NamedTuple

from fdg_plugins.settings.protocol import Protocol

FORWARD = 1 / 3
TRAINING_SHARE = 0.9


class Kind(NamedTuple):
    """What decides how long an image takes; ``processes`` are those of a run that compute at once."""

    model: str
    head: str
    image_size: int
    batch_size: int
    precision: str
    channels_last: bool
    processes: int


class Work(NamedTuple):
    """What one run has to do: images as the module counts them, of all domains together, and what comes beside them.

    ``start`` and ``rounds`` are seconds beside the arithmetic: before the first round, and of all rounds together.
    """

    kind: Kind
    images: float
    start: float
    rounds: float = 0.0

    @property
    def overhead(self) -> float:
        """Seconds beside the arithmetic."""
        return self.start + self.rounds


class Counts(NamedTuple):
    """The images of a run: to train on, by source domain; to validate on, of all sources; and of the held-out domain.

    About, for splits are rounded.
    """

    training: Mapping[str, float]
    validation: float
    held_out: int


def counts_under(protocol: Protocol, images: Mapping[str, int]) -> Counts:
    """Return the images of a run under ``protocol`` on domains of so many ``images``."""
    limit = protocol.max_samples_per_domain
    counts = {domain: count if limit is None else min(count, limit) for domain, count in images.items()}
    held_out = counts.pop(protocol.target)
    training = {domain: TRAINING_SHARE * count for domain, count in counts.items()}
    return Counts(training, (1 - TRAINING_SHARE) * sum(counts.values()), held_out)


def kind_under(protocol: Protocol, processes: int) -> Kind:
    """Return the kind of arithmetic of a run under ``protocol`` in so many ``processes``."""
    return Kind(
        model=protocol.model,
        head=protocol.head,
        image_size=protocol.image_size,
        batch_size=protocol.batch_size,
        precision=protocol.precision,
        channels_last=protocol.channels_last,
        processes=processes,
    )
