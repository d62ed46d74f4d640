# SPDX-License-Identifier: Apache-2.0
"""Networks of many sites in one process: copies with the bits of a new network, which share nothing."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives import build_network
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.testing.inputs import same_bits
from fdg_plugins.training.networks import SharedNetworks

SETTINGS = {"dataset": "pacs", "target": "photo", "model": "convnet", "image_size": 32}
OBJECTIVES = ["erm", "fedsr", "harmofl"]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_copy_has_the_bits_of_a_new_network_and_changes_no_other(objective: str) -> None:
    protocol, shared = Protocol.model_validate({**SETTINGS, "objective": {"name": objective}}), SharedNetworks()
    new = build_network(protocol, 7).state_dict()
    for _ in range(2):
        model = shared.build(protocol, 7)
        assert model.state_dict().keys() == new.keys()
        assert same_bits(model.state_dict(), new)
        model.requires_grad_(False).eval()
        for value in model.state_dict().values():
            value.zero_()
    assert all(parameter.requires_grad for parameter in shared.build(protocol, 7).parameters())
    assert shared.build(protocol, 7).training


def _train(model: ExtractorClassifier) -> None:
    model.eval()
    model(torch.ones(2, 3, 32, 32)).sum().backward()


def _hook(model: ExtractorClassifier) -> None:
    model.extractor.register_forward_hook(lambda *_: None)


def _hook_a_parameter(model: ExtractorClassifier) -> None:
    next(model.parameters()).register_hook(lambda gradient: gradient)


def _freeze(model: ExtractorClassifier) -> None:
    model.hold({next(name for name, _ in model.named_parameters())})


def _attach(model: ExtractorClassifier) -> None:
    model.extractor.add_module("attached", nn.Identity())


def _note(model: ExtractorClassifier) -> None:
    model.classifier.note = [1]  # type: ignore[assignment]


def _replace(model: ExtractorClassifier) -> None:
    model.classifier.bias = nn.Parameter(torch.zeros(7))


def _compile(model: ExtractorClassifier) -> None:
    model.compile_for_training("eager")


@pytest.mark.parametrize(
    ("use", "again"),
    [(_train, True)]
    + [(one, False) for one in (_hook, _hook_a_parameter, _freeze, _attach, _note, _replace, _compile)],
)
def test_a_network_serves_another_task_unless_its_last_one_changed_more_than_values(
    use: Callable[[ExtractorClassifier], None], again: bool
) -> None:
    protocol, shared = Protocol.model_validate(SETTINGS), SharedNetworks()
    first, beside = shared.build(protocol, 7), shared.build(protocol, 7)
    assert first is not beside, "two networks of one task"
    shared.take_back()
    used = shared.build(protocol, 7)
    use(used)
    shared.take_back()
    lent = [shared.build(protocol, 7) for _ in range(2)]
    assert any(one is used for one in lent) == again
    for one in lent:
        assert one.training
        assert all(p.requires_grad and p.grad is None for p in one.parameters())
