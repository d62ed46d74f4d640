# SPDX-License-Identifier: Apache-2.0
"""The head of a model as methods with a head of a site's own exchange, keep and replace it."""

import torch

from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives.exchange import Tensors


def head_of(model: ExtractorClassifier) -> dict[str, torch.Tensor]:
    """Return copies of the head's entries of the state dict, by name."""
    state = model.state_dict()
    return {name: state[name].detach().clone() for name in model.head_names}


def head_shapes(model: ExtractorClassifier) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the head's entries, by name in the state dict."""
    state = model.state_dict()
    return {name: tuple(state[name].shape) for name in model.head_names}


def load_head(model: ExtractorClassifier, head: Tensors) -> None:
    """Replace the head of ``model``, in place; nothing if ``head`` is empty."""
    if head:
        model.load_state_dict({**model.state_dict(), **head})
