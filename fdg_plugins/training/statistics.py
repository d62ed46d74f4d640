# SPDX-License-Identifier: Apache-2.0
"""Normalization statistics of a model, measured anew on training images: at a site, and as the server reads them.

One pass over the images, without augmentation, in which BatchNorm layers normalise by the batch, gives for each layer
the sums and the sums of squares of its inputs. Those of all sites, pooled, give the running statistics that the model
has on all sites' images together. For the first layer this is exact; a later layer sees inputs that its predecessors
have normalised batch by batch, as in training.
"""

from collections.abc import Collection, Mapping
from typing import Any

import torch

from fdg_plugins.core.batch_statistics import ChannelSums
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.models.batch_norm import (
    MEAN,
    VARIANCE,
    NormLayer,
    batch_norm_layers,
    counting_inputs,
    normalising_by_batch,
)
from fdg_plugins.objectives.exchange import PayloadValidator
from fdg_plugins.training.loop import Batches, DevicePolicy

SUMS, SQUARES, COUNT = "sums", "squares", "count"
ROUNDING = 1e-6  # relative, by which a sum may exceed what its squares allow

LayerSums = Mapping[str, ChannelSums]


@torch.no_grad()
def measure_statistics(
    model: ExtractorClassifier, layers: Collection[str], batches: Batches, policy: DevicePolicy
) -> dict[str, ChannelSums]:
    """Return the sums over the inputs of ``layers`` in one pass over ``batches``, on the device; ``model`` stays."""
    chosen = {name: layer for name, layer in batch_norm_layers(model).items() if name in layers}
    with normalising_by_batch(model, chosen.values()), counting_inputs(chosen) as found:
        for images, _ in batches:
            with policy.autocast():
                model.features(images)
    return found


def reestimate(model: ExtractorClassifier, layers: Collection[str], batches: Batches, policy: DevicePolicy) -> None:
    """Replace the running statistics of ``layers`` by those of ``batches``, as :func:`measure_statistics` sums them.

    Layers that are held in evaluation mode keep theirs: the model was trained with them.
    """
    by_name = batch_norm_layers(model)
    free = {name for name in layers if not model.holds(by_name[name])}
    if not free:
        return
    values = running_statistics(measure_statistics(model, free, batches, policy))
    model.load_state_dict(values, strict=False)  # its counters of batches stay


def payload_of(found: LayerSums) -> dict[str, torch.Tensor]:
    """Return the sums as the tensors of a site's answer: ``<layer>.sums [C]``, ``.squares [C]`` and ``.count [1]``."""
    payload: dict[str, torch.Tensor] = {}
    for layer, sums in found.items():
        payload[f"{layer}.{SUMS}"] = sums.sums.cpu()
        payload[f"{layer}.{SQUARES}"] = sums.squares.cpu()
        payload[f"{layer}.{COUNT}"] = torch.tensor([sums.count])
    return payload


def read_payload(
    validator: PayloadValidator, payload: Any, layers: Mapping[str, NormLayer], num_train: int
) -> dict[str, ChannelSums]:
    """Return the sums in a site's answer; refuse what is malformed, or cannot come from ``num_train`` images."""
    names = [f"{layer}.{part}" for layer in layers for part in (SUMS, SQUARES, COUNT)]
    fields = validator.fields(payload, names)
    return {layer: _read_layer(validator, fields, layer, form, num_train) for layer, form in layers.items()}


def _read_layer(
    validator: PayloadValidator, fields: Mapping[str, Any], layer: str, form: NormLayer, num_train: int
) -> ChannelSums:
    sums = validator.numbers(f"{layer}.{SUMS}", fields[f"{layer}.{SUMS}"], (form.channels,), double=True)
    squares = validator.numbers(f"{layer}.{SQUARES}", fields[f"{layer}.{SQUARES}"], (form.channels,), double=True)
    count = int(validator.counts(f"{layer}.{COUNT}", fields[f"{layer}.{COUNT}"], 1))
    if count != form.positions * num_train:
        validator.refuse(
            f"'{layer}.{COUNT}' is {count}, expected {form.positions * num_train} for the images counted in the census"
        )
    if bool((squares < 0).any()):
        validator.refuse(f"'{layer}.{SQUARES}' has a negative number, expected sums of squares")
    if bool((sums.abs() / count > (squares / count).sqrt() * (1 + ROUNDING)).any()):
        validator.refuse(f"'{layer}.{SQUARES}' is less than the square of '{layer}.{SUMS}' over the count allows")
    return ChannelSums(sums, squares, count)


def running_statistics(found: LayerSums) -> dict[str, torch.Tensor]:
    """Return running mean and variance ``[C]``, float64, of each layer, by their names in the state dict."""
    values: dict[str, torch.Tensor] = {}
    for layer, sums in found.items():
        values[f"{layer}.{MEAN}"], values[f"{layer}.{VARIANCE}"] = sums.mean_and_variance()
    return values
