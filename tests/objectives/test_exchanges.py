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

from fdg_plugins.errors import ContributionError, SettingsError
from fdg_plugins.methods.feddim import InsightExchange
from fdg_plugins.methods.fediir import GradientExchange
from fdg_plugins.objectives import Exchange
from fdg_plugins.testing.inputs import same_bits
from tests.objectives.report_round import ReportRound
from tests.random_tensors import normal

Y, D = 3, 4
WEIGHT, BIAS = "classifier.weight", "classifier.bias"
MEANS, COUNTS = "class_means", "class_counts"
GRADIENT = f"gradient/{WEIGHT}"
NAN, INF = float("nan"), float("inf")
REPEATABLE = settings(derandomize=True, deadline=None, max_examples=60)


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
    "feature": Kind(lambda: InsightExchange(0.3, "feature", Y, D, WEIGHT), class_report),
    "logit": Kind(lambda: InsightExchange(0.3, "logit", Y, D, WEIGHT), class_report),
    "probed gradient": Kind(lambda: GradientExchange(0.9, SHAPES, "probe"), gradient_report),
    "late gradient": Kind(lambda: GradientExchange(0.9, SHAPES, "train"), gradient_report),
}
EVERY = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


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


# --- what somebody else's exchange raises ---


# --- one round after another ---


@EVERY
def test_what_was_sent_does_not_change_with_later_rounds_nor_with_the_tensors_of_a_report(kind: Kind) -> None:
    exchange = kind.make()
    down = play(exchange, kind, [0, 1])
    kept = {name: value.clone() for name, value in down.items()}
    play(exchange, kind, [2])
    assert same_bits(down, kept)
    report = kind.report(0)
    exchange = kind.make()
    of_round = ReportRound(exchange, GLOBAL)
    of_round.accept("site-0", report, update_of(0))
    for value in report.values():
        value.zero_()
    of_round.finish(["site-0"])
    assert same_bits(exchange.broadcast(), play(kind.make(), kind, [0]))


@EVERY
def test_references_of_disk_offload_are_loaded(kind: Kind) -> None:
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
    with pytest.raises(ContributionError, match=r"site site-0: '.*' cannot be loaded: file is gone\."):
        of_round.accept("site-0", {name: Reference(None) for name in sent}, update_of(0))
    of_round.accept("site-0", sent, update_of(0))
    of_round.finish(["site-0"])
    assert same_bits(exchange.broadcast(), play(kind.make(), kind, [0]))


# --- what survives ---


@EVERY
def test_a_state_without_its_tensors_or_with_others_is_refused(kind: Kind) -> None:
    exchange = kind.make()
    play(exchange, kind, [0])
    state, tensors = exchange.state(), exchange.learned
    name = min(name for name in tensors if tensors[name].is_floating_point())
    damaged: list[dict[str, torch.Tensor]] = [
        {},
        {**tensors, "more": torch.zeros(1)},
        {other: value for other, value in tensors.items() if other != name},
    ]
    for value in damaged:
        with pytest.raises(SettingsError):
            kind.make().restore(state, value)


# --- what is refused ---


def without(report: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in report.items() if key != name}


def changed(**values: Any) -> Any:
    return lambda report: {**report, **values}


def with_gradient(value: Any) -> Any:
    return lambda report: {**report, GRADIENT: value}


UNREADABLE: list[tuple[str, Any, str]] = [
    ("none", None, "nothing"),
    ("text", "0.0", "a str"),
    ("list", [[0.0] * D] * Y, "a list"),
    ("number", 1.0, "a float"),
    ("mapping", {"a": 1}, "a dict"),
    ("objects", np.array([None] * 3), "an array of object"),
    ("texts", np.array(["a"] * 3), "an array of <U1"),
    ("long double", np.zeros((Y, D), np.longdouble), "an array of float128"),
    ("complex array", np.zeros((Y, D), np.complex64), "an array of complex64"),
    ("sparse", torch.zeros(Y, D).to_sparse(), "a Tensor"),
    ("meta", torch.zeros(Y, D, device="meta"), "a Tensor"),
]
NUMBERS: list[tuple[str, Any, str]] = [
    *[(name, value, f"{kind}, expected a dense array of floating-point numbers") for name, value, kind in UNREADABLE],
    ("whole numbers", torch.zeros(Y, D, dtype=torch.int64), r"dtype torch.int64, expected floating-point"),
    ("truth values", torch.zeros(Y, D, dtype=torch.bool), r"dtype torch.bool, expected floating-point"),
    ("complex", torch.zeros(Y, D, dtype=torch.complex64), r"dtype torch.complex64, expected floating-point"),
    ("fewer rows", torch.zeros(Y - 1, D), r"shape \[2, 4\], expected \[3, 4\]"),
    ("more rows", torch.zeros(Y + 1, D), r"shape \[4, 4\], expected \[3, 4\]"),
    ("transposed", torch.zeros(D, Y), r"shape \[4, 3\], expected \[3, 4\]"),
    ("flat", torch.zeros(Y * D), r"shape \[12\], expected \[3, 4\]"),
    ("scalar", torch.zeros(()), r"shape \[\], expected \[3, 4\]"),
    ("empty", torch.zeros(0), r"shape \[0\], expected \[3, 4\]"),
    ("NaN", torch.full((Y, D), NAN), "12 values that are NaN or infinite"),
    ("infinite", torch.full((Y, D), -INF), "12 values that are NaN or infinite"),
    ("infinite in float32", torch.full((Y, D), 1e300, dtype=torch.float64), "12 values that are NaN or infinite"),
    ("absurd", torch.full((Y, D), -1e16), r"values beyond 1e\+15"),
]
COUNT_CASES: list[tuple[str, Any, str]] = [
    ("none", None, "nothing, expected a dense array of whole numbers"),
    ("list", [1, 1, 1], "a list, expected a dense array of whole numbers"),
    ("fewer classes", torch.tensor([1, 1]), r"shape \[2\], expected \[3\]"),
    ("more classes", torch.tensor([1, 1, 1, 1]), r"shape \[4\], expected \[3\]"),
    ("floats", torch.tensor([1.0, 1.0, 1.0]), "dtype torch.float32, expected whole numbers"),
    ("truth values", torch.tensor([True, True, True]), "dtype torch.bool, expected whole numbers"),
    ("negative", torch.tensor([1, -1, 1]), "a number outside 0 to"),
    ("huge", torch.tensor([1, 2**60, 1]), "a number outside 0 to"),
    ("huge unsigned", np.array([1, 2**64 - 1, 1], np.uint64), "a number outside 0 to"),
    ("zero", torch.tensor([0, 0, 0]), "is zero for every class, expected at least one sample"),
    ("other rows", torch.tensor([1, 0, 1]), r"'class_means' has shape \[3, 4\], expected \[2, 4\]"),
]
WHOLE: list[tuple[str, Any, str]] = [
    ("nothing", None, "sent nothing, expected a mapping with"),
    ("a list", [1, 2], "sent a list, expected a mapping with"),
    ("text", "report", "sent a str, expected a mapping with"),
    ("an array", np.zeros(3), "sent an array of float64, expected a mapping with"),
    ("empty", {}, "is missing, expected"),
]


