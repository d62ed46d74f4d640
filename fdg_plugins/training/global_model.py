# SPDX-License-Identifier: Apache-2.0
"""The global model at the server: its parameters, how a step changes them, and its files."""

import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from fdg_plugins.core.layout import ModelLayout
from fdg_plugins.core.stored import Values, whole
from fdg_plugins.core.travel import Rule
from fdg_plugins.errors import FDGError
from fdg_plugins.flare.stored_tensor import size_of
from fdg_plugins.models import InitialWeights
from fdg_plugins.models.batch_norm import MEAN, VARIANCE, NormLayer, norm_layers
from fdg_plugins.models.pretrained import load_pretrained
from fdg_plugins.models.registry import parameter_kinds
from fdg_plugins.objectives import Exchange, image_shape, make_objective
from fdg_plugins.objectives.network import (
    adapt_model,
    check_brought_network,
    check_network,
    plain_network,
    reestimated_layers,
    travel_rules,
)
from fdg_plugins.record.run_files import LOCAL_FOLDER
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.storage import named_path, save_tensors


class GlobalModel:
    """The global model's parameters and buffers. They are replaced, never changed in place: messages may hold them.

    ``shared`` names the entries that travel in updates and that steps change (None: all); ``layout`` describes them.
    ``reestimated``: the BatchNorm layers whose running statistics the sites measure anew. ``fixed`` names the entries
    that nothing changes, in their order, if they are the larger part of the model; otherwise it is empty.
    """

    def __init__(
        self,
        state: Mapping[str, torch.Tensor],
        kinds: Mapping[str, str],
        shared: Collection[str] | None = None,
        reestimated: Mapping[str, NormLayer] | None = None,
    ) -> None:
        self.state = {name: value.detach().clone().contiguous() for name, value in state.items()}
        travelling = self.state if shared is None else {name: self.state[name] for name in shared}
        self.layout = ModelLayout.of(travelling, kinds)
        self.reestimated = dict(reestimated or {})
        changing = {*self.layout, *(f"{layer}.{one}" for layer in self.reestimated for one in (MEAN, VARIANCE))}
        fixed = {name: value for name, value in self.state.items() if name not in changing}
        self.fixed = tuple(fixed) if 2 * count_bytes(fixed) > count_bytes(self.state) else ()

    def apply(self, step: Mapping[str, torch.Tensor | np.ndarray]) -> None:
        """Add ``step`` to the shared entries.

        Raises ``FDGError`` and leaves the model unchanged if a value would become infinite or NaN.
        """
        # A step has the form of the updates, and FLARE's privacy filters convert tensors to NumPy arrays.
        before = {name: self.state[name] for name in self.layout}
        moved = {name: value + torch.as_tensor(step[name]).to(value.dtype) for name, value in before.items()}
        for name, value in moved.items():
            if name.endswith(VARIANCE):
                value.clamp_(min=0)  # a mean of variances is not negative, but privacy noise can make it so
        self.replace(moved)

    def clamp_variances(self, updates: Iterable[dict[str, Values]]) -> None:
        """Replace, in each update, what would make a running variance of the site's own model negative.

        No site has such a variance. Privacy noise or a false update makes one, which would take from the mean what the
        other sites measured: with the mean clamped to zero, BatchNorm ruins the model for all of them.
        """
        names = [name for name in self.layout if name.endswith(VARIANCE)]
        for update in updates:
            for name in names:
                value, least = whole(update[name]), -self.state[name]
                if bool((value < least).any()):
                    update[name] = torch.maximum(value, least)

    def replace(self, values: Mapping[str, torch.Tensor]) -> None:
        """Replace entries by ``values``; raise ``FDGError`` and change nothing if one would not be finite."""
        given = {name: value.to(self.state[name].dtype) for name, value in values.items()}
        for name, value in given.items():
            if value.is_floating_point() and not bool(torch.isfinite(value).all()):
                raise FDGError(f"parameter {name!r} of the global model would not be finite after this step.")
        self.state = {**self.state, **given}


def save_local_models(
    folder: Path,
    received: Mapping[str, torch.Tensor],
    updates: Mapping[str, Mapping[str, Values]],
    description: Mapping[str, str],
) -> None:
    """Write each site's local model (received + update) to ``<folder>/local_models/<site>.safetensors``."""
    for site, update in updates.items():
        local = {name: received[name] + whole(value).to(received[name].dtype) for name, value in update.items()}
        path = folder / LOCAL_FOLDER / f"{site}.safetensors"
        save_tensors(path, {**received, **local}, {**description, "site": site})


class Start(NamedTuple):
    """The initial state of a run.

    ``model``: the global model. ``weights``: the origin of its parameters. ``exchange``: the method's exchange.
    ``last_layer``: names of the last layer's weight ``[Y, D]`` and bias ``[Y]``, whose rows are the classes.
    """

    model: GlobalModel
    weights: InitialWeights
    exchange: Exchange | None
    last_layer: tuple[str, str]


def initial_model(protocol: Protocol, num_classes: int, num_sites: int = 1) -> Start:
    """Return the initial state: parameters drawn from the seed; the extractor's from ImageNet if the protocol says so.

    ``num_sites``: number of sites that train.
    """
    model = plain_network(protocol, num_classes)
    file, sha256 = named_weights(os.environ)
    record = load_pretrained(model, protocol.model, protocol.pretrained, file, sha256, protocol.normalization)
    check_brought_network(protocol, model)
    check_network(protocol, model)
    model = adapt_model(model, protocol)
    objective = make_objective(protocol.objective)
    exchange = objective.exchange(model, num_classes, num_sites)
    shared = travel_rules(model, protocol).names(Rule.SHARED)
    reestimated = norm_layers(model, reestimated_layers(model, protocol), torch.zeros(image_shape(protocol)))
    start = GlobalModel(model.state_dict(), parameter_kinds(model), shared, reestimated)
    named = None if exchange is None else objective.named(exchange)
    return Start(start, record, named, model.last_layer_names)


def named_weights(environment: Mapping[str, str]) -> tuple[Path | None, str | None]:
    """Return the file with weights that ``FDG_PRETRAINED_FILE`` names, and the SHA-256 that it must have."""
    sha256 = environment.get("FDG_PRETRAINED_SHA256", "").strip()
    return named_path("FDG_PRETRAINED_FILE", environment), sha256 or None


def count_bytes(tensors: Any) -> int:
    """Return the total size of tensors or arrays by name, in memory or in files, in bytes; 0 for anything else."""
    return sum(map(size_of, tensors.values())) if isinstance(tensors, Mapping) else 0
