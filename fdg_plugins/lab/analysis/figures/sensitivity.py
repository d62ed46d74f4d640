# SPDX-License-Identifier: Apache-2.0
"""The score on the held-out domain as a function of one setting of the method or of the protocol.

Such figures are Fig. 3, 4 and 6 of the FedOMG paper (kappa, server learning rate, local epochs), Fig. 6 of the FedDIM
paper (strength and momentum) and Table 3 of the FedDG-GA paper (step size).
"""

from collections.abc import Iterator, Sequence
from typing import Any

from fdg_plugins.data import dataset_spec
from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.lab.analysis.comparable import Group, check_varies, value_of, varied_settings
from fdg_plugins.lab.analysis.estimates import average, estimate
from fdg_plugins.lab.analysis.figures.material import Material, caption_of, finite, score_panel
from fdg_plugins.lab.analysis.figures.picture import Chart, Line, Scale
from fdg_plugins.lab.analysis.figures.style import Look
from fdg_plugins.lab.analysis.runs import Run, grouped
from fdg_plugins.lab.analysis.selection import RULES, target_score

AVERAGE = "average of the held-out domains"
DECADE = 10.0


def sensitivity(runs: Sequence[Run], setting: str | None, rule: str) -> tuple[Chart, ...]:
    """Return one chart: a panel per held-out domain and, if all are present, one of their average; a line per method.

    A method without the setting is a level line. Without ``setting``, the only one that varies is taken. Raises
    ``SettingsError`` if none varies, or several do and none is named, and if the runs differ in settings that are not
    the method's; ``DataError`` if no run has a score under the selection rule ``rule``.
    """
    if setting is None:
        varied = varied_settings(runs)
        if len(varied) != 1:
            raise SettingsError(
                field="setting", value=None, expected=f"one that varies: {', '.join(varied) or 'none does'}"
            )
        setting = varied[0]
    check_varies(runs, setting)
    material = Material(runs, (setting,))
    kept, score = material.runs, material.runs[0].record.score
    axis = _Axis([value_of(run, setting) for run in kept])
    shown: dict[str, tuple[str, ...]] = {f"held out: {target}": (target,) for target in material.targets}
    if len(material.targets) > 1 and set(material.targets) == set(_all_domains(kept[0])):
        shown[AVERAGE] = material.targets
    panels = tuple(
        score_panel(
            [run for run in kept if run.target in domains],
            title,
            [line for group, look in material.groups for line in _lines(group, look, setting, axis, rule, domains)],
        )
        for title, domains in shown.items()
    )
    if not any(panel.lines for panel in panels):
        raise DataError(f"no run has a score on its held-out domain for the rule {rule}.")
    return (
        Chart(
            name=f"sensitivity-{setting.replace(' ', '-')}",
            title=f"{score.heading} against {setting}",
            caption=f"{caption_of(kept)}; selection: {RULES[rule]}",
            origin=material.origin,
            notes=material.notes,
            x_label=setting,
            panels=panels,
            scale=axis.scale,
            categories=axis.categories,
        ),
    )


class _Axis:
    """Values of a setting as positions on an axis: the values if all are numbers, else their rank as text."""

    def __init__(self, values: Sequence[Any]) -> None:
        known = set(values) - {None}
        numeric = all(isinstance(value, int | float) and not isinstance(value, bool) for value in known)
        self.categories = () if numeric else tuple(sorted({str(value) for value in known}))
        self.places: tuple[float, ...] = tuple(sorted(known)) if numeric else tuple(range(len(self.categories)))
        positive = [place for place in self.places if place > 0]
        if not numeric:
            self.scale = Scale.CATEGORIES
        elif min(self.places) < 0 or not positive or max(positive) / min(positive) <= DECADE:
            self.scale = Scale.LINEAR
        else:
            self.scale = Scale.LOG if len(positive) == len(self.places) else Scale.ZERO_AND_LOG

    def place(self, value: Any) -> float:
        return float(self.categories.index(str(value)) if self.categories else value)


def _all_domains(run: Run) -> tuple[str, ...]:
    try:
        return dataset_spec(run.dataset).domains
    except SettingsError:
        return tuple(reply.domain for reply in run.record.census.values())


def _lines(group: Group, look: Look, setting: str, axis: _Axis, rule: str, targets: Sequence[str]) -> Iterator[Line]:
    """Yield the line of the runs with the setting, and the level line of those without it.

    Over several held-out domains, a score is averaged within each seed.
    """
    by_value = grouped(group.runs, lambda run: value_of(run, setting))
    found = {
        value: estimate(average({target: _by_seed(runs, rule, target) for target in targets}))
        for value, runs in by_value.items()
    }
    points = {axis.place(value): score for value, score in found.items() if value is not None and score is not None}
    if points:
        yield Line(group.title, look, dict(sorted(points.items())))
    if (level := found.get(None)) is not None:
        label = f"{group.title}, {setting} unset" if points else group.title
        yield Line(label, look, dict.fromkeys(axis.places, level), is_constant=True)


def _by_seed(runs: Sequence[Run], rule: str, target: str) -> dict[int, float]:
    scores = {run.seed: target_score(run.record, rule) for run in runs if run.target == target}
    return finite({seed: score for seed, score in scores.items() if score is not None})
