# SPDX-License-Identifier: Apache-2.0
"""The BatchNorm layers of a network: their names, their running statistics, and passes that normalise by the batch."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import NamedTuple

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from fdg_plugins.core.batch_statistics import ChannelSums, channel_sums
from fdg_plugins.models.network import evaluation_mode

MEAN, VARIANCE = "running_mean", "running_var"


class NormLayer(NamedTuple):
    """A BatchNorm layer: its number of channels, and how many of each channel's elements come from one image."""

    channels: int
    positions: int


def batch_norm_layers(model: nn.Module) -> dict[str, _BatchNorm]:
    """Return the layers with running statistics by their names, in the network's order; a shared one has each name."""
    return {
        name: module
        for name, module in model.named_modules(remove_duplicate=False)
        if isinstance(module, _BatchNorm) and module.running_mean is not None
    }


def batch_norm_buffers(model: nn.Module) -> list[str]:
    """Return the names of BatchNorm's buffers in the state dict: statistics and counters, not the affine parameters."""
    return [
        f"{name}.{buffer}"
        for name, module in batch_norm_layers(model).items()
        for buffer, _ in module.named_buffers(recurse=False)
    ]


@contextmanager
def normalising_by_batch(model: nn.Module, layers: Iterable[_BatchNorm]) -> Iterator[None]:
    """Put ``model`` into evaluation mode, but let ``layers`` normalise by the batch and keep their statistics."""
    tracking = {layer: layer.track_running_stats for layer in layers}
    with evaluation_mode(model):
        try:
            for layer in tracking:
                layer.training, layer.track_running_stats = True, False
            yield
        finally:
            for layer, tracks in tracking.items():
                layer.track_running_stats = tracks


@contextmanager
def counting_inputs(layers: Mapping[str, _BatchNorm]) -> Iterator[dict[str, ChannelSums]]:
    """Yield the sums over the inputs of each layer that meanwhile has some, by its name."""
    found: dict[str, ChannelSums] = {}

    def add(name: str, layer: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        sums = channel_sums(inputs[0])
        found[name] = found[name] + sums if name in found else sums

    with ExitStack() as hooks:
        for name, layer in layers.items():
            hooks.enter_context(layer.register_forward_pre_hook(partial(add, name)))
        yield found


def norm_layers(model: nn.Module, names: Iterable[str], image: torch.Tensor) -> dict[str, NormLayer]:
    """Return those of the layers ``names`` that an image ``[C, H, W]`` reaches, found in one pass; ``model`` stays."""
    wanted = set(names)
    layers = {name: layer for name, layer in batch_norm_layers(model).items() if name in wanted}
    if not layers:
        return {}
    with normalising_by_batch(model, ()), torch.no_grad(), counting_inputs(layers) as found:
        model(image[None])
    return {name: NormLayer(len(sums.sums), sums.count) for name, sums in found.items()}
