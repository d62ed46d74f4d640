# SPDX-License-Identifier: Apache-2.0
"""Networks of one's own: any module with a linear head becomes an extractor with the protocol's head on top."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from fdg_plugins.errors import SettingsError
from fdg_plugins.models import NETWORKS, Network, build_model


def plain(num_classes: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, num_classes))


@pytest.fixture
def add() -> Iterator[Callable[..., str]]:
    added: list[str] = []

    def take(build: Any, **fields: Any) -> str:
        NETWORKS.add(Network(name=f"test_{len(added)}", build=build, **fields))
        added.append(f"test_{len(added)}")
        return added[-1]

    yield take
    for name in added:
        NETWORKS.remove(name)


@pytest.mark.parametrize("head", ["linear", "two_layer"])
def test_the_last_linear_layer_gives_way_to_the_protocols_head(add: Callable[..., str], head: str) -> None:
    name = add(plain)
    model, again = (build_model(name, 5, seed=3, head=head) for _ in range(2))
    images = torch.randn(2, 3, 8, 8)
    assert model.features(images).shape == (2, 4)
    assert model(images).shape == (2, 5)
    assert all(torch.equal(value, again.state_dict()[key]) for key, value in model.state_dict().items())


def test_a_layer_of_the_extractor_may_take_the_place_of_the_head(add: Callable[..., str]) -> None:
    name = add(plain)
    base, model = (build_model(name, 5, seed=3, head=head) for head in ("two_layer", "projected_two_layer"))
    own = {key for key in model.state_dict() if key not in base.state_dict()}
    assert len(own) == 2
    assert all(key.startswith("extractor.") for key in own)
    assert all(torch.equal(value, model.state_dict()[key]) for key, value in base.state_dict().items())
    images = torch.randn(2, 3, 8, 8)
    assert model.features(images).shape == base.features(images).shape
    assert not torch.equal(model.features(images), base.features(images))
    small = build_model("convnet", 5, seed=3, head="projected_two_layer")
    assert small(torch.randn(2, 3, 16, 16)).shape == (2, 5)
    assert "extractor.projection.weight" in small.state_dict()


def test_a_factory_receives_what_it_names_and_keeps_its_own_defaults(add: Callable[..., str]) -> None:
    seen: list[dict[str, Any]] = []

    def build(num_classes: int, dims: int, channels: int = 8, norm: str = "mine") -> nn.Module:
        seen.append({"num_classes": num_classes, "dims": dims, "channels": channels, "norm": norm})
        return nn.Linear(4, 4)

    for name in (add(build, features=4), add(build, features=4, channels=None)):
        build_model(name, 5, seed=1, channels=2)
        build_model(name, 5, seed=1, channels=2, dims=3, norm="batch")
    assert [tuple(one.values()) for one in seen] == [
        (5, 2, 8, "mine"), (5, 3, 8, "batch"), (5, 2, 2, "mine"), (5, 3, 2, "batch"),
    ]  # fmt: skip


def failing(num_classes: int) -> nn.Module:
    raise ValueError(f"{num_classes} are too many")


class Net(nn.Module):
    """A body, a head and what follows it."""

    def __init__(self, after: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.BatchNorm1d(12))
        self.fc = nn.Linear(12, 2)
        self.after = after

    def forward(self, images: torch.Tensor) -> Any:
        return self.after(self.fc(self.body(images)))


@pytest.mark.parametrize(
    ("build", "fields"),
    [
        (lambda num_classes, width: nn.Linear(width, num_classes), {}),
        (lambda depth, classes: nn.Linear(depth, classes), {}),
        (failing, {}),
        (lambda: nn.Sequential(nn.Flatten()), {}),
        (plain, {"head": "fc"}),
        (plain, {"head": "0"}),
        (lambda: 3, {}),
        *((partial(Net, after), {"head": "fc"}) for after in (nn.Softmax(dim=1), nn.ReLU(), lambda logits: 2 * logits)),
        (partial(Net, nn.Sigmoid()), {}),
        (partial(Net, lambda logits: [logits]), {}),
    ],
)
def test_network_unlike_its_record_is_refused(add: Callable[..., str], build: Any, fields: dict[str, Any]) -> None:
    name = add(build, **fields)
    with pytest.raises(SettingsError):
        build_model(name, 2, seed=1, image_size=16)
