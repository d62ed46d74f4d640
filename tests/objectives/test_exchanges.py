# SPDX-License-Identifier: Apache-2.0
"""The server's halves: the same for any order of arrival, resumable, and deaf to whatever is not a report."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fdg_plugins.errors import ContributionError
from fdg_plugins.methods.feddim import InsightExchange
from fdg_plugins.methods.fediir import GradientExchange
from fdg_plugins.objectives import Exchange
from fdg_plugins.testing.inputs import same_bits
from tests.objectives.local_steps import ReportRound
from tests.random_tensors import normal

Y, D = 3, 4
WEIGHT, BIAS = "classifier.weight", "classifier.bias"
MEANS, COUNTS = "class_means", "class_counts"
GRADIENT = f"gradient/{WEIGHT}"
NAN, INF = float("nan"), float("inf")
REPEATABLE = settings(derandomize=True, deadline=None, max_examples=30)


GLOBAL = {WEIGHT: normal(1, Y, D), BIAS: normal(2, Y)}
UPDATE = {WEIGHT: normal(3, Y, D), BIAS: normal(4, Y)}


def class_report(seed: int) -> dict[str, Any]:
    counts = torch.tensor([[2, 1, 3], [5, 0, 1], [0, 0, 4]][seed % 3])
    return {MEANS: normal(seed, int((counts > 0).sum()), D), COUNTS: counts}


def gradient_report(seed: int) -> dict[str, Any]:
    return {GRADIENT: normal(seed, Y, D), f"gradient/{BIAS}": normal(seed + 1, Y)}


@dataclass(frozen=True)
class Kind:
    """How to make an exchange, and reports that it takes."""

    make: Callable[[], Exchange]
    report: Callable[[int], dict[str, Any]]


SHAPES = {WEIGHT: (Y, D), BIAS: (Y,)}
KINDS = {
    "insight": Kind(lambda: InsightExchange(0.3, "insight", Y, D, WEIGHT), class_report),
    "probed gradient": Kind(lambda: GradientExchange(0.9, SHAPES, "probe"), gradient_report),
}


def update_of(seed: int) -> dict[str, torch.Tensor]:
    return {name: value * (1 + seed) for name, value in UPDATE.items()}


def play(exchange: Exchange, kind: Kind, *rounds: list[int]) -> dict[str, torch.Tensor]:
    """Rounds of sites named by the seeds of their reports."""
    for sites in rounds:
        of_round = ReportRound(exchange, GLOBAL)
        for seed in sites:
            of_round.accept(f"site-{seed}", kind.report(seed), update_of(seed))
        of_round.finish(f"site-{seed}" for seed in sites)
    return exchange.broadcast()


def test_references_of_disk_offload_are_loaded() -> None:
    kind = KINDS["insight"]

    class Reference:
        def __init__(self, value: Any) -> None:
            self.value = value

        def materialize(self) -> Any:
            if self.value is None:
                raise OSError("file is gone")
            return self.value

    exchange = kind.make()
    of_round = ReportRound(exchange, GLOBAL)
    sent = {name: Reference(value) for name, value in kind.report(0).items()}
    with pytest.raises(ContributionError):
        of_round.accept("site-0", {name: Reference(None) for name in sent}, update_of(0))
    of_round.accept("site-0", sent, update_of(0))
    of_round.finish(["site-0"])
    assert same_bits(exchange.broadcast(), play(kind.make(), kind, [0]))


BAD_NUMBERS = [
    *([[0.0] * D] * Y, np.array([None] * 3), torch.zeros(Y, D).to_sparse(), torch.zeros(Y, D, device="meta")),
    *(torch.full((Y, D), 1e300, dtype=torch.float64), torch.full((Y, D), -1e16)),
]
BAD_COUNTS = [
    *([1, 1, 1], torch.tensor([True, True, True]), torch.tensor([1, -1, 1]), torch.tensor([1, 2**60, 1])),
    *(np.array([1, 2**64 - 1, 1], np.uint64), torch.tensor([0, 0, 0]), torch.tensor([1, 0, 1])),
]


def test_a_malformed_report_is_refused_by_its_site() -> None:
    kind = KINDS["insight"]
    of_round, report = ReportRound(kind.make(), GLOBAL), kind.report(3)
    broken = [{**report, MEANS: value} for value in BAD_NUMBERS] + [{**report, COUNTS: one} for one in BAD_COUNTS]
    for sent in (*broken, None, [1, 2], {}, {**report, "more": 1}):
        with pytest.raises(ContributionError) as caught:
            of_round.accept("site-3", sent, update_of(3))
        assert str(caught.value).startswith("site site-3: ")


SHAPE = st.lists(st.integers(0, 4), max_size=3)
DTYPES = st.sampled_from(["f2", "f4", "f8", ">f4", "i1", "i8", "u8", "?", "c8", "U2", "O", "M8[s]", "f4,i4"])
ARRAYS = st.builds(lambda shape, dtype: np.zeros(shape, dtype), SHAPE, DTYPES)
TORCH_FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn, torch.complex64]
TORCH_INTEGERS = [torch.int8, torch.int64, torch.uint8, torch.uint16, torch.uint64, torch.bool]
TORCH_DTYPES = st.sampled_from([*TORCH_FLOATS, *TORCH_INTEGERS])
RIGHT = st.sampled_from([[Y, D], [Y], [2, D], [1, D]])
FILLED = st.builds(
    lambda shape, value, dtype: torch.full(shape, value, dtype=torch.float64).to(dtype),
    SHAPE | RIGHT,
    st.sampled_from([0.0, 1.0, -1.0, 1e15, 1e30, NAN, INF]),
    TORCH_DTYPES,
)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=5)
VALUES = st.recursive(
    LEAVES | ARRAYS | FILLED,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3),
    max_leaves=5,
)
NAMES = st.sampled_from([MEANS, COUNTS, GRADIENT, f"gradient/{BIAS}", "", WEIGHT]) | st.text(max_size=3) | st.integers()
JUNK = VALUES | st.dictionaries(NAMES, VALUES, max_size=4)
LIKELY = st.one_of(
    st.fixed_dictionaries({MEANS: VALUES | FILLED, COUNTS: VALUES | FILLED}),
    st.fixed_dictionaries({GRADIENT: VALUES | FILLED, f"gradient/{BIAS}": VALUES | FILLED}),
)


@pytest.mark.parametrize("name", sorted(KINDS))
@REPEATABLE
@given(report=JUNK | LIKELY, update=JUNK | st.just(UPDATE) | st.fixed_dictionaries({WEIGHT: VALUES | FILLED}))
def test_junk_is_accepted_or_refused(name: str, report: Any, update: Any) -> None:
    kind = KINDS[name]
    exchange = kind.make()
    of_round = ReportRound(exchange, GLOBAL)
    of_round.accept("site-0", kind.report(0), update_of(0))
    refusal = None
    try:
        of_round.accept("site-1", report, update)
    except ContributionError as error:
        refusal = str(error)
    of_round.finish(["site-0", "site-1"])
    if refusal is None:
        assert all(bool(value.isfinite().all()) for value in exchange.broadcast().values())
    else:
        assert refusal.startswith("site site-1: ")
        assert same_bits(exchange.broadcast(), play(kind.make(), kind, [0]))
