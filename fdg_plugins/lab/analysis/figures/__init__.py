# SPDX-License-Identifier: Apache-2.0
"""Figures of finished runs by kind: convergence, cosines, weights, measures, sensitivity, partition, reliability.

:func:`make_pictures` needs no matplotlib; ``drawing`` turns a :class:`Picture` into an image, and
:meth:`Picture.numbers` are its numbers.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from fdg_plugins.errors import DataError, FDGError
from fdg_plugins.lab.analysis.figures.charts import OF_SITES, convergence, measures, of_sites, partition, sensitivity
from fdg_plugins.lab.analysis.figures.evaluation import reliability_of_runs
from fdg_plugins.lab.analysis.figures.picture import Chart, Counts, Picture
from fdg_plugins.lab.analysis.runs import Run

__all__ = ["ALL", "KINDS", "Chart", "Counts", "Picture", "make_pictures", "pictures_of"]

ALL = "all"
KINDS: Mapping[str, Callable[[Sequence[Run]], tuple[Picture, ...]]] = {
    "convergence": convergence,
    **{kind: partial(of_sites, kind) for kind in OF_SITES},
    "measures": measures,
    "sensitivity": sensitivity,
    "partition": partition,
    "reliability": reliability_of_runs,
}
"""A map from the name of a kind to a function of runs that returns the figures."""


def make_pictures(kind: str, runs: Sequence[Run]) -> tuple[Picture, ...]:
    """Return the numbers of the figures of one kind, for one or more runs.

    Raises ``SettingsError`` for runs that are not comparable, or do not have what the kind shows; ``DataError`` if the
    records hold no numbers.
    """
    pictures = tuple(one for one in KINDS[kind](runs) if not one.frame.empty)
    if not pictures:
        raise DataError(f"the records hold no numbers for a figure of the kind {kind}.")
    return pictures


def pictures_of(runs: Sequence[Run]) -> tuple[list[Picture], dict[str, str]]:
    """Return the figures of all kinds that the runs allow, and of each other kind the reason why they do not."""
    made, lacking = list[Picture](), dict[str, str]()
    for name in KINDS:
        try:
            made += make_pictures(name, runs)
        except FDGError as error:
            lacking[name] = " ".join(str(error).split())
    return made, lacking
