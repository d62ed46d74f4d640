# SPDX-License-Identifier: Apache-2.0
"""The server's halves are deaf to whatever is not a report; what FLARE keeps in files is loaded.

That they forget a refused report, and go on from a saved state, is their contract.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from fdg_plugins.errors import ContributionError
from fdg_plugins.methods.feddim import InsightExchange
from fdg_plugins.methods.fediir import GradientExchange
from fdg_plugins.objectives import Exchange
from fdg_plugins.testing.inputs import same_bits
from tests.objectives.local_steps import ReportRound
from tests.random_tensors import normal

Y, D = 3, 4
WEIGHT, BIAS = "classifier.weight", "classifier.bias"
MEANS, COUNTS, GRADIENT = "class_means", "class_counts", f"gradient/{WEIGHT}"
GLOBAL = {WEIGHT: normal(1, Y, D), BIAS: normal(2, Y)}
UPDATE = {WEIGHT: normal(3, Y, D), BIAS: normal(4, Y)}
CLASS_REPORT = {MEANS: normal(5, 2, D), COUNTS: torch.tensor([5, 0, 1])}
GRADIENT_REPORT = {GRADIENT: normal(6, Y, D), f"gradient/{BIAS}": normal(7, Y)}


def of_insights() -> Exchange:
    return InsightExchange(0.3, "insight", Y, D, WEIGHT)


def of_gradients() -> Exchange:
    return GradientExchange(0.9, {WEIGHT: (Y, D), BIAS: (Y,)}, "probe")


def test_references_of_disk_offload_are_loaded() -> None:
    class Reference:
        def __init__(self, value: Any) -> None:
            self.value = value

        def materialize(self) -> Any:
            if self.value is None:
                raise OSError("file is gone")
            return self.value

    plain, exchange = of_insights(), of_insights()
    for one, sent in ((plain, CLASS_REPORT), (exchange, {name: Reference(at) for name, at in CLASS_REPORT.items()})):
        of_round = ReportRound(one, GLOBAL)
        with pytest.raises(ContributionError):
            of_round.accept("site-0", dict.fromkeys(sent, Reference(None)), UPDATE)
        of_round.accept("site-0", sent, UPDATE)
        of_round.finish(["site-0"])
    assert same_bits(exchange.broadcast(), plain.broadcast())


def numbers(*shape: int) -> list[Any]:
    """What stands where float tensors of a shape are expected."""
    arrays = [np.zeros(shape, kind) for kind in ("?", "c8", "U2", "O", "M8[s]", "f4,i4")]
    wrong = [torch.zeros(shape, dtype=kind) for kind in (torch.int64, torch.complex64, torch.float8_e4m3fn)]
    laid_out = [torch.zeros(shape).to_sparse(), torch.zeros(shape, device="meta"), np.zeros(shape).tolist()]
    sizes = [torch.full(shape, size, dtype=torch.float64) for size in (np.nan, np.inf, 1e300, -1e16)]
    return [*arrays, *wrong, *laid_out, *sizes, torch.zeros(*shape, 1), None, True, 7, "0.0", b"\0", {"a": [None]}]


BAD_COUNTS = [
    *([1, 1, 1], torch.tensor([True, True, True]), torch.tensor([1, -1, 1]), torch.tensor([1, 2**60, 1])),
    *(np.array([1, 2**64 - 1, 1], np.uint64), torch.tensor([0, 0, 0]), torch.tensor([1, 0, 1])),
]
NO_REPORTS: list[Any] = [None, [1, 2], {}, {1: torch.zeros(2)}, "text"]
NO_UPDATES: list[Any] = [None, {}, [1]]
CASES: list[tuple[Callable[[], Exchange], Any, Any]] = [
    *((of_insights, {**CLASS_REPORT, MEANS: value}, UPDATE) for value in numbers(2, D)),
    *((of_insights, {MEANS: normal(5, Y, D), COUNTS: value}, UPDATE) for value in BAD_COUNTS),
    *((of_insights, CLASS_REPORT, {**UPDATE, WEIGHT: value}) for value in numbers(Y, D)),
    *((of_gradients, {**GRADIENT_REPORT, GRADIENT: value}, UPDATE) for value in numbers(Y, D)),
    *((make, report, UPDATE) for make in (of_insights, of_gradients) for report in NO_REPORTS),
    *((of_insights, CLASS_REPORT, update) for update in NO_UPDATES),
]


def test_a_malformed_report_or_update_is_refused_by_its_site() -> None:
    for make, report, update in CASES:
        of_round = ReportRound(make(), GLOBAL)
        with pytest.raises(ContributionError) as caught:
            of_round.accept("site-3", report, update)
        assert str(caught.value).startswith("site site-3: "), report
