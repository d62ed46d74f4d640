# SPDX-License-Identifier: Apache-2.0
"""The contract of every aggregator that the package offers: what it takes, what it refuses, what it returns."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nvflare.apis.client import Client
from nvflare.apis.dxo import DataKind, from_shareable
from nvflare.apis.fl_constant import ReservedKey, ServerCommandKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import ReservedHeaderKey, Shareable, make_reply
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.app_event_type import AppEventType
from nvflare.app_common.utils.fl_model_utils import FLModelUtils

from fdg_plugins.aggregators import UpdateAggregator
from fdg_plugins.core.layout import ModelLayout
from fdg_plugins.errors import FDGError, SettingsError
from fdg_plugins.messages import META_REPORT, META_SAMPLES, META_SITE
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


def test_the_kind_of_the_step_does_not_depend_on_who_came_first(
    aggregator_class: AggregatorClass,
    make_update: MakeUpdate,
    make_message: MakeMessage,
    make_context: MakeContext,
    global_model: Params,
) -> None:
    for order in ((False, True), (True, False)):
        aggregator, context = aggregator_class(weighting="samples"), make_context(global_model)
        for tensors in order:
            message = make_message(make_update(1, tensors), "photo" if tensors else "sketch")
            assert aggregator.accept(message, context)
        assert all(isinstance(value, torch.Tensor) for value in step_of(aggregator, context).values())


def test_references_of_disk_offload_give_the_step_of_their_tensors(
    one_aggregator: AggregatorClass,
    make_message: MakeMessage,
    make_context: MakeContext,
    make_reference: Callable[[Any], Any],
) -> None:
    cases: list[torch.dtype] = [torch.bfloat16, torch.float32]
    for dtype in cases:
        tensors = {"w": torch.tensor([1.0, 2.0], dtype=dtype), "n": torch.tensor(4)}
        steps = []
        for params in (tensors, {name: make_reference(value) for name, value in tensors.items()}):
            aggregator, context = one_aggregator(), make_context()
            assert aggregator.accept(make_message(params), context)
            steps.append(step_of(aggregator, context))
        assert all(isinstance(value, torch.Tensor) for value in steps[1].values())
        assert steps[1]["w"].dtype == dtype
        assert torch.equal(steps[0]["w"], steps[1]["w"])
        assert torch.equal(steps[0]["n"], steps[1]["n"])


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


def test_a_round_without_contributions_leaves_the_model(
    aggregator_class: AggregatorClass, make_context: MakeContext, global_model: Params
) -> None:
    aggregator, context = aggregator_class(), make_context(global_model)
    assert step_of(aggregator, context) == {}
    model = FLModel(params_type=ParamsType.FULL, params=dict(global_model))
    FLModelUtils.update_model(model, aggregator.aggregate_model())
    assert same_bits(model.params, global_model)
    assert model.meta[META_REPORT] == {"sites": []}


def test_rounds_do_not_mix(one_aggregator: AggregatorClass, run_round: Callable[..., Params]) -> None:
    aggregator = one_aggregator(weighting="samples")
    first = run_round(aggregator, SITES)
    second = run_round(aggregator, ("sketch", "art"), seed=5)
    assert same_bits(first, run_round(one_aggregator(weighting="samples"), SITES))
    assert same_bits(second, run_round(one_aggregator(weighting="samples"), ("sketch", "art"), seed=5))
    assert not same_bits(first, second)


def test_a_reset_forgets_what_has_arrived(
    one_aggregator: AggregatorClass,
    run_round: Callable[..., Params],
    make_update: MakeUpdate,
    make_message: MakeMessage,
    make_context: MakeContext,
    layout: ModelLayout,
) -> None:
    for way in ["reset", "reset_stats", "begin_round"]:
        aggregator, context = one_aggregator(weighting="samples"), make_context()
        assert aggregator.accept(make_message(make_update(9), "photo"), context)
        assert aggregator.accept(make_message(make_update(8), "stranger"), context)
        if way == "reset":
            aggregator.reset(context)
        elif way == "reset_stats":
            aggregator.reset_stats()
        else:
            aggregator.begin_round(layout, SITES)
        assert same_bits(run_round(aggregator), run_round(one_aggregator(weighting="samples")))


# --- who sent it ---


def test_the_peer_in_the_context_names_the_site(
    one_aggregator: AggregatorClass, make_update: MakeUpdate, make_message: MakeMessage, make_context: MakeContext
) -> None:
    aggregator = one_aggregator()
    for seed, site in enumerate(("sketch", "photo")):
        assert aggregator.accept(make_message(make_update(seed), site=None), make_context(peer=site))
    assert report_of(aggregator)["sites"] == ["photo", "sketch"]


def test_the_name_that_a_sender_writes_of_itself_does_not_count(
    one_aggregator: AggregatorClass, make_update: MakeUpdate, make_message: MakeMessage, make_context: MakeContext
) -> None:
    aggregator, context = one_aggregator(), make_context()
    forged = {META_SITE: "sketch", "site_name": "sketch", "contributor_name": "sketch"}
    assert aggregator.accept(make_message(make_update(1), "photo", meta=forged), context)
    assert aggregator.accept(make_message(make_update(2), "sketch"), context)
    assert not aggregator.accept(make_message(make_update(3), "photo", meta={META_SITE: "cartoon"}), context)
    assert report_of(aggregator)["sites"] == ["photo", "sketch"]


def test_the_owner_of_the_token_wins_over_the_peer_properties_that_travel_with_the_message(
    one_aggregator: AggregatorClass, make_update: MakeUpdate, make_message: MakeMessage, make_context: MakeContext
) -> None:
    message = make_message(make_update(1), "sketch")
    message.set_header(ServerCommandKey.FL_CLIENT, Client("photo", "token"))
    aggregator = one_aggregator()
    assert aggregator.accept(message, make_context(peer="sketch"))
    assert report_of(aggregator)["sites"] == ["photo"]


@pytest.mark.parametrize("name", [None, "", 7, ["photo"]])
def test_a_contribution_of_nobody_is_refused(
    one_aggregator: AggregatorClass,
    make_update: MakeUpdate,
    make_message: MakeMessage,
    make_context: MakeContext,
    caplog: pytest.LogCaptureFixture,
    name: Any,
) -> None:
    message = make_message(make_update(1), site=None, meta={META_SITE: "photo"})
    message.set_peer_props({ReservedKey.IDENTITY_NAME: name})
    assert not one_aggregator().accept(message, make_context())
    assert "without the name of an authenticated site" in caplog.text


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


def test_every_broken_contribution_is_refused_and_the_round_goes_on_without_it(
    one_aggregator: AggregatorClass,
    broken: Any,
    good: Callable[[str], Shareable],
    run_round: Callable[..., Params],
    make_update: MakeUpdate,
    make_message: MakeMessage,
    make_context: MakeContext,
    global_model: Params,
    caplog: pytest.LogCaptureFixture,
) -> None:
    expected = run_round(one_aggregator(weighting="uniform"), ("photo", "art"))
    refuse_in_the_middle(
        one_aggregator(weighting="uniform"),
        good,
        lambda: make_message(broken.spoil(make_update(4)), "sketch", kind=broken.kind, **broken.options),
        make_context(global_model),
        expected,
    )
    refusals = [record.message for record in caplog.records if "Contribution refused" in record.message]
    assert len(refusals) == 1
    assert re.search(f"site sketch: .*{broken.says}", refusals[0])


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


def test_a_second_update_of_a_site_is_refused_and_the_first_counts(
    one_aggregator: AggregatorClass,
    good: Callable[[str], Shareable],
    run_round: Callable[..., Params],
    make_update: MakeUpdate,
    make_message: MakeMessage,
    make_context: MakeContext,
    global_model: Params,
    caplog: pytest.LogCaptureFixture,
) -> None:
    expected = run_round(one_aggregator(), ("photo", "art"))
    refuse_in_the_middle(
        one_aggregator(), good, lambda: make_message(make_update(9), "photo"), make_context(global_model), expected
    )
    assert "site photo: sent a second update in the same round" in caplog.text


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


@pytest.mark.parametrize("sent_for", [0, 2, "1", [1], None, np.array([1, 1]), torch.ones(2)])
def test_an_update_for_another_round_is_refused(
    one_aggregator: AggregatorClass,
    make_update: MakeUpdate,
    make_message: MakeMessage,
    make_context: MakeContext,
    caplog: pytest.LogCaptureFixture,
    sent_for: Any,
) -> None:
    context = make_context(current_round=1)
    message = make_message(make_update(1), "sketch", sent_for=1)
    message.add_cookie(AppConstants.CONTRIBUTION_ROUND, sent_for)
    aggregator = one_aggregator()
    assert aggregator.accept(message, context) is (sent_for is None)  # a workflow without rounds sends no cookie
    if isinstance(sent_for, int):
        assert f"site sketch: sent an update for round {sent_for} in round 1" in caplog.text
    assert aggregator.accept(make_message(make_update(1), "photo", sent_for=1), context)


# --- garbage ---

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=4),
    st.binary(max_size=4),
    st.sampled_from(
        [np.ones(2), np.array("x"), np.float32(1), torch.ones(2), torch.ones(2).to_sparse(), Client("a", "b")]
    ),
)
JUNK = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
    max_leaves=5,
)
HEADER_NAMES = st.sampled_from(
    [
        ReservedHeaderKey.CONTENT_TYPE,
        ReservedHeaderKey.COOKIE_JAR,
        ReservedHeaderKey.PEER_PROPS,
        ServerCommandKey.FL_CLIENT,
        AppConstants.SUBMIT_MODEL_NAME,
        AppConstants.CURRENT_ROUND,
        AppConstants.NUM_ROUNDS,
        "site_name",
    ]
)


@st.composite
def junk_messages(draw: st.DrawFn) -> Shareable:
    """Messages in FLARE's envelope, with nonsense in any of its places."""
    message = Shareable(draw(st.dictionaries(st.text(max_size=4), JUNK, max_size=2)))
    message.set_header(ReservedHeaderKey.CONTENT_TYPE, "DXO")
    message.set_peer_props({ReservedKey.IDENTITY_NAME: draw(st.one_of(st.just("photo"), JUNK))})
    kind = draw(st.one_of(st.sampled_from(["WEIGHT_DIFF", "METRICS", "COLLECTION"]), JUNK))
    data = draw(st.one_of(st.dictionaries(st.text(max_size=4), JUNK, max_size=3), JUNK))
    meta = draw(st.one_of(st.dictionaries(st.sampled_from([META_SAMPLES, META_SITE]), JUNK), JUNK))
    message["DXO"] = draw(st.one_of(st.just({"kind": kind, "data": data, "meta": meta}), JUNK))
    for name, value in draw(st.dictionaries(HEADER_NAMES, JUNK, max_size=2)).items():
        message.set_header(name, value)
    return message


