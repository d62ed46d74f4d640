# SPDX-License-Identifier: Apache-2.0
"""What an aggregator knows of a run beside its updates."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

MAX_IDLE_ROUNDS = 3
"""Rounds in a row without a step after which a run ends."""


class RunFacts(NamedTuple):
    """What the workflow tells an aggregator about the run; a workflow of FLARE's own tells nothing.

    ``class_counts``: for each source, its number of images of each class ``[Y]``, as counted in the census.
    ``last_layer``: the names of the last layer's weight and bias, whose rows are the classes. ``clip_to_median``:
    updates longer than this many medians of the round are shortened (None: never). ``domains``: the domain that each
    source holds.
    """

    class_counts: Mapping[str, Sequence[int]] = {}
    last_layer: tuple[str, ...] = ()
    clip_to_median: float | None = None
    domains: Mapping[str, str] = {}
