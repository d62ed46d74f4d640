# SPDX-License-Identifier: Apache-2.0
"""A network of one's own: its record field by field, and what it computes after its head."""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from fdg_plugins.errors import SettingsError
from fdg_plugins.models import Network


class Net(nn.Module):
    """A body, a head and what follows it."""

    def __init__(self, after: Callable[[torch.Tensor], Any], gated: bool = False) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.BatchNorm1d(12))
        self.fc = nn.Linear(12, 2)
        self.after = after
        self.gate = nn.Linear(12, 12) if gated else None
        self.body[2].eval()  # held in evaluation mode by its author

    def forward(self, images: torch.Tensor) -> Any:
        features = self.body(images)
        features = features if self.gate is None else features * self.gate(features).sigmoid()
        return self.after(self.fc(features))


AFTER = "model 'xn' computes something after its head 'fc', expected the head's logits as its output"
ANOTHER = "; that is its last linear layer, and the field head names another."


def test_a_network_that_computes_something_after_its_head_is_refused() -> None:
    cases: list[Callable[[torch.Tensor], Any]] = [nn.Softmax(dim=1), nn.ReLU(), nn.Sigmoid(), lambda logits: 2 * logits]
    for after in cases:
        for head, end in (("fc", "."), (None, ANOTHER)):
            with pytest.raises(SettingsError, match=rf"^{re.escape(AFTER + end)}$"):
                Network(name="xn", build=partial(Net, after), head=head).extractor(2, image_size=16)
