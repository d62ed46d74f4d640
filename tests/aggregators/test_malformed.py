# SPDX-License-Identifier: Apache-2.0
"""Contributions: good ones read as sent; malformed ones by the thousand, through the server's filters, as from foes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nvflare.apis.client import Client
from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.fl_constant import FLContextKey, ReturnCode, ServerCommandKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.app_common.abstract.fl_model import FLModel
from nvflare.app_common.app_constant import AppConstants

from fdg_plugins.aggregators.contributions import read_contribution
from fdg_plugins.core.layout import ModelLayout
from fdg_plugins.core.stored import whole
from fdg_plugins.errors import ContributionError
from fdg_plugins.filters import EXCHANGE_PROP, ExchangeCheckFilter, ExchangeRound, GapCheckFilter
from fdg_plugins.filters.wire import pack
from fdg_plugins.methods.fedomg import FedOMGAggregator
from fdg_plugins.models import build_model
from fdg_plugins.objectives import make_objective
from fdg_plugins.testing.inputs import random_update
from tests.aggregators.trained_sites import contribution

MODEL = build_model("convnet", 3, seed=0)
PARTS = ("extractor.0.weight", "extractor.1.running_mean", "extractor.1.num_batches_tracked")
STATE = {name: MODEL.state_dict()[name] for name in (*PARTS, "classifier.bias", "classifier.weight")}
LAYOUT = ModelLayout.of(STATE)
SITES = ("cartoon", "photo", "sketch")

junk = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.binary(max_size=8)
    | st.sampled_from([object(), float, np.array(["a"]), np.array([None]), torch.tensor([1j]), {1, 2}]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
names = st.sampled_from(sorted(STATE))
floats = st.sampled_from([name for name, value in STATE.items() if value.is_floating_point()])
bad_numbers = st.sampled_from([float("nan"), float("inf"), float("-inf"), 1e300, -1e300])
shapes = st.lists(st.integers(0, 4), max_size=4).map(tuple)


class Attack:
    """One contribution on its way; every step of it may be spoilt."""

    def __init__(self) -> None:
        self.update: Any = {name: torch.zeros_like(value) for name, value in STATE.items()}
        self.meta: dict[str, Any] = {"NUM_STEPS_CURRENT_ROUND": 5}
        self.kind: Any = DataKind.WEIGHT_DIFF
        self.site: Any = "photo"
        self.round: Any = 4
        self.whole: Shareable | None = None

    def message(self) -> Shareable:
        if self.whole is not None:
            sent = self.whole
        else:
            dxo = DXO(DataKind.APP_DEFINED, data={"a": 1}, meta=self.meta)
            dxo.data_kind, dxo.data = self.kind, self.update
            report = {"class_means": torch.ones(1, 128), "class_counts": torch.tensor([1, 0, 0])}
            sent = pack(dxo, report, 4, Shareable())
        if self.site is not None:
            sent.set_header(ServerCommandKey.FL_CLIENT, Client(self.site, "token"))
        sent.add_cookie(AppConstants.CONTRIBUTION_ROUND, self.round)
        return sent


Spoiler = Callable[[Attack], None]


def setting(name: str, value: Any) -> Spoiler:
    return lambda attack: setattr(attack, name, value)


def entry(name: str, value: Any) -> Spoiler:
    return lambda attack: attack.update.__setitem__(name, value)


def one_number(name: str, number: float) -> Spoiler:
    value = torch.zeros_like(STATE[name]).double()
    value.view(-1)[-1] = number
    return entry(name, value)


def is_usable_number(value: Any) -> bool:
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return value is None or (plain and 0 < value <= 2**53 and value == int(value))


def samples(value: Any) -> Spoiler:
    return lambda attack: attack.meta.__setitem__("NUM_STEPS_CURRENT_ROUND", value)


def header(name: str, value: Any) -> Spoiler:
    def spoil(attack: Attack) -> None:
        attack.whole = attack.message()
        attack.whole.set_header(name, value)

    return spoil


wholes = (
    junk.map(lambda value: DXO(DataKind.COLLECTION, data={"main": value, "fdg_tensors": value}).to_shareable()),
    junk.map(lambda value: DXO(DataKind.APP_DEFINED, data=value or 1).to_shareable()),
    junk.map(lambda value: Shareable({"DXO": value})),
    st.sampled_from([ReturnCode.EXECUTION_EXCEPTION, ReturnCode.BAD_TASK_DATA]).map(make_reply),
)
# Every one of these makes a contribution that must not count.
spoilers: st.SearchStrategy[Spoiler] = st.one_of(
    st.builds(entry, names, junk),
    st.builds(lambda name, shape: entry(name, torch.zeros(*shape, 5)), names, shapes),
    st.builds(lambda name, kind: entry(name, torch.zeros(STATE[name].shape).to(kind)), floats, st.just(torch.int32)),
    st.builds(one_number, floats, bad_numbers),
    st.builds(lambda name: entry(name + ".x", torch.zeros(1)), names),
    st.builds(lambda name: lambda attack: attack.update.pop(name), names),
    st.builds(setting, st.just("update"), junk),
    st.builds(setting, st.just("kind"), st.sampled_from([DataKind.WEIGHTS, DataKind.METRICS, "nonsense", None, 3])),
    st.builds(samples, junk.filter(lambda value: not is_usable_number(value))),
    st.builds(setting, st.just("site"), st.sampled_from(["intruder", "", None, "PHOTO", "photo\n"])),
    st.builds(setting, st.just("round"), st.integers().filter(lambda number: number != 4)),
    *(st.builds(setting, st.just("whole"), one) for one in wholes),
    st.builds(header, st.just(AppConstants.SUBMIT_MODEL_NAME), st.sampled_from([torch.ones(2), "best"])),
)


@pytest.fixture
def server() -> tuple[FedOMGAggregator, FLContext]:
    """An aggregator in round 4 with two good contributions, and the context that its filters see."""
    aggregator = FedOMGAggregator(weighting={"name": "ga"})
    exchange = make_objective("dim").exchange(MODEL, 3)
    assert exchange is not None
    exchange.begin_round(STATE)
    context = FLContext()
    context.set_prop(EXCHANGE_PROP, ExchangeRound(exchange, 4), private=True, sticky=False)
    context.set_prop(FLContextKey.TASK_NAME, "train", private=True, sticky=False)
    context.set_prop(AppConstants.CURRENT_ROUND, 4, private=True, sticky=False)
    aggregator.begin_round(LAYOUT, SITES, 4, 10)
    for site in ("cartoon", "sketch"):
        good = Attack()
        good.site = site
        assert arrive(good, aggregator, context)
    return aggregator, context


def arrive(attack: Attack, aggregator: FedOMGAggregator, context: FLContext) -> bool:
    """Let a contribution pass the filters and reach the aggregator, as FLARE hands it on."""
    sent = attack.message()
    for filter_ in (ExchangeCheckFilter(), GapCheckFilter()):
        sent = filter_.process(sent, context)
    return aggregator.accept(sent, context)


@settings(max_examples=150, derandomize=True, suppress_health_check=list(HealthCheck))
@given(spoil=spoilers)
def test_malformed_contribution_is_refused(server: tuple[FedOMGAggregator, FLContext], spoil: Spoiler) -> None:
    aggregator, context = server
    attack, before = Attack(), dict(aggregator.contributions)
    spoil(attack)
    assert arrive(attack, aggregator, context) is False
    assert aggregator.contributions == before, "it left a trace"


def test_good_ones_make_a_step(server: tuple[FedOMGAggregator, FLContext], monkeypatch: pytest.MonkeyPatch) -> None:
    aggregator, context = server

    def broken(model: FLModel) -> None:
        raise RuntimeError("unforeseen")

    with monkeypatch.context() as patched:
        patched.setattr(aggregator, "accept_model", broken)
        assert not arrive(Attack(), aggregator, context), "no error of its own may end the task"
    assert arrive(Attack(), aggregator, context)
    assert not arrive(Attack(), aggregator, context), "a second contribution of the same site"
    assert aggregator.aggregate_model().params.keys() == STATE.keys()


def test_numbers_are_read_in_the_models_dtype_however_they_are_laid_out() -> None:
    cases: list[Any] = [
        np.arange(6, dtype=np.float64).reshape(2, 3),
        np.arange(6, dtype=np.float16).reshape(2, 3),
        np.arange(6, dtype=">f4").reshape(2, 3),
        np.arange(12, dtype=np.float32).reshape(2, 6)[:, ::2] / 2,
        np.arange(6, dtype=np.float32)[::-1].reshape(2, 3)[::-1, ::-1],
        np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)),
        torch.arange(6.0, dtype=torch.bfloat16).view(2, 3),
        torch.arange(6.0).view(3, 2).t().contiguous().t().reshape(2, 3),
        torch.arange(6.0).view(2, 3).t().contiguous().t(),
        torch.nn.Parameter(torch.arange(6.0).view(2, 3)),
    ]
    layout = ModelLayout.of({"w": torch.zeros(2, 3)})
    for value in cases:
        update = whole(read_contribution(contribution("photo", {"w": value}), layout).update["w"])
        assert update.dtype == torch.float32
        assert update.is_contiguous()
        assert not update.requires_grad
        assert update.tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]


def test_who_has_no_name_or_sends_numbers_without_squares_is_refused() -> None:
    double = {"w": torch.tensor([1e200], dtype=torch.float64)}
    for site, update in (("", {"w": torch.ones(1)}), ("photo", double)):
        with pytest.raises(ContributionError):
            read_contribution(contribution(site, update), ModelLayout.of(update))


@pytest.mark.parametrize("content", [b"", b"12345678", b"\x02\0\0\0\0\0\0\0{}"])
def test_a_file_that_is_not_sound_is_refused_by_site_and_parameter(
    offload: Callable[..., dict[str, Any]], content: bytes
) -> None:
    sent = random_update(1)
    update = offload(sent)
    Path(update["conv.weight"].file_path).write_bytes(content)
    with pytest.raises(ContributionError) as caught:
        read_contribution(contribution("photo", update), ModelLayout.of(sent), in_files=True)
    assert str(caught.value).startswith("site photo: parameter 'conv.weight' cannot be loaded: ")
