# SPDX-License-Identifier: Apache-2.0
"""Figures of finished runs by kind: convergence, cosines, weights, measures, sensitivity, partition.

:func:`make_pictures` needs no matplotlib; ``drawing`` turns a :class:`Picture` into an image, and
:meth:`Picture.numbers` are its numbers.
"""

from collections.abc import Callable, Mapping, Sequence

from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.lab.analysis.figures.charts import convergence, cosines, measures, partition, sensitivity, weights
from fdg_plugins.lab.analysis.figures.picture import Chart, Counts, Picture
from fdg_plugins.lab.analysis.runs import Run
from fdg_plugins.lab.analysis.selection import SOURCE_VALIDATION

__all__ = ["ALL", "KINDS", "Chart", "Counts", "Picture", "kinds_of", "make_pictures"]

ALL = "all"
KINDS: Mapping[str, Callable[[Sequence[Run], str | None, str], tuple[Picture, ...]]] = {
    "convergence": lambda runs, setting, rule: convergence(runs),
    "cosines": lambda runs, setting, rule: cosines(runs),
    "weights": lambda runs, setting, rule: weights(runs),
    "measures": lambda runs, setting, rule: measures(runs),
    "sensitivity": sensitivity,
    "partition": lambda runs, setting, rule: partition(runs),
}
"""A map from the name of a kind to a function of runs, a setting and a selection rule that returns the figures."""


def kinds_of(word: str) -> tuple[str, ...]:
    """Return the kinds that a user names: one, or all; raise ``SettingsError``, listing them, for anything else."""
    if word not in (ALL, *KINDS):
        raise SettingsError(field="KIND", value=word, expected=f"one of {', '.join(KINDS)}, or {ALL}")
    return tuple(KINDS) if word == ALL else (word,)


def make_pictures(
    kind: str, runs: Sequence[Run], setting: str | None = None, selection: str = SOURCE_VALIDATION
) -> tuple[Picture, ...]:
    """Return the numbers of the figures of one kind, for one or more runs.

    ``setting``: on the x axis of ``sensitivity``, by default the only one that varies; ``selection``: the rule that
    chooses a run's model there. Raises ``SettingsError`` for runs that are not comparable and for a setting that does
    not vary; ``DataError`` if the records hold no numbers.
    """
    pictures = tuple(one for one in KINDS[kind](runs, setting, selection) if not one.numbers().empty)
    if not pictures:
        raise DataError(f"the records hold no numbers for a figure of the kind {kind}.")
    return pictures
