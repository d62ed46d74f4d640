# SPDX-License-Identifier: Apache-2.0
"""A small global model, updates of it as FLARE delivers them, and every way in which one can be unusable."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.fl_constant import ReservedKey
from nvflare.apis.fl_context import FLContext, FLContextManager
from nvflare.apis.shareable import Shareable
from nvflare.app_common.abstract.model import make_model_learnable
from nvflare.app_common.app_constant import AppConstants

from fdg_plugins.aggregators import AGGREGATORS, RunFacts, UpdateAggregator
from fdg_plugins.core.layout import ModelLayout
from fdg_plugins.messages import META_SAMPLES
from fdg_plugins.methods.fedavg import FedAvgAggregator
from tests.aggregators.trained_sites import training_report

Params = dict[str, Any]

# With class counts of every site that the tests name, FedCSA's weights are those of all classes alike.
FACTS = RunFacts(dict.fromkeys(("a", "b", "c", "art", "photo", "sketch", "stranger", "cartoon"), (5, 5)), ("none",))


class AnyAggregator:
    """Makes an aggregator as its class would, at the begin of a run, with those of the settings that it has."""

    def __init__(self, kind: type[UpdateAggregator]) -> None:
        self.kind = kind

    def __call__(self, **settings: Any) -> UpdateAggregator:
        known = self.kind.setting_names()
        aggregator = self.kind(**{name: value for name, value in settings.items() if name in known})
        aggregator.begin_run(FACTS)
        return aggregator


@pytest.fixture(params=list(AGGREGATORS))
def aggregator_class(request: pytest.FixtureRequest) -> AnyAggregator:
    """Every registered aggregator: a new one goes through the tests without being named."""
    return AnyAggregator(AGGREGATORS[request.param])


@pytest.fixture
def one_aggregator() -> AnyAggregator:
    """One of them, for what the base class alone sees to; the contract suite asks every one for the gist of it."""
    return AnyAggregator(FedAvgAggregator)


@pytest.fixture
def global_model() -> Params:
    return {
        "conv.weight": np.full((2, 3), 0.5, np.float32),
        "bn.weight": np.ones(3, np.float32),
        "bn.running_mean": np.zeros(3, np.float32),
        "bn.running_var": np.ones(3, np.float32),
        "bn.num_batches_tracked": np.array(7, np.int64),
    }


@pytest.fixture
def layout(global_model: Params) -> ModelLayout:
    return ModelLayout.of(global_model)


@pytest.fixture
def make_update(global_model: Params) -> Callable[..., Params]:
    """Return a function that draws one site's update of the global model from a seed, as arrays or as tensors."""

    def make(seed: int, tensors: bool = False) -> Params:
        generator = np.random.default_rng(seed)
        update: Params = {
            name: generator.normal(size=value.shape).astype(value.dtype)
            for name, value in global_model.items()
            if value.dtype.kind == "f"
        }
        update["bn.num_batches_tracked"] = np.array(10 * seed + 3, np.int64)
        return {name: torch.from_numpy(value) for name, value in update.items()} if tensors else update

    return make


@pytest.fixture
def make_context() -> Callable[..., FLContext]:
    """Return a function that makes a server's context, as ScatterAndGather fills it."""

    def make(global_model: Params | None = None, current_round: int = 0, peer: str | None = None) -> FLContext:
        context = FLContextManager(identity_name="server", job_id="job").new_context()
        context.set_prop(AppConstants.CURRENT_ROUND, current_round, private=True, sticky=True)
        if global_model is not None:
            learnable = make_model_learnable(weights=global_model, meta_props={})
            context.set_prop(AppConstants.GLOBAL_MODEL, learnable, private=True, sticky=True)
        if peer is not None:
            other = FLContext()
            other.set_public_props({ReservedKey.IDENTITY_NAME: peer})
            context.set_peer_context(other)
        return context

    return make


@pytest.fixture
def make_message() -> Callable[..., Shareable]:
    """Return a function that makes what FLARE's server hands to ``accept``: a DXO and the peer's properties."""

    def make(
        params: Any,
        site: str | None = "photo",
        samples: Any = 10,
        kind: str = DataKind.WEIGHT_DIFF,
        meta: Mapping[str, Any] | None = None,
        sent_for: Any = 0,
    ) -> Shareable:
        with_samples = {} if samples is None else {META_SAMPLES: samples}
        told = {**training_report(4.0, losses=(1.0, 0.5)), **with_samples}
        message = DXO(kind, data=params, meta={**told, **(meta or {})}).to_shareable()
        if site is not None:
            message.set_peer_props({ReservedKey.IDENTITY_NAME: site})
        if sent_for is not None:
            message.add_cookie(AppConstants.CONTRIBUTION_ROUND, sent_for)
        return message

    return make


@dataclass(frozen=True)
class Reference:
    """What disk offload hands over in place of a tensor."""

    value: Any

    def materialize(self) -> Any:
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


@pytest.fixture
def make_reference() -> Callable[[Any], Reference]:
    return Reference


@dataclass(frozen=True)
class Broken:
    """One way in which a contribution is unusable, and the words in which it is refused."""

    says: str
    spoil: Callable[[Params], Any] = lambda params: params
    kind: str = DataKind.WEIGHT_DIFF
    options: dict[str, Any] = field(default_factory=dict)


def replaced(name: str, value: Any) -> Callable[[Params], Params]:
    return lambda params: {**params, name: value}


def without(name: str) -> Callable[[Params], Params]:
    return lambda params: {key: value for key, value in params.items() if key != name}


