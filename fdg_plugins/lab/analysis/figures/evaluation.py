# SPDX-License-Identifier: Apache-2.0
"""The numbers of the figure of an evaluation: the score of each model at each site, and the differences."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fdg_plugins.lab.analysis.figures.picture import Picture
from fdg_plugins.lab.analysis.figures.reliability import reliability_of_evaluation
from fdg_plugins.record.evaluation import EvaluationResult, Line, lines_of


@dataclass(frozen=True, kw_only=True)
class Comparison(Picture):
    """Scores and differences of the models of a ``result``: a line for each site and model."""

    result: EvaluationResult
    lines: list[Line]

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield each score, and the difference to the first model, with its 95 % interval."""
        score = self.result.score.name
        for line in self.lines:
            found = {"score": line.values[score], "difference": line.difference}
            found |= {kind.name: line.values.get(kind.name) for kind in self.result.learned.summary_kinds}
            numbers: dict[str, float | None] = {}
            for key, one in found.items():
                low, high = one.interval if one is not None and one.interval is not None else (None, None)
                numbers |= {key: None if one is None else one.value, f"{key}_low": low, f"{key}_high": high}
            yield {"site": line.site, "domain": line.domain, "images": line.images, "model": line.model, **numbers}


def comparison_of(result: EvaluationResult) -> Comparison:
    """Return the numbers of the figure of a result."""
    first, *others = result.models
    return Comparison(
        name="evaluation",
        title=f"{result.score.title} at sites that trained none of these models",
        caption=f"{result.data}; bars: 95 % intervals"
        + (f"; differences: minus {first.name}, on the same images" if others else ""),
        data={"data": result.data, "stand_in": str(result.stand_in).lower()},
        result=result,
        lines=lines_of(result),
    )


def pictures_of_evaluation(result: EvaluationResult) -> tuple[Picture, ...]:
    """Return the numbers of all figures of a result; for classes, a reliability diagram is among them."""
    return comparison_of(result), *reliability_of_evaluation(result)
