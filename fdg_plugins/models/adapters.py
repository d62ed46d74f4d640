# SPDX-License-Identifier: Apache-2.0
"""Low-rank adapters on an extractor's layers, by peft: the layers keep their weights, the adapters are trained.

Reference: E. J. Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", ICLR 2022,
https://openreview.net/forum?id=nZeVKeeFYf9.

A linear layer with the weight W ``[O, I]`` becomes ``W + B A`` with A ``[r, I]`` and B ``[O, r]``; a convolution in the
same way, A with its kernel and B with one of a single pixel. A is drawn, B is zero at first, so the network with new
adapters is evaluated as the one without, bit for bit.

Differences: the paper adapts the projections of attention. peft can do so in ``nn.MultiheadAttention`` only by adding
the product to the frozen weights before each pass and subtracting it afterwards, which changes their last bits. Here
attention keeps its weights, and a transformer has adapters on the layers of its perceptrons. Any other
layer that is not called, because another module reads its weights, keeps them too: its adapter would never be trained.
The paper's factor ``alpha / r`` is 1.
"""

import re
from contextlib import ExitStack
from functools import partial

import torch
from torch import nn

from fdg_plugins.errors import SettingsError, load_extra
from fdg_plugins.models.registry import ExtractorClassifier, examined
from fdg_plugins.randomness import seeded

EXTRA = "adapters"
_PURPOSE = "trainable 'adapters'"
_LAYERS = (nn.Linear, nn.Conv2d, nn.Conv3d)
_PARTS = (".lora_A.", ".lora_B.")  # peft's names


def add_adapters(model: ExtractorClassifier, rank: int, image_shape: tuple[int, ...], *, seed: int) -> None:
    """Put adapters of ``rank`` on the linear layers and ungrouped convolutions of ``model.extractor``, in place.

    Layers through which images of ``image_shape`` do not pass have none. The adapters' parameters are determined by
    ``seed`` and the layers' shapes; global generators are restored. A layer's own entries of the state dict are then
    called ``<layer>.base_layer.*``, and no parameter of the extractor but those of adapters has a gradient.

    Raises ``SettingsError`` if peft is not installed or the extractor has no such layer.
    """
    peft = load_extra("peft", _PURPOSE, EXTRA)
    layers = _adaptable(model, image_shape)
    if not layers:
        needs = "linear layers or ungrouped convolutions outside attention"
        raise SettingsError(f"{_PURPOSE} needs {needs}, of which the model's extractor has none.", public=True)
    # As a pattern of whole names: in a list, "conv1" would also mean "layer1.0.conv1".
    targets = "|".join(re.escape(name) for name in layers)
    config = peft.LoraConfig(r=rank, lora_alpha=rank, target_modules=targets)
    with seeded(seed, "model", "adapters"):
        peft.inject_adapter_in_model(config, model.extractor)
    model.train(model.training)  # peft's own modules are in training mode


def adapter_names(model: nn.Module) -> tuple[str, ...]:
    """Return the names of the adapters' entries in the state dict, in its order."""
    return tuple(name for name in model.state_dict() if any(part in name for part in _PARTS))


def _adaptable(model: ExtractorClassifier, image_shape: tuple[int, ...]) -> list[str]:
    layers = dict(model.extractor.named_modules())
    attention = tuple(f"{name}." for name, layer in layers.items() if isinstance(layer, nn.MultiheadAttention))
    can = [
        name
        for name, layer in layers.items()
        if name and isinstance(layer, _LAYERS) and getattr(layer, "groups", 1) == 1 and not name.startswith(attention)
    ]
    ran: set[str] = set()

    def note(name: str, *_: object) -> None:
        ran.add(name)

    with examined(model), ExitStack() as hooks:
        for name in can:
            hooks.enter_context(layers[name].register_forward_pre_hook(partial(note, name)))
        model.features(torch.zeros(1, *image_shape))
    return [name for name in can if name in ran]
