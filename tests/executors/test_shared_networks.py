# SPDX-License-Identifier: Apache-2.0
"""Networks of many sites in one process: copies with the bits of a new network, which share nothing."""

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives import build_network
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.testing.inputs import same_bits
from fdg_plugins.training import networks
from fdg_plugins.training.networks import SharedNetworks, form_of, is_copyable

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


def _with_buffer(module: nn.Module) -> None:
    module.register_buffer("seen", torch.zeros(1), persistent=False)


def _with(value: Any) -> Callable[[nn.Module], None]:
    return lambda module: vars(module).update(attribute=value)


@pytest.mark.parametrize(
    ("add", "again"),
    [
        (lambda module: None, True),
        (_with({"sizes": [1, (2, "a")], "kind": nn.ReLU, "also": None}), True),
        (_with_buffer, False),
        (_with(torch.zeros(2)), False),  # a running centre, say
        (_with(deque()), False),  # a bank of features
        (_with([{"bank": [torch.zeros(2)]}]), False),
    ],
)
def test_a_network_that_may_remember_something_beside_its_state_serves_one_task_only(
    add: Callable[[nn.Module], None], again: bool
) -> None:
    module = nn.Linear(2, 2)
    add(module)
    assert all(a is b for a, b in zip(form_of(module), form_of(module), strict=True)) == again


def test_what_is_changed_deep_in_an_attribute_is_noticed() -> None:
    module, lists = nn.Linear(2, 2), [[1]]
    vars(module)["attribute"] = lists
    before = form_of(module)
    lists[0].append(2)
    assert len(form_of(module)) != len(before)
