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
from fdg_plugins.models import Network, network_of


def plain(num_classes: int) -> nn.Module:
    return nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, num_classes))


def test_a_networks_record_is_checked_field_by_field() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"name": None}, "a network's name is None, expected letters, digits and '_'."),
        ({"smallest": "16"}, "smallest of network 'xn' is the text '16', expected a whole number."),
        ({"smallest": 0}, "smallest of network 'xn' is 0, expected at least 1."),
        ({"multiple": 0}, "multiple of network 'xn' is 0, expected at least 1."),
        ({"channels": "3"}, "channels of network 'xn' is the text '3', expected a whole number or None."),
        ({"features": "8"}, "features of network 'xn' is the text '8', expected a whole number or None."),
        (
            {"norms": "batch"},
            "norms of network 'xn' is the text 'batch', expected a tuple, such as ('batch',) or None.",
        ),
        ({"head": 3}, "head of network 'xn' is the number 3, expected text or None, such as '3'."),
        ({"dense": "yes"}, "dense of network 'xn' is the text 'yes', expected True or False."),
        (
            {"build": plain(3)},
            "build of network 'xn' is a module, a Sequential, expected a function that returns one.",
        ),
        (
            {"build": 3},
            "build of network 'xn' is the number 3, expected a function that returns a module, or text such",
        ),
    ]
    for fields, message in cases:
        with pytest.raises(SettingsError, match=rf"^{re.escape(message)}"):
            Network(**{"name": "xn", "build": plain, **fields})


def test_a_module_in_the_place_of_its_factory_is_refused_without_a_record_too() -> None:
    with pytest.raises(SettingsError, match="build of network 'xn' is a module, a Sequential, expected a function"):
        network_of(plain(3), name="xn")


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


def same(logits: torch.Tensor) -> torch.Tensor:
    return logits


def pair(logits: torch.Tensor) -> tuple[torch.Tensor, None]:
    return logits, None


AFTER = "model 'xn' computes something after its head 'fc', expected the head's logits as its output"
ANOTHER = "; that is its last linear layer, and the field head names another."


def test_a_network_that_computes_something_after_its_head_is_refused() -> None:
    cases: list[Callable[[torch.Tensor], Any]] = [nn.Softmax(dim=1), nn.ReLU(), nn.Sigmoid(), lambda logits: 2 * logits]
    for after in cases:
        for head, end in (("fc", "."), (None, ANOTHER)):
            with pytest.raises(SettingsError, match=rf"^{re.escape(AFTER + end)}$"):
                Network(name="xn", build=partial(Net, after), head=head).extractor(2, image_size=16)


@pytest.mark.parametrize("after", [nn.Identity(), nn.Dropout(0.5), same])
def test_what_leaves_the_logits_as_they_are_is_not_something(after: Callable[[torch.Tensor], Any]) -> None:
    extractor, features = Network(name="xn", build=lambda: Net(after)).extractor(2, image_size=16)
    assert features == 12
    assert extractor.training
    assert not extractor.get_submodule("body.2").training
    assert not any(module._forward_hooks for module in extractor.modules())


def test_a_network_that_returns_more_than_logits_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"^model 'xn' returns a tuple, expected logits\.$"):
        Network(name="xn", build=lambda: Net(pair), head="fc").extractor(2, image_size=16)
    with pytest.raises(SettingsError, match=r"^model 'xn' returns a tuple, expected features\.$"):
        Network(name="xn", build=lambda: Net(pair), features=2).extractor(2, image_size=16)


def test_a_gate_that_is_the_last_linear_layer_is_named_with_the_field_that_names_another() -> None:
    gate = AFTER.replace("'fc'", "'gate'") + ANOTHER
    with pytest.raises(SettingsError, match=rf"^{re.escape(gate)}$"):
        Network(name="xn", build=lambda: Net(same, gated=True)).extractor(2, image_size=16)
    assert Network(name="xn", build=lambda: Net(same, gated=True), head="fc").extractor(2, image_size=16)[1] == 12


def test_a_layer_that_is_never_called_is_no_head() -> None:
    def build() -> nn.Module:
        net = Net(same)
        net.spare = nn.Linear(3, 3)
        return net

    with pytest.raises(SettingsError, match=r"^model 'xn' does not call its head 'spare', expected the head's logits"):
        Network(name="xn", build=build).extractor(2, image_size=16)


def test_images_that_a_network_cannot_take_are_left_to_the_check_of_its_features() -> None:
    def build() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(5, 2))

    assert Network(name="xn", build=build).extractor(2, image_size=16)[1] == 5
