# SPDX-License-Identifier: Apache-2.0
"""The kinds of figures by name, and the inputs of each."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fdg_plugins.data.decoding import MOST_PIXELS
from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.lab.analysis.figures.convergence import convergence
from fdg_plugins.lab.analysis.figures.gaps import gaps
from fdg_plugins.lab.analysis.figures.material import Images, global_model
from fdg_plugins.lab.analysis.figures.overlays import check_has_masks, overlays
from fdg_plugins.lab.analysis.figures.partition import partition
from fdg_plugins.lab.analysis.figures.picture import Picture
from fdg_plugins.lab.analysis.figures.seconds import time_per_round
from fdg_plugins.lab.analysis.figures.sensitivity import sensitivity
from fdg_plugins.lab.analysis.figures.sites import cosines, weights
from fdg_plugins.lab.analysis.runs import Run
from fdg_plugins.lab.analysis.selection import SOURCE_VALIDATION
from fdg_plugins.naming import nearest

ALL = "all"


@dataclass(frozen=True)
class Request:
    """A user's options for a figure; each kind reads those that it needs.

    Args:
        selection: the rule that chooses a run's model (``sensitivity``, ``overlays``).
        setting: the setting on the x axis (``sensitivity``); None: the only one that varies.
        data_root: folder that holds the data sets (``overlays``).
        dataset_file: the file about a user's own images, by default ``dataset.toml`` in the data root.
        cache: the folder in which the stand-in is drawn; None: the user's cache.
        max_pixels: of the largest image that is opened.
    """

    selection: str = SOURCE_VALIDATION
    setting: str | None = None
    data_root: Path | None = None
    dataset_file: Path | None = None
    cache: Path | None = None
    max_pixels: int = MOST_PIXELS


def _overlays(runs: Sequence[Run], request: Request) -> tuple[Picture, ...]:
    run = _only(runs, "overlays")
    check_has_masks(run)
    chosen = global_model(run, request.selection)
    return (overlays(run, chosen, _images(run, request)),)


def _images(run: Run, request: Request) -> Images:
    return Images(run, request.data_root, request.cache, request.dataset_file, request.max_pixels)


def _only(runs: Sequence[Run], kind: str) -> Run:
    if len(runs) != 1:
        raise SettingsError(
            f"a figure of the kind {kind} is of one run, but there are {len(runs)}; expected one of them, such as "
            f"{runs[0].folder}."
        )
    if runs[0].planned is not None:
        raise SettingsError(
            f"a figure of the kind {kind} needs saved models, and run {runs[0].folder} has none of an earlier round; "
            "expected no --rounds."
        )
    return runs[0]


KINDS: Mapping[str, Callable[[Sequence[Run], Request], tuple[Picture, ...]]] = {
    "convergence": lambda runs, _: convergence(runs),
    "cosines": lambda runs, _: cosines(runs),
    "gaps": lambda runs, _: gaps(runs),
    "weights": lambda runs, _: weights(runs),
    "sensitivity": lambda runs, request: sensitivity(runs, request.setting, request.selection),
    "time": lambda runs, _: time_per_round(runs),
    "partition": lambda runs, _: partition(runs),
    "overlays": _overlays,
}
"""A map from the name of a kind to a function of one or more runs and a request that returns the figures.

The slowest kinds come last.
"""


def kinds_of(word: str) -> tuple[str, ...]:
    """Return the kinds that a user names: one, or all; raise ``SettingsError``, listing them, for anything else."""
    if word == ALL:
        return tuple(KINDS)
    if word not in KINDS:
        near = nearest(word, [*KINDS, ALL])
        hint = f"did you mean {near!r}?" if near else f"expected one of {', '.join(KINDS)}, or {ALL}."
        raise SettingsError(f"there is no kind of figure {word!r}; {hint}")
    return (word,)


def make_pictures(kind: str, runs: Sequence[Run], request: Request = Request()) -> tuple[Picture, ...]:
    """Return the numbers of the figures of one kind, for one or more runs.

    Raises ``SettingsError`` for an unknown kind, for runs that are not comparable and for a request that they cannot
    meet; ``DataError`` for missing files and numbers.
    """
    (name,) = kinds_of(kind)
    pictures = tuple(picture for picture in KINDS[name](runs, request) if next(picture.rows(), None) is not None)
    if not pictures:
        raise DataError(f"the records hold no numbers for a figure of the kind {kind}.")
    return pictures
