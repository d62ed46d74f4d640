# SPDX-License-Identifier: Apache-2.0
"""The figure of an evaluation: the score of each model at each site, and the differences. Needs matplotlib."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fdg_plugins.lab.analysis.figures.drawing import COLUMN_INCHES, LINE_INCHES, mark_axes, new_figure, style
from fdg_plugins.lab.analysis.figures.picture import Origin, Picture
from fdg_plugins.lab.analysis.figures.style import GREY, Look, numbered_look
from fdg_plugins.record.evaluation import EvaluationResult, Row, Value, rows_of
from fdg_plugins.tasks.counts import Bounded


@dataclass(frozen=True, kw_only=True)
class Comparison(Picture):
    """Scores and differences of models at sites; ``table``: a row per site, ``names``: the models in their order.

    ``counted``: the names of the scores from counts, which only the numbers have.
    """

    table: tuple[Row, ...]
    names: tuple[str, ...]
    counted: tuple[str, ...]
    unit: str
    factor: float

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield a line for each site and model: score, interval, difference to the first model, scores from counts.

        Those from counts have the interval in which the score of the probabilities themselves is.
        """
        for row in self.table:
            for name in self.names:
                yield {
                    **{"site": row.site, "domain": row.domain, "images": row.images, "model": name},
                    **_numbers("score", row.values.get(name)),
                    **_numbers("difference", row.differences.get(name)),
                    **self._counted(row.counted.get(name, {})),
                }

    def _counted(self, found: Mapping[str, Bounded]) -> dict[str, float | None]:
        known = {name: Value(one.value, (one.lowest, one.highest)) for name, one in found.items()}
        return {key: number for name in self.counted for key, number in _numbers(name, known.get(name)).items()}


def _numbers(name: str, value: Value | None) -> dict[str, float | None]:
    low, high = value.interval if value is not None and value.interval is not None else (None, None)
    return {name: None if value is None else value.value, f"{name}_low": low, f"{name}_high": high}


def comparison_of(result: EvaluationResult) -> Comparison:
    """Return the numbers of the figure of a result."""
    names = tuple(model.name for model in result.models)
    return Comparison(
        name="evaluation",
        title=f"{result.score.title} at sites that trained none of these models",
        caption=f"{result.data}; bars: 95 % bootstrap intervals"
        + (f"; differences: minus {names[0]}, on the same images" if len(names) > 1 else ""),
        origin=Origin(result.data, result.stand_in, ""),
        table=tuple(rows_of(result)),
        names=names,
        counted=result.scores,
        unit=result.score.title + result.score.unit,
        factor=result.score.factor,
    )


def draw_comparison(picture: Comparison, width: float = COLUMN_INCHES) -> Figure:
    """Return the figure: sites from the top down, scores on the left, differences on the right if there are any."""
    looks = {name: numbered_look(number) for number, name in enumerate(picture.names)}
    others = [name for name in picture.names if any(name in row.differences for row in picture.table)]
    handles = [
        Line2D([], [], color=look.colour, marker=look.marker, linestyle="", label=name) for name, look in looks.items()
    ]
    with style():
        height = 0.6 + LINE_INCHES * len(picture.table) * (1 + len(picture.names))
        figure = new_figure(picture, width, height, handles)
        left, *right = figure.subplots(1, 1 + bool(others), sharey=True, squeeze=False).flat
        _draw(left, picture, [row.values for row in picture.table], looks)
        mark_axes(left, "", picture.unit)
        left.set_yticks(range(len(picture.table)), [row.site for row in picture.table])
        left.invert_yaxis()
        for axes in right:
            _draw(axes, picture, [row.differences for row in picture.table], looks)
            axes.axvline(0, color=GREY, linewidth=0.7)
            mark_axes(axes, "", f"difference to {picture.names[0]}")
    return figure


def _draw(axes: Axes, picture: Comparison, values: list[Mapping[str, Value]], looks: Mapping[str, Look]) -> None:
    step = 0.7 / len(looks)
    for place, by_model in enumerate(values):
        for number, (name, look) in enumerate(looks.items()):
            if (found := by_model.get(name)) is None:
                continue
            low, high = found.interval or (found.value, found.value)
            ends = [[picture.factor * max(0.0, found.value - low)], [picture.factor * max(0.0, high - found.value)]]
            where = place + (number - (len(looks) - 1) / 2) * step
            drawn: dict[str, Any] = {
                "xerr": ends,
                "color": look.colour,
                "marker": look.marker,
                "capsize": 2,
                "elinewidth": 0.7,
            }
            axes.errorbar([picture.factor * found.value], [where], linestyle="", **drawn)
