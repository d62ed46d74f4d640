# SPDX-License-Identifier: Apache-2.0
"""The contract of every aggregator that the package offers: what it takes, what it refuses, what it returns."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from nvflare.apis.dxo import DataKind, from_shareable
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import ReservedHeaderKey, Shareable, make_reply
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.app_event_type import AppEventType

from fdg_plugins.aggregators import UpdateAggregator
from fdg_plugins.core.layout import ModelLayout
from fdg_plugins.errors import FDGError, SettingsError
from fdg_plugins.messages import META_REPORT, META_SITE
from fdg_plugins.methods.fedavg import FedAvgAggregator

Params = dict[str, Any]
AggregatorClass = Callable[..., UpdateAggregator]
MakeUpdate = Callable[..., Params]
MakeContext = Callable[..., FLContext]
MakeMessage = Callable[..., Shareable]

SITES = {"photo": 10, "sketch": 30, "art": 60}  # samples by site, in an order that is not the sorted one
COUNTER = "bn.num_batches_tracked"


def step_of(aggregator: UpdateAggregator, context: FLContext) -> Params:
    """Return the parameters of the round's step, as ScatterAndGather gets them."""
    dxo = from_shareable(aggregator.aggregate(context))
    assert dxo.data_kind == DataKind.WEIGHT_DIFF
    data: Params = dxo.data
    return data


def report_of(aggregator: UpdateAggregator) -> dict[str, Any]:
    report: dict[str, Any] = aggregator.aggregate_model().meta[META_REPORT]
    return report


