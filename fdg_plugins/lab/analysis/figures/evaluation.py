# SPDX-License-Identifier: Apache-2.0
"""The figure of an evaluation: the score of each model at each site, and the differences. Needs matplotlib."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fdg_plugins.lab.analysis.figures.drawing import COLUMN_INCHES, LINE_INCHES, new_figure, style
from fdg_plugins.lab.analysis.figures.picture import GREY, Look, Picture, numbered_look
from fdg_plugins.record.evaluation import EvaluationResult, Row, Value, rows_of


@dataclass(frozen=True, kw_only=True)
class Comparison(Picture):
    """Scores and differences of the models of a ``result``; ``table``: a row per site."""

    result: EvaluationResult
    table: list[Row]

    @property
    def names(self) -> list[str]:
        """The models, in their order."""
        return [model.name for model in self.result.models]

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield a line for each site and model: score, difference to the first model, scores from counts.

        Each has an interval: by bootstrap, or of scores from counts the one in which that of the probabilities is.
        """
        for row in self.table:
            for name in self.names:
                found = {"score": row.values.get(name), "difference": row.differences.get(name)}
                bounded = row.counted.get(name, {})
                for kind in self.result.scores:
                    found[kind] = Value(bounded[kind].value, bounded[kind][1:]) if kind in bounded else None
                numbers: dict[str, float | None] = {}
                for key, one in found.items():
                    low, high = one.interval if one is not None and one.interval is not None else (None, None)
                    numbers |= {key: None if one is None else one.value, f"{key}_low": low, f"{key}_high": high}
                yield {"site": row.site, "domain": row.domain, "images": row.images, "model": name, **numbers}


def comparison_of(result: EvaluationResult) -> Comparison:
    """Return the numbers of the figure of a result."""
    first, *others = result.models
    return Comparison(
        name="evaluation",
        title=f"{result.score.title} at sites that trained none of these models",
        caption=f"{result.data}; bars: 95 % bootstrap intervals"
        + (f"; differences: minus {first.name}, on the same images" if others else ""),
        data={"data": result.data, "stand_in": str(result.stand_in).lower()},
        result=result,
        table=rows_of(result),
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
        left.set_xlabel(picture.result.score.title + picture.result.score.unit)
        left.set_yticks(range(len(picture.table)), [row.site for row in picture.table])
        left.invert_yaxis()
        for axes in right:
            _draw(axes, picture, [row.differences for row in picture.table], looks)
            axes.axvline(0, color=GREY, linewidth=0.7)
            axes.set_xlabel(f"difference to {picture.names[0]}")
    return figure


def _draw(axes: Axes, picture: Comparison, values: list[Mapping[str, Value]], looks: Mapping[str, Look]) -> None:
    factor, step = picture.result.score.factor, 0.7 / len(looks)
    for place, by_model in enumerate(values):
        for number, (name, look) in enumerate(looks.items()):
            if (found := by_model.get(name)) is not None:
                low, high = found.interval or (found.value, found.value)
                ends = [[factor * max(0.0, found.value - low)], [factor * max(0.0, high - found.value)]]
                where = place + (number - (len(looks) - 1) / 2) * step
                axes.errorbar(factor * found.value, where, xerr=ends, color=look.colour, marker=look.marker, capsize=2)
