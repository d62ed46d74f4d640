# SPDX-License-Identifier: Apache-2.0
"""The score on the held-out domain as a function of one setting of the method or of the protocol.

Such figures are Fig. 3, 4 and 6 of the FedOMG paper (kappa, server learning rate, local epochs), Fig. 6 of the FedDIM
paper (strength and momentum) and Table 3 of the FedDG-GA paper (step size).
"""

from collections.abc import Iterator, Sequence
from typing import Any

from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.lab.analysis.comparable import Group, check_varies, value_of, varied_settings
from fdg_plugins.lab.analysis.estimates import average, estimate
from fdg_plugins.lab.analysis.facts import known_domains
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
            expected = f"one that varies: {', '.join(varied) or 'none does'}"
            raise SettingsError(field="setting", value=None, expected=expected)
        setting = varied[0]
    check_varies(runs, setting)
    material = Material(runs, (setting,))
    kept, score, targets = material.runs, material.runs[0].record.score, material.targets
    values = {value for run in kept if (value := value_of(run, setting)) is not None}
    scale, categories = _scale(values)
    # On an axis of categories, a value is at the rank of its text.
    places: dict[Any, Any] = {one: categories.index(str(one)) if categories else one for one in values}
    shown: dict[str, tuple[str, ...]] = {f"held out: {target}": (target,) for target in targets}
    domains = known_domains(kept[0].dataset) or {reply.domain for reply in kept[0].record.census.values()}
    if len(targets) > 1 and {*targets} == {*domains}:
        shown[AVERAGE] = targets
    panels = tuple(
        score_panel(
            [run for run in kept if run.target in of],
            title,
            [line for group, look in material.groups for line in _lines(group, look, setting, places, rule, of)],
        )
        for title, of in shown.items()
    )
    if not any(panel.lines for panel in panels):
        raise DataError(f"no run has a score on its held-out domain for the rule {rule}.")
    return (
        Chart(
            name=f"sensitivity-{setting.replace(' ', '-')}",
            title=f"{score.heading} against {setting}",
            caption=f"{caption_of(kept)}; selection: {RULES[rule]}",
            origin=material.origin,
            x_label=setting,
            panels=panels,
            scale=scale,
            categories=categories,
        ),
    )


def _scale(values: set[Any]) -> tuple[Scale, tuple[str, ...]]:
    """Return the scale of an axis of ``values``, and these as texts if not all are numbers."""
    if any(isinstance(value, bool) or not isinstance(value, int | float) for value in values):
        return Scale.CATEGORIES, tuple(sorted(map(str, values)))
    positive = [value for value in values if value > 0]
    if min(values) < 0 or not positive or max(positive) / min(positive) <= DECADE:
        return Scale.LINEAR, ()
    return (Scale.LOG if len(positive) == len(values) else Scale.ZERO_AND_LOG), ()


def _lines(
    group: Group, look: Look, setting: str, places: dict[Any, Any], rule: str, targets: Sequence[str]
) -> Iterator[Line]:
    """Yield the line of the runs with the setting, and the level line of those without it.

    Over several held-out domains, a score is averaged within each seed.
    """
    found = {
        value: estimate(average({target: _by_seed(runs, rule, target) for target in targets}))
        for value, runs in grouped(group.runs, lambda run: value_of(run, setting)).items()
    }
    points = {places[value]: score for value, score in found.items() if value is not None and score is not None}
    if points:
        yield Line(group.title, look, dict(sorted(points.items())))
    if (level := found.get(None)) is not None:
        label = f"{group.title}, {setting} unset" if points else group.title
        yield Line(label, look, dict.fromkeys(sorted(places.values()), level), is_constant=True)


def _by_seed(runs: Sequence[Run], rule: str, target: str) -> dict[int, float]:
    scores = {run.seed: target_score(run.record, rule) for run in runs if run.target == target}
    return finite({seed: score for seed, score in scores.items() if score is not None})