def same_bits(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    arrays = [{name: np.asarray(value) for name, value in params.items()} for params in (first, second)]
    return arrays[0].keys() == arrays[1].keys() and all(
        one.dtype == arrays[1][name].dtype and one.tobytes() == arrays[1][name].tobytes()
        for name, one in arrays[0].items()
    )


@pytest.fixture
def run_round(
    make_update: MakeUpdate, make_message: MakeMessage, make_context: MakeContext, global_model: Params
) -> Callable[..., Params]:
    """Return a function that runs one round of usable contributions and returns its step."""

    def run(aggregator: UpdateAggregator, sites: Iterable[str] = SITES, tensors: bool = False, seed: int = 0) -> Params:
        context = make_context(global_model)
        for site in sites:
            update = make_update(seed + sorted(SITES).index(site), tensors)
            assert aggregator.accept(make_message(update, site, SITES[site]), context)
        return step_of(aggregator, context)

    return run


# --- what comes out ---


def test_a_job_of_flares_own_whose_every_contribution_is_refused_fails(make_context: MakeContext) -> None:
    aggregator = FedAvgAggregator()
    for number in range(3):
        context = make_context({})
        context.set_prop(AppConstants.NUM_ROUNDS, 9, private=True, sticky=False)
        aggregator.handle_event(AppEventType.ROUND_STARTED, context)
        assert not aggregator.accept(Shareable(), context)
        if number < 2:
            assert aggregator.aggregate_model().params == {}
    with pytest.raises(FDGError, match="3 rounds"):
        aggregator.aggregate_model()


def test_an_integer_buffer_moves_by_the_largest_update_in_its_own_dtype(
    one_aggregator: AggregatorClass, make_message: MakeMessage, make_context: MakeContext
) -> None:
    cases: list[tuple[Any, tuple[Any, ...], Any]] = [
        (np.int64, (2, 9, 5), 9),
        (np.int32, (-3, -7, -4), -3),
        (np.uint16, (2, 9, 5), 9),
        (bool, (False, True, False), True),
    ]
    for dtype, values, largest in cases:
        aggregator, context = one_aggregator(server_lr=0.1), make_context()
        for site, value in zip(SITES, values, strict=True):
            assert aggregator.accept(make_message({"w": np.ones(2), "n": np.array(value, dtype)}, site), context)
        step = step_of(aggregator, context)
        assert step["n"].dtype == dtype
        assert step["n"] == largest


# --- rounds ---


# --- who sent it ---


def test_the_name_that_a_sender_writes_of_itself_does_not_count(
    one_aggregator: AggregatorClass, make_update: MakeUpdate, make_message: MakeMessage, make_context: MakeContext
) -> None:
    aggregator, context = one_aggregator(), make_context()
    forged = {META_SITE: "sketch", "site_name": "sketch", "contributor_name": "sketch"}
    assert aggregator.accept(make_message(make_update(1), "photo", meta=forged), context)
    assert aggregator.accept(make_message(make_update(2), "sketch"), context)
    assert not aggregator.accept(make_message(make_update(3), "photo", meta={META_SITE: "cartoon"}), context)
    assert report_of(aggregator)["sites"] == ["photo", "sketch"]


# --- what is refused, and that the round goes on ---


def refuse_in_the_middle(
    aggregator: UpdateAggregator,
    good: Callable[[str], Shareable],
    bad: Callable[[], Shareable],
    context: FLContext,
    expected: Params,
) -> None:
    """The bad message is refused between two good ones, and the step is that of the good ones."""
    assert aggregator.accept(good("photo"), context) is True
    assert aggregator.accept(bad(), context) is False
    assert aggregator.accept(good("art"), context) is True
    assert same_bits(step_of(aggregator, context), expected)


@pytest.fixture
def good(make_update: MakeUpdate, make_message: MakeMessage) -> Callable[[str], Shareable]:
    return lambda site: make_message(make_update(sorted(SITES).index(site)), site, SITES[site])


def without_dxo(message: Shareable) -> Shareable:
    reply = make_reply("OK")
    reply.set_peer_props(message.get_peer_props())
    return reply


def with_content(message: Shareable, content: Any) -> Shareable:
    message["DXO"] = content
    return message


def with_headers(message: Shareable, headers: Any) -> Shareable:
    message[ReservedHeaderKey.HEADERS] = headers
    return message


def with_header(message: Shareable, name: str, value: Any) -> Shareable:
    message.set_header(name, value)
    return message


MALFORMED: dict[str, tuple[Callable[[Shareable], Any], str]] = {
    "no DXO": (without_dxo, "site sketch: sent something that is not an update: the shareable is not a valid DXO"),
    "no content": (lambda message: with_content(message, None), "not an update: .* missing content"),
    "content in words": (
        lambda message: with_content(message, "update"),
        "not an update: .* should be encoded as dict",
    ),
    "data that is a list": (
        lambda message: with_content(message, {"kind": "WEIGHT_DIFF", "data": [1], "meta": {}}),
        "not an update: invalid DXO: invalid data",
    ),
    "meta that is a list": (
        lambda message: with_content(message, {"kind": "WEIGHT_DIFF", "data": {}, "meta": [1]}),
        "not an update: invalid DXO: invalid props",
    ),
    "a kind that is a list": (lambda message: with_content(message, {"kind": [], "data": {}}), "not an update"),
    "headers that are a list": (
        lambda message: with_headers(message, [1]),
        "not an update: header object must be a dict",
    ),
    "cookies that are a list": (
        lambda message: with_header(message, ReservedHeaderKey.COOKIE_JAR, [1]),
        "not an update",
    ),
    "a round in words": (
        lambda message: with_header(message, AppConstants.CURRENT_ROUND, "x"),
        "current_round must be an int",
    ),
    "an array for a name": (
        lambda message: with_header(message, AppConstants.SUBMIT_MODEL_NAME, torch.ones(2)),
        "not an update: Boolean value",
    ),
    "the name of a model": (
        lambda message: with_header(message, AppConstants.SUBMIT_MODEL_NAME, "best"),
        "site sketch: sent None, expected an update",
    ),
    "a dict": (lambda message: dict(message), "without the name of an authenticated site"),
    "nothing": (lambda message: None, "without the name of an authenticated site"),
}


@pytest.mark.parametrize(("spoil", "says"), list(MALFORMED.values()), ids=list(MALFORMED))
def test_a_malformed_message_is_refused_and_the_round_goes_on_without_it(
    one_aggregator: AggregatorClass,
    good: Callable[[str], Shareable],
    run_round: Callable[..., Params],
    make_context: MakeContext,
    global_model: Params,
    caplog: pytest.LogCaptureFixture,
    spoil: Callable[[Shareable], Any],
    says: str,
) -> None:
    expected = run_round(one_aggregator(), ("photo", "art"))
    refuse_in_the_middle(one_aggregator(), good, lambda: spoil(good("sketch")), make_context(global_model), expected)
    assert re.search(f"Contribution refused: .*{says}", caplog.text)


def test_a_site_that_does_not_train_in_the_round_is_refused(
    one_aggregator: AggregatorClass,
    good: Callable[[str], Shareable],
    run_round: Callable[..., Params],
    make_context: MakeContext,
    layout: ModelLayout,
    caplog: pytest.LogCaptureFixture,
) -> None:
    expected = run_round(one_aggregator(), ("photo", "art"))
    aggregator = one_aggregator()
    aggregator.begin_round(layout, ["photo", "art"])
    refuse_in_the_middle(aggregator, good, lambda: good("sketch"), make_context(), expected)
    assert "site sketch: sent an update but does not train in this round" in caplog.text


# --- garbage ---

# --- which layout holds ---


def other_update() -> Params:
    return {"other.weight": np.ones(2, np.float32)}


def test_the_global_model_in_the_context_gives_the_layout(
    one_aggregator: AggregatorClass,
    make_update: MakeUpdate,
    make_message: MakeMessage,
    make_context: MakeContext,
    global_model: Params,
) -> None:
    aggregator = one_aggregator()
    assert not aggregator.accept(make_message(other_update(), "photo"), make_context(global_model))
    doubles = {name: value.astype(np.float64) for name, value in make_update(1).items() if name != COUNTER}
    doubles[COUNTER] = np.array(3, np.int32)
    assert aggregator.accept(make_message(doubles, "sketch"), make_context(global_model))
    step = step_of(aggregator, make_context(global_model))
    assert {name: value.dtype for name, value in step.items()} == {n: v.dtype for n, v in global_model.items()}


# --- settings ---


@pytest.mark.parametrize("weighting", ["median", None, {"name": "uniform", "power": 2}])
def test_a_weighting_that_there_is_not_is_refused_and_the_one_in_force_stays(weighting: Any) -> None:
    with pytest.raises(SettingsError, match="weighting"):
        FedAvgAggregator(weighting=weighting)
    aggregator = FedAvgAggregator()
    aggregator.configure({"weighting": " uniform "})
    with pytest.raises(SettingsError, match="weighting"):
        aggregator.configure({"weighting": weighting})
    assert aggregator.weighting == "uniform"


def test_settings_that_cannot_be_are_refused_by_name(one_aggregator: AggregatorClass) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"learning_rate": 1.0}, "has no setting 'learning_rate'; it has .*server_lr"),
        ({"configure": 1.0}, "has no setting 'configure'"),
        ({"server_lr": "fast"}, "server_lr is 'fast', expected a number"),
        ({"server_lr": ""}, "server_lr is '', expected a number"),
        ({"server_lr": "0"}, "server_lr is 0.0, expected"),
        ({"server_lr": "nan"}, "server_lr is nan, expected"),
    ]
    for changed, message in cases:
        with pytest.raises(SettingsError, match=message):
            one_aggregator().configure(changed)
