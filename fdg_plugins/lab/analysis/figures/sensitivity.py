# SPDX-License-Identifier: Apache-2.0
"""The score on the held-out domain as a function of one setting of the method or of the protocol.

Such figures are Fig. 3, 4 and 6 of the FedOMG paper (kappa, server learning rate, local epochs), Fig. 6 of the FedDIM
paper (strength and momentum) and Table 3 of the FedDG-GA paper (step size).
"""

from collections.abc import Iterator, Sequence
from typing import Any

from fdg_plugins.data import dataset_spec
from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.lab.analysis.comparable import check_comparable
from fdg_plugins.lab.analysis.estimates import Estimate, average, estimate
from fdg_plugins.lab.analysis.figures.groups import (
    Group,
    caption_of,
    checked,
    finite,
    group_runs,
    origin_of,
    score_panel,
    targets_of,
)
from fdg_plugins.lab.analysis.figures.picture import Chart, Line, Scale
from fdg_plugins.lab.analysis.runs import Run, grouped
from fdg_plugins.lab.analysis.selection import rule_in_words, target_score
from fdg_plugins.lab.analysis.varied import check_varies, hashable, value_of, varied_settings

AVERAGE = "average of the held-out domains"
DECADE = 10.0


def chosen_setting(runs: Sequence[Run], setting: str | None) -> str:
    """Return ``setting``, by default the only one that varies; raise ``SettingsError`` if there is nothing to plot."""
    if setting is None:
        return _only(varied_settings(runs))
    check_varies(runs, setting, "--setting")
    return setting


def _only(varied: Sequence[str]) -> str:
    if len(varied) == 1:
        return varied[0]
    reason = f"several settings vary: {', '.join(varied)}" if varied else "no setting of a method varies"
    raise SettingsError(f"{reason} among these runs; expected one, or --setting to name one of them.")


def sensitivity(runs: Sequence[Run], setting: str | None, rule: str) -> tuple[Chart, ...]:
    """Return one chart: a panel per held-out domain and, if all are present, one of their average; a line per method.

    A method without the setting is a level line. Raises ``SettingsError`` if no setting varies, if several vary and
    none is named, or if the runs differ in settings that are not the method's; ``DataError`` if no run has a score
    under the selection rule ``rule``.
    """
    setting = chosen_setting(runs, setting)
    kept, notes = _checked_apart(runs, setting)
    groups = group_runs(kept, apart_from=setting)
    axis = _Axis([_value(run, setting) for run in kept])
    targets, score = targets_of(kept), kept[0].record.score
    shown: dict[str, tuple[str, ...]] = {f"held out: {target}": (target,) for target in targets}
    if len(targets) > 1 and set(targets) == set(_all_domains(kept[0])):
        shown[AVERAGE] = targets
    panels = [
        score_panel([run for run in kept if run.target in domains], title, _lines(groups, setting, axis, rule, domains))
        for title, domains in shown.items()
    ]
    lines = [line for panel in panels for line in panel.lines]
    if not lines:
        raise DataError(f"no run has a score on its held-out domain for the rule {rule}.")
    return (
        Chart(
            name=f"sensitivity-{setting.replace(' ', '-')}",
            title=f"{score.heading} against {setting}",
            caption=f"{caption_of(kept, lines)}; selection: {rule_in_words(rule, kept[0].record.protocol)}",
            origin=origin_of(kept),
            notes=notes,
            x_label=setting,
            panels=tuple(panels),
            columns=3,
            scale=axis.scale,
            categories=axis.categories,
        ),
    )


def _value(run: Run, setting: str) -> Any:
    """Return a run's value of a setting, as text if it is a dict or list; None if it has no such setting."""
    return hashable(value_of(run, setting))


class _Axis:
    """Values of a setting as positions on an axis: the values if all are numbers, else their rank as text."""

    def __init__(self, values: Sequence[Any]) -> None:
        known = set(values) - {None}
        self._numeric = all(isinstance(value, int | float) and not isinstance(value, bool) for value in known)
        self.categories = () if self._numeric else tuple(sorted({str(value) for value in known}))
        self.places: tuple[float, ...] = tuple(sorted(known)) if self._numeric else tuple(range(len(self.categories)))
        self.scale = self._scale()

    def _scale(self) -> Scale:
        if not self._numeric:
            return Scale.CATEGORIES
        positive = [place for place in self.places if place > 0]
        if min(self.places) < 0 or not positive or max(positive) / min(positive) <= DECADE:
            return Scale.LINEAR
        return Scale.LOG if len(positive) == len(self.places) else Scale.ZERO_AND_LOG

    def place(self, value: Any) -> float:
        return float(value) if self._numeric else float(self.categories.index(str(value)))


def _checked_apart(runs: Sequence[Run], setting: str) -> tuple[tuple[Run, ...], tuple[str, ...]]:
    """Return runs that are comparable except for the varying setting, each once, and notes."""
    check_comparable(runs, apart_from=(setting,))
    by_value = grouped(runs, lambda run: str(value_of(run, setting)))
    parts = [checked(part) for part in by_value.values()]
    return tuple(run for kept, _ in parts for run in kept), tuple(note for _, notes in parts for note in notes)


def _all_domains(run: Run) -> tuple[str, ...]:
    try:
        return dataset_spec(run.dataset).domains
    except SettingsError:
        return tuple(reply.domain for reply in run.record.census.values())


def _lines(groups: Sequence[Group], setting: str, axis: _Axis, rule: str, targets: Sequence[str]) -> Iterator[Line]:
    for group in groups:
        yield from _lines_of(group, setting, axis, rule, targets)


def _lines_of(group: Group, setting: str, axis: _Axis, rule: str, targets: Sequence[str]) -> Iterator[Line]:
    """Yield the line of the runs with the setting, and the level line of those without it."""
    scores = _scores(group, setting, rule, targets)
    level = scores.pop(None, None)
    points = {axis.place(value): score for value, score in scores.items()}
    if points:
        yield Line(group.label, group.look, dict(sorted(points.items())))
    if level is not None:
        label = f"{group.label}, {setting} unset" if points else group.label
        yield Line(label, group.look, dict.fromkeys(axis.places, level), is_constant=True)


def _scores(group: Group, setting: str, rule: str, targets: Sequence[str]) -> dict[Any, Estimate]:
    """Return the score over seeds for each value of the setting that has one; None is that of runs without it.

    Over several held-out domains, it is averaged within each seed.
    """
    found = {
        value: estimate(average({target: _by_seed(runs, rule, target) for target in targets}))
        for value, runs in grouped(group.runs, lambda run: _value(run, setting)).items()
    }
    return {value: score for value, score in found.items() if score is not None}


def _by_seed(runs: Sequence[Run], rule: str, target: str) -> dict[int, float]:
    scores = {run.seed: target_score(run.record, rule) for run in runs if run.target == target}
    return finite({seed: score for seed, score in scores.items() if score is not None})
