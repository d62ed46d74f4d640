# SPDX-License-Identifier: Apache-2.0
"""Every local objective on every kind of network: it trains there, or refuses in one sentence."""

from collections.abc import Iterator
from itertools import product

import pytest
import torch

from fdg_plugins.errors import SettingsError
from fdg_plugins.models import NETWORKS, Network, build_model
from fdg_plugins.objectives import OBJECTIVES, make_objective
from fdg_plugins.testing.objectives import CLASSES, make_batches, site_round, train
from tests.tiny_networks import POOLED, TINY

SIZE = 16
LARGE = ("resnet18", "mobilenet_v3_small", "efficientnet_b0", "convnext_tiny", "vit_b_16")
NOT_POOLED = ("mobilenet_v3_small", "convnext_tiny", "vit_b_16", *(name for name in TINY if name not in POOLED))
OWN_OBJECTIVES = tuple(OBJECTIVES)
ONE_SIZE = ("tiny_efficientnet",)  # of all its feature maps
REFUSED = {"rsc": NOT_POOLED, "stable": (*NOT_POOLED, *ONE_SIZE)}


@pytest.fixture(autouse=True, scope="module")
def _tiny_networks() -> Iterator[None]:
    for name, build in TINY.items():
        NETWORKS.add(Network(name=name, build=build))
    yield
    for name in TINY:
        NETWORKS.remove(name)


def trains(objective_name: str, network: str, size: int) -> None:
    """Train two epochs on two batches; every shared parameter moves and stays finite."""
    objective = make_objective(objective_name)
    model = build_model(network, CLASSES, seed=1, image_size=size)
    objective.check_network(model, (3, size, size))
    model = objective.adapt(model, (3, size, size), 1)
    batches = [
        (torch.nn.functional.interpolate(images, (size, size)), labels) for images, labels in make_batches(sizes=(4,))
    ]
    trained = train(model, objective.local({}, model, site_round()), batches)
    assert trained.update.keys() == model.state_dict().keys()
    assert all(bool(value.isfinite().all()) for value in trained.update.values())
    assert all(bool(trained.update[name].any()) for name in model.last_layer_names)
    exchange = objective.exchange(model, CLASSES, num_sites=2)
    if exchange is not None:
        exchange.begin_round(model.state_dict())


# Each network with plain training and with what refuses some of them, and each objective on a transformer; the contract
# has each on a convolutional network.
CHECKED = sorted({*product(("erm", *REFUSED), TINY), *product(OWN_OBJECTIVES, ("tiny_vit",))})


@pytest.mark.parametrize(("objective", "network"), CHECKED)
def test_it_trains_every_kind_of_network_or_says_why_not(objective: str, network: str) -> None:
    if network in REFUSED.get(objective, ()):
        with pytest.raises(SettingsError):
            trains(objective, network, SIZE)
    else:
        trains(objective, network, SIZE)


# Each of torchvision's networks with an objective that reads features and last layer, and with plain training; the rest
# by the tiny network of the same kind.
@pytest.mark.nightly
@pytest.mark.parametrize(("objective", "network"), list(product(("erm", "iir", "rsc"), LARGE)))
def test_it_trains_torchvisions_networks_or_says_why_not(objective: str, network: str) -> None:
    if objective == "rsc" and network in NOT_POOLED:
        with pytest.raises(SettingsError):
            trains(objective, network, 32)
    else:
        trains(objective, network, 32)
