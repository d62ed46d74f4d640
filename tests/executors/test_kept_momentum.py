# SPDX-License-Identifier: Apache-2.0
"""Momentum that goes on from round to round: that of an optimizer which lives on, kept by the site."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from fdg_plugins.data import PACS
from fdg_plugins.models import build_model
from fdg_plugins.objectives import build_network
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.settings.site_config import SiteConfig
from fdg_plugins.state.site_memory import Kept
from fdg_plugins.training.optimizers import BUFFER, momentum_of, restore_momentum
from fdg_plugins.training.results import TrainResult
from fdg_plugins.training.session import SiteSession

State = dict[str, torch.Tensor]
SETTINGS: dict[str, Any] = {
    **{"model": "convnet", "target": "sketch", "image_size": 16, "local_epochs": 2, "batch_size": 8},
    **{"learning_rate": 0.02, "momentum": 0.9, "weight_decay": 0.01, "rounds": 2, "lr_decay_at": 0.5},
}


def session(root: Path, **settings: Any) -> SiteSession:
    return SiteSession("photo", SiteConfig(device="cpu", data_root=root), Protocol(**{**SETTINGS, **settings}))


def initial(site: SiteSession) -> State:
    return dict(build_network(site.protocol, len(site.data.classes)).state_dict())


def train(site: SiteSession, state: State, number: int, kept: Kept | None = None) -> TrainResult:
    return site.train(state, number, lambda: False, lambda epoch, loss: None, kept=kept)


def moved(state: State, update: Mapping[str, torch.Tensor]) -> State:
    return {name: value + update[name] for name, value in state.items()}


def distance(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> float:
    return max(float((one[name].double() - other[name].double()).abs().max()) for name in other)


def plainly_trained(site: SiteSession) -> State:
    """Return the parameters after two rounds of a loop whose only optimizer sees each round's learning rate."""
    model = build_model("convnet", len(PACS.classes), seed=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.9, weight_decay=0.01)
    for number in range(2):
        optimizer.param_groups[0]["lr"] = site.protocol.learning_rate_at(number)
        for batches in site.images.epochs(site.protocol.local_epochs, number):
            model.train()
            for images, labels in batches:
                optimizer.zero_grad()
                cross_entropy(model(images), labels).backward()
                optimizer.step()
    return {name: value.detach() for name, value in model.named_parameters()}


def test_two_rounds_of_a_site_are_those_of_a_loop_whose_optimizer_lives_on(data_root: Path) -> None:
    site = session(data_root, keep_momentum=True)
    received = initial(site)
    first = train(site, received, 0)
    second = moved(received, first.update)
    later = train(site, second, 1, first.kept)
    expected = plainly_trained(site)
    assert distance(moved(second, later.update), expected) < 1e-6
    assert distance(moved(second, train(site, second, 1).update), expected) > 1e-3


def test_momentum_goes_through_its_tensors_bit_for_bit_and_one_that_diverged_is_not_kept() -> None:
    parameters = {"a": torch.nn.Parameter(torch.ones(2, 3, 4, 4)), "b": torch.nn.Parameter(torch.ones(2))}
    parameters["a"].data = parameters["a"].data.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(parameters.values(), lr=0.1, momentum=0.9)
    assert momentum_of(optimizer, parameters) == {}
    kept = {"a": torch.randn(2, 3, 4, 4)}
    restore_momentum(optimizer, parameters, kept)
    found = momentum_of(optimizer, parameters)
    assert torch.equal(found["a"], kept["a"])
    assert not bool(found["b"].any())
    assert optimizer.state[parameters["a"]][BUFFER].is_contiguous(memory_format=torch.channels_last)
    optimizer.state[parameters["b"]][BUFFER] = torch.tensor([1.0, torch.nan])
    assert momentum_of(optimizer, parameters) == {}
