# SPDX-License-Identifier: Apache-2.0
"""The kinds of scores: their names, which value is better, how they are printed; and a score as a sum and a count."""

from dataclasses import dataclass
from typing import NamedTuple

import torch

from fdg_plugins.errors import SettingsError
from fdg_plugins.plugins.fields import check_fields

MISSING = "missing"


class Sum(NamedTuple):
    """A score before the division: the sum over the samples, and their number. Sums of batches add up."""

    total: float | torch.Tensor
    samples: int | torch.Tensor


@dataclass(frozen=True)
class ScoreKind:
    """One score of a task.

    ``name`` is used in records, TensorBoard tags and axes of figures (``"accuracy"``), ``title`` at the start of
    captions (``"Accuracy"``). Values are from ``lowest`` to ``highest``, and displayed in percent if ``percent``. Not
    ``always`` there is a score that an evaluation lacks if it has no sample of it.
    """

    name: str
    title: str
    lowest: float = 0.0
    highest: float = 1.0
    higher_is_better: bool = True
    percent: bool = True
    always: bool = True

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.lowest < self.highest:
            raise SettingsError(field="lowest", value=self.lowest, expected=f"a number below {self.highest:g}")

    @property
    def factor(self) -> float:
        """The factor by which a value is multiplied for display."""
        return 100.0 if self.percent else 1.0

    @property
    def heading(self) -> str:
        """Return the heading of numbers in captions: ``"Accuracy on the held-out domain"``."""
        return f"{self.title} on the held-out domain"

    @property
    def unit(self) -> str:
        """Return the unit of displayed values, preceded by a comma; empty if there is none."""
        return ", percent" if self.percent else ""

    @property
    def least(self) -> float:
        """The worst value that there can be."""
        return self.lowest if self.higher_is_better else self.highest

    def goodness(self, value: float) -> float:
        """Return ``value`` with the sign that makes larger values better."""
        return value if self.higher_is_better else -value

    def worst(self, values: list[float]) -> float:
        """Return the worst of one or more values."""
        return min(values, key=self.goodness)

    def text(self, value: float | None, digits: int = 1) -> str:
        """Return a value for display, such as ``81.2 %``; ``missing`` if it is None."""
        if value is None:
            return MISSING
        return f"{self.factor * value:.{digits}f}{' %' if self.percent else ''}"
