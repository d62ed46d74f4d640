# SPDX-License-Identifier: Apache-2.0
"""A small global model, updates of it as FLARE delivers them, and every way in which one can be unusable."""

from collections.abc import Callable, Mapping
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

from fdg_plugins.core.layout import ModelLayout
from fdg_plugins.messages import META_SAMPLES
from tests.aggregators.trained_sites import training_report

Params = dict[str, Any]


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
        told = {**training_report(4.0, 4, losses=(1.0, 0.5)), **with_samples}
        message = DXO(kind, data=params, meta={**told, **(meta or {})}).to_shareable()
        if site is not None:
            message.set_peer_props({ReservedKey.IDENTITY_NAME: site})
        if sent_for is not None:
            message.add_cookie(AppConstants.CONTRIBUTION_ROUND, sent_for)
        return message

    return make