def spoilt(name: str, value: float) -> Callable[[Params], Params]:
    """Return ``params`` with the first element of one parameter replaced."""

    def spoil(params: Params) -> Params:
        changed = params[name].copy()
        changed.flat[0] = value
        return {**params, name: changed}

    return spoil


WEIGHT, COUNTER = "conv.weight", "bn.num_batches_tracked"
SHAPE = (2, 3)
NOT_DENSE = "expected a dense array of numbers"
NOT_WHOLE = "expected a whole number above zero"

BROKEN = {
    "NaN": Broken("'conv.weight' has 1 values that are NaN or infinite", spoilt(WEIGHT, np.nan)),
    "infinite": Broken("'conv.weight' has 1 values that are NaN or infinite", spoilt(WEIGHT, -np.inf)),
    "NaN in a buffer": Broken("'bn.running_var' has 1 values that are NaN", spoilt("bn.running_var", np.nan)),
    "infinite in the model's dtype": Broken("'conv.weight' has 6 values", replaced(WEIGHT, np.full(SHAPE, 1e300))),
    "wrong shape": Broken(
        r"'conv.weight' has shape \[3, 2\], expected \[2, 3\]", replaced(WEIGHT, np.ones((3, 2), np.float32))
    ),
    "a shape that would broadcast": Broken(
        r"'conv.weight' has shape \[\], expected \[2, 3\]", replaced(WEIGHT, np.array(1.0, np.float32))
    ),
    "missing": Broken(r"'conv.weight' is missing \(1 in all\)", without(WEIGHT)),
    "missing buffer": Broken("'bn.running_mean' is missing", without("bn.running_mean")),
    "extra": Broken("'conv.bias' is not in the global model", replaced("conv.bias", np.ones(2, np.float32))),
    "integers for floats": Broken(
        "'conv.weight' has dtype torch.int64, expected torch.float32", replaced(WEIGHT, np.ones(SHAPE, np.int64))
    ),
    "floats for integers": Broken(
        f"'{COUNTER}' has dtype torch.float32, expected torch.int64", replaced(COUNTER, np.array(3.0, np.float32))
    ),
    "booleans for floats": Broken("'conv.weight' has dtype torch.bool", replaced(WEIGHT, np.ones(SHAPE, bool))),
    "strings": Broken(f"'conv.weight' is a array of <U1, {NOT_DENSE}", replaced(WEIGHT, np.full(SHAPE, "1"))),
    "objects": Broken(f"'conv.weight' is a array of object, {NOT_DENSE}", replaced(WEIGHT, np.full(SHAPE, None))),
    "complex numbers": Broken(f"array of complex128, {NOT_DENSE}", replaced(WEIGHT, np.ones(SHAPE, complex))),
    "long doubles": Broken(
        f"'conv.weight' is a array of .*{NOT_DENSE}", replaced(WEIGHT, np.ones(SHAPE, np.longdouble))
    ),
    "a complex tensor": Broken("dtype torch.complex64", replaced(WEIGHT, torch.ones(SHAPE, dtype=torch.complex64))),
    "a list": Broken(f"'conv.weight' is a list, {NOT_DENSE}", replaced(WEIGHT, [[1.0] * 3] * 2)),
    "None": Broken(f"'conv.weight' is a NoneType, {NOT_DENSE}", replaced(WEIGHT, None)),
    "a sparse tensor": Broken(
        f"'conv.weight' is a Tensor, {NOT_DENSE}", replaced(WEIGHT, torch.ones(SHAPE).to_sparse())
    ),
    "a tensor without values": Broken(NOT_DENSE, replaced(WEIGHT, torch.ones(SHAPE, device="meta"))),
    "a reference that is gone": Broken(
        "'conv.weight' cannot be loaded: gone", replaced(WEIGHT, Reference(FileNotFoundError("gone")))
    ),
    "full weights": Broken(r"sent ParamsType.FULL, expected an update \(WEIGHT_DIFF\)", kind=DataKind.WEIGHTS),
    "metrics": Broken("sent None, expected an update", lambda params: {"accuracy": 0.5}, DataKind.METRICS),
    "a collection": Broken("sent ParamsType.FULL", kind=DataKind.COLLECTION),
    "empty": Broken("sent an update without parameters", lambda params: {}),
    "no samples": Broken(f"number of samples is 0, {NOT_WHOLE}", options={"samples": 0}),
    "fewer than no samples": Broken(f"number of samples is -5, {NOT_WHOLE}", options={"samples": -5}),
    "NaN samples": Broken(f"number of samples is nan, {NOT_WHOLE}", options={"samples": float("nan")}),
    "infinitely many samples": Broken(f"number of samples is inf, {NOT_WHOLE}", options={"samples": float("inf")}),
    "more samples than can be counted": Broken(f"samples is 1e\\+300, {NOT_WHOLE}", options={"samples": 1e300}),
    "half a sample": Broken(f"number of samples is 10.5, {NOT_WHOLE}", options={"samples": 10.5}),
    "samples in words": Broken(f"number of samples is '10', {NOT_WHOLE}", options={"samples": "10"}),
    "samples as a truth": Broken(f"number of samples is True, {NOT_WHOLE}", options={"samples": True}),
    "samples as an array's truth": Broken(NOT_WHOLE, options={"samples": np.bool_(True)}),
    "a sparse tensor of samples": Broken("number of samples is tensor", options={"samples": torch.eye(2).to_sparse()}),
    "a list of samples": Broken(rf"number of samples is \[10\], {NOT_WHOLE}", options={"samples": [10]}),
}


@pytest.fixture(params=["NaN", "wrong shape", "a list", "no samples"])
def broken(request: pytest.FixtureRequest) -> Broken:
    """Some ways in which a contribution is unusable; the reader's own test has them all."""
    return BROKEN[request.param]