@settings(derandomize=True, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(message=junk_messages())
def test_garbage_is_refused_without_an_exception(
    one_aggregator: AggregatorClass, make_context: MakeContext, global_model: Params, message: Shareable
) -> None:
    aggregator, context = one_aggregator(), make_context(global_model)
    assert aggregator.accept(message, context) is False
    assert step_of(aggregator, context) == {}


# --- which layout holds ---


def other_update() -> Params:
    return {"other.weight": np.ones(2, np.float32)}


def test_the_layout_of_the_round_wins_over_the_first_contribution(
    one_aggregator: AggregatorClass,
    make_update: MakeUpdate,
    make_message: MakeMessage,
    make_context: MakeContext,
    layout: ModelLayout,
) -> None:
    aggregator, context = one_aggregator(), make_context()
    aggregator.begin_round(layout, SITES)
    assert not aggregator.accept(make_message(other_update(), "photo"), context)
    assert aggregator.accept(make_message(make_update(1), "sketch"), context)
    assert set(step_of(aggregator, context)) == set(layout)


def test_declared_kinds_hold_in_the_step(
    aggregator_class: AggregatorClass, make_message: MakeMessage, make_context: MakeContext
) -> None:
    # An entry declared a buffer is averaged with p and not scaled by the server's step, whatever its name.
    state = {"scale": np.zeros(2, np.float32), "w": np.zeros(2, np.float32)}
    aggregator, context = aggregator_class(weighting="uniform", server_lr=0.5), make_context()
    aggregator.begin_round(ModelLayout.of(state, {"scale": "float_buffer", "w": "trainable"}), SITES)
    for site, value in (("photo", 1.0), ("art", 3.0)):
        update = {name: np.full(2, value, np.float32) for name in state}
        assert aggregator.accept(make_message(update, site), context)
    dxo = from_shareable(aggregator.aggregate(context))
    assert dxo.data["scale"].tolist() == [2.0, 2.0]
    coefficients = dxo.meta[META_REPORT]["coefficients"]
    assert dxo.data["w"] == pytest.approx(0.5 * (coefficients[0] * 3.0 + coefficients[1] * 1.0))  # art, photo


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


def test_without_a_model_the_first_contribution_gives_the_layout_of_its_round(
    one_aggregator: AggregatorClass, make_update: MakeUpdate, make_message: MakeMessage, make_context: MakeContext
) -> None:
    aggregator, context = one_aggregator(), make_context()
    assert aggregator.accept(make_message(make_update(1), "photo"), context)
    assert not aggregator.accept(make_message(other_update(), "sketch"), context)
    assert set(step_of(aggregator, context)) == set(make_update(1))
    assert aggregator.accept(make_message(other_update(), "sketch"), context)


# --- settings ---


def test_settings_from_text_are_read_as_their_type(
    one_aggregator: AggregatorClass, run_round: Callable[..., Params]
) -> None:
    cases: list[Any] = ["0.3", " 0.3 ", "3e-1", 0.3]
    for value in cases:
        aggregator = one_aggregator(server_lr=1.0)
        aggregator.configure({"server_lr": value})
        assert aggregator.settings()["server_lr"] == 0.3
        assert same_bits(run_round(aggregator), run_round(one_aggregator(server_lr=0.3)))


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
        ({"server_lr": "0"}, "server_lr is 0.0, expected a finite number above 0.0"),
        ({"server_lr": "nan"}, "server_lr is nan, expected a finite number above 0.0"),
    ]
    for changed, message in cases:
        with pytest.raises(SettingsError, match=message):
            one_aggregator().configure(changed)
