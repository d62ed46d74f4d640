# SPDX-License-Identifier: Apache-2.0
"""Networks of many sites in one process: copies with the bits of a new network, which share nothing."""

import pytest
import torch
from torch import nn

from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives import build_network
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.training import networks
from fdg_plugins.training.networks import SharedNetworks, is_copyable

SETTINGS = {"dataset": "pacs", "target": "photo", "model": "convnet", "image_size": 32}
OBJECTIVES = ["erm", "fedsr", "harmofl"]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_copy_has_the_bits_of_a_new_network_and_changes_no_other(objective: str) -> None:
    protocol, shared = Protocol.model_validate({**SETTINGS, "objective": {"name": objective}}), SharedNetworks()
    new = build_network(protocol, 7).state_dict()
    for _ in range(2):
        model = shared.build(protocol, 7)
        assert model.state_dict().keys() == new.keys()
        assert all(torch.equal(value, new[name]) for name, value in model.state_dict().items())
        model.requires_grad_(False).eval()
        for value in model.state_dict().values():
            value.zero_()
    assert all(parameter.requires_grad for parameter in shared.build(protocol, 7).parameters())
    assert shared.build(protocol, 7).training


def test_a_network_is_built_once_for_a_protocol(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[tuple[str, int]] = []

    def build(protocol: Protocol, num_classes: int) -> ExtractorClassifier:
        built.append((protocol.model, num_classes))
        return build_network(protocol, num_classes)

    monkeypatch.setattr(networks, "build_network", build)
    protocol, shared = Protocol.model_validate(SETTINGS), SharedNetworks()
    for classes in (7, 7, 5):
        assert shared.build(protocol, classes).last_layer.out_features == classes
    assert built == [("convnet", 7), ("convnet", 5)]


def test_a_network_whose_copy_would_refer_to_the_original_is_built_anew() -> None:
    hooked, patched = nn.Linear(2, 2), nn.Linear(2, 2)
    hooked.register_forward_hook(lambda *_: None)
    vars(patched)["forward"] = lambda images: images
    assert is_copyable(nn.Sequential(nn.Linear(2, 2)))
    assert not is_copyable(nn.Sequential(hooked))
    assert not is_copyable(nn.Sequential(patched))
