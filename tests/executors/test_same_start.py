# SPDX-License-Identifier: Apache-2.0
"""Runs of one seed differ by their method alone: the same initial model, and the same batches in the same order."""

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import torch

from fdg_plugins.errors import Stopped
from fdg_plugins.plugins.composition import parse_method, published
from fdg_plugins.recipes.settings import job_settings
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.settings.site_config import SiteConfig
from fdg_plugins.training import session as session_module
from fdg_plugins.training.global_model import initial_model
from fdg_plugins.training.loop import Batches
from fdg_plugins.training.session import SiteSession

SMALL = {"image_size": 16, "max_samples_per_domain": 30, "batch_size": 8, "local_epochs": 2, "seed": 3}
CLASSES = 10
OTHERS = [method for method in published() if method != "fedavg"]
State = dict[str, torch.Tensor]


def changes_network(method: str) -> bool:
    """Return whether a part of the method declares that it acts on the network."""
    return any("network" in record.acts for record in parse_method(method).records)


def protocol_of(method: str, **settings: Any) -> Protocol:
    made = job_settings(parse_method(method), "rotateddigits", {**SMALL, **settings})
    return Protocol.model_validate(made.protocol)


def start_of(protocol: Protocol) -> State:
    return dict(initial_model(protocol, CLASSES).model.state)


def batches_of(protocol: Protocol, monkeypatch: pytest.MonkeyPatch) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return the batches of the first epoch with which a site would train the initial model."""
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []

    def look(model: object, objective: object, epochs: Iterable[Batches], *others: object) -> None:
        seen.extend(next(iter(epochs)))
        raise Stopped

    monkeypatch.setattr(session_module, "train_locally", look)
    site = SiteSession("angle_15", SiteConfig(device="cpu"), protocol)
    with pytest.raises(Stopped):
        site.train(start_of(protocol), 0, lambda: False, lambda epoch, loss: None)
    return seen


def same(one: Iterable[torch.Tensor], other: Iterable[torch.Tensor]) -> bool:
    return all(torch.equal(first, second) for first, second in zip(one, other, strict=True))


def flat(batches: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> Iterator[torch.Tensor]:
    return (tensor for batch in batches for tensor in batch)


@pytest.fixture(scope="module")
def plain() -> State:
    """FedAvg's initial model."""
    return start_of(protocol_of("fedavg"))


@pytest.mark.parametrize("method", OTHERS)
def test_the_initial_model_is_fedavgs_except_for_what_a_method_declares_to_change(method: str, plain: State) -> None:
    found = start_of(protocol_of(method))
    assert (found.keys() != plain.keys()) is changes_network(method)
    common = {name for name in found.keys() & plain.keys() if found[name].shape == plain[name].shape}
    if "classifier.weight" not in common:  # a head of another width is drawn as a whole
        common.discard("classifier.bias")
    assert len(common) >= 4
    assert same((found[name] for name in common), (plain[name] for name in common))


def test_another_seed_starts_elsewhere(plain: State) -> None:
    assert not same(start_of(protocol_of("fedavg", seed=4)).values(), plain.values())


@pytest.mark.parametrize("method", OTHERS)
def test_a_site_trains_on_fedavgs_batches_in_the_first_epoch(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = batches_of(protocol_of("fedavg"), monkeypatch)
    assert len(expected) == 3
    assert same(flat(batches_of(protocol_of(method), monkeypatch)), flat(expected))


def test_another_seed_has_other_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = (batches_of(protocol_of("fedavg", seed=seed), monkeypatch) for seed in (3, 4))
    assert not same(flat(one), flat(other))
