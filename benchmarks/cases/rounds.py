# SPDX-License-Identifier: Apache-2.0
"""A round of updates as FLARE delivers them, and the two aggregators that take them."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import ReservedKey
from nvflare.apis.fl_context import FLContext, FLContextManager
from nvflare.apis.shareable import Shareable
from nvflare.app_common.abstract.aggregator import Aggregator
from nvflare.app_common.abstract.model import make_model_learnable
from nvflare.app_common.aggregators.intime_accumulate_model_aggregator import InTimeAccumulateWeightedAggregator
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_opt.pt.lazy_tensor_dict import LazyTensorDict
from nvflare.app_opt.pt.tensor_downloader import DiskTensorConsumer
from safetensors.torch import save
from torchvision.models import resnet18

from fdg_plugins.messages import META_SAMPLES
from fdg_plugins.methods.fedomg import FedOMGAggregator
from fdg_plugins.models import build_model

State = dict[str, torch.Tensor]
Form = Literal["tensors", "arrays"]

STEP = 1e-3  # of a parameter, in each of the two parts of an update


def network_state(quick: bool) -> State:
    """Return the state dict of torchvision's ResNet-18 (11.7 M parameters), or of a small network."""
    network = build_model("convnet", num_classes=7, seed=0) if quick else resnet18()
    return {name: value.detach() for name, value in network.state_dict().items()}


def vector_state(parameters: int) -> State:
    """Return the state of a model that is one vector ``[P]``."""
    return {"weight": torch.zeros(parameters)}


def state_bytes(state: Mapping[str, torch.Tensor]) -> int:
    """Return the bytes of the values of a state."""
    return sum(value.nbytes for value in state.values())


def context_of(state: State, form: Form = "tensors") -> FLContext:
    """Return the server's context in round 0 of a workflow whose global model is ``state``."""
    context = FLContextManager(identity_name="server", job_id="job").new_context()
    context.set_prop(AppConstants.CURRENT_ROUND, 0, private=True, sticky=True)
    learnable = make_model_learnable(weights=_in_form(state, form), meta_props={})
    context.set_prop(AppConstants.GLOBAL_MODEL, learnable, private=True, sticky=True)
    return context


def arrivals(state: State, sites: int, form: Form = "tensors") -> Iterator[Shareable]:
    """Yield each site's update of ``state``, made when it is asked for: a part common to all and one of its own.

    Nothing but what is yielded is held, and nothing else is made on the way: no memory but the update's own is taken.
    """
    for site in range(sites):
        yield _message(_in_form(_update(state, seed=site + 1), form), f"site-{site + 1:04}", samples=10 + site % 7)


def write_arrivals(folder: Path, state: State, sites: int) -> None:
    """Write each site's update of ``state`` to a folder of its own, as FLARE's disk offload does: a file per tensor."""
    for message in arrivals(state, sites):
        site = folder / message.get_peer_prop(ReservedKey.IDENTITY_NAME, None)
        site.mkdir()
        consumer = DiskTensorConsumer(str(site))
        consumer.consume_items([save({name: value}) for name, value in step_of(message).items()], None)
        consumer.release()


def arrivals_in_files(folder: Path, state: State) -> Iterator[Shareable]:
    """Yield the updates that were written to ``folder``, as FLARE hands them over; their files go with the messages."""
    for site in sorted(folder.iterdir()):
        files = {name: (str(site / f"chunk_{number}.safetensors"), name) for number, name in enumerate(state)}
        found = LazyTensorDict(files, str(site))
        yield _message({name: found.make_lazy_ref(name) for name in state}, site.name, samples=10)


def fedomg(kappa: float = 0.5, weighting: str = "uniform") -> FedOMGAggregator:
    """Return our aggregator."""
    return FedOMGAggregator(kappa=kappa, weighting=weighting, server_lr=1.0)


def flare_mean(context: FLContext, sites: int) -> InTimeAccumulateWeightedAggregator:
    """Return FLARE's aggregator, ready for the rounds of ``context``."""
    aggregator = InTimeAccumulateWeightedAggregator(
        aggregation_weights={f"site-{site + 1:04}": 1.0 for site in range(sites)}
    )
    aggregator.handle_event(EventType.START_RUN, context)
    return aggregator


def accept_all(aggregator: Aggregator, messages: Iterable[Shareable], context: FLContext) -> None:
    """Let ``aggregator`` accept each message; a refusal would make the measurement one of nothing."""
    for message in messages:
        if not aggregator.accept(message, context):
            raise RuntimeError(f"{type(aggregator).__name__} refused an update, expected it to accept all.")
        del message  # before the next one is made


def step_of(result: Shareable) -> dict[str, Any]:
    """Return the step in what ``aggregate`` returned."""
    return from_shareable(result).data


def _update(state: State, seed: int) -> State:
    """Return an update that has the same cosine, one half, with that of any other seed."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(value.shape, generator=generator).add_(1.0).mul_(STEP)
        if value.is_floating_point()
        else torch.full(value.shape, seed, dtype=value.dtype)
        for name, value in state.items()
    }


def _in_form(state: State, form: Form) -> dict[str, Any]:
    return dict(state) if form == "tensors" else {name: value.numpy() for name, value in state.items()}


def _message(params: dict[str, Any], site: str, samples: int) -> Shareable:
    message = DXO(DataKind.WEIGHT_DIFF, data=params, meta={META_SAMPLES: samples}).to_shareable()
    message.set_peer_props({ReservedKey.IDENTITY_NAME: site})
    message.add_cookie(AppConstants.CONTRIBUTION_ROUND, 0)
    return message