def whole(value: Any) -> Any:
    return lambda report: value


MISSING_MEANS = "'class_means' is missing, expected class_counts, class_means"
CASES = [
    *[("insight", label, whole(value), message) for label, value, message in WHOLE],
    *[
        ("insight", f"means {label}", changed(**{MEANS: value}), f"'{MEANS}' .*{text}")
        for label, value, text in NUMBERS
    ],
    *[("insight", f"counts {label}", changed(**{COUNTS: value}), message) for label, value, message in COUNT_CASES],
    ("insight", "no means", lambda report: without(report, MEANS), MISSING_MEANS),
    ("insight", "no counts", lambda report: without(report, COUNTS), "'class_counts' is missing"),
    ("insight", "more", changed(more=1), "sent 'more', expected only class_counts, class_means"),
    ("insight", "a number as a name", lambda report: {**report, 7: 1}, "sent 7, expected only class_counts"),
    ("insight", "a long name", lambda report: {**report, "x" * 999: 1}, r"sent 'x+\.\.\., expected only"),
    *[("probed gradient", label, whole(value), message) for label, value, message in WHOLE],
    *[("probed gradient", label, with_gradient(value), f"'{GRADIENT}' .*{text}") for label, value, text in NUMBERS],
    ("late gradient", "missing", lambda report: without(report, GRADIENT), f"'{GRADIENT}' is missing, expected"),
    ("late gradient", "more", changed(**{"gradient/more": torch.zeros(1)}), "sent 'gradient/more', expected only"),
    ("late gradient", "NaN", with_gradient(torch.full((Y, D), NAN)), f"'{GRADIENT}' has 12 values that are NaN"),
]


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [pytest.param(name, damage, message, id=f"{name}, {label}") for name, label, damage, message in CASES],
)
def test_a_malformed_report_is_refused_by_site_and_field_and_leaves_no_trace(
    name: str, damage: Callable[[Any], Any], message: str
) -> None:
    kind = KINDS[name]
    exchange = kind.make()
    play(exchange, kind, [0])
    of_round = ReportRound(exchange, GLOBAL)
    of_round.accept("site-1", kind.report(1), update_of(1))
    with pytest.raises(ContributionError, match=rf"^site site-3: .*{message}.*\.$") as caught:
        of_round.accept("site-3", damage(kind.report(3)), update_of(3))
    assert "\n" not in str(caught.value)
    of_round.finish(["site-1", "site-3"])
    assert same_bits(exchange.broadcast(), play(kind.make(), kind, [0], [1]))


@EVERY
@pytest.mark.parametrize("scale", [1e-30, 1e-10, 1e3])
def test_what_is_accepted_never_makes_what_is_sent_infinite(kind: Kind, scale: float) -> None:
    exchange = kind.make()
    for _ in range(3):
        of_round = ReportRound(exchange, GLOBAL)
        for seed in (0, 1, 2):
            report = {n: v * scale if v.is_floating_point() else v for n, v in kind.report(seed).items()}
            of_round.accept(f"site-{seed}", report, update_of(seed))
        of_round.finish(["site-0", "site-1", "site-2"])
    assert all(bool(value.isfinite().all()) for value in exchange.broadcast().values())


# --- anything at all ---

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
def test_junk_is_accepted_or_refused_with_a_sentence_and_never_anything_else(
    name: str, report: Any, update: Any
) -> None:
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
