# SPDX-License-Identifier: Apache-2.0
"""Networks of one's own: any module with a linear head becomes an extractor with the protocol's head on top."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from fdg_plugins.errors import SettingsError
from fdg_plugins.models import NETWORKS, Network, build_model, check_features, is_small_model


def plain(num_classes: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, num_classes))


class Named(nn.Module):
    """A network with a layer after its head in the order of modules."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(48, 6))
        self.inner = nn.ModuleDict({"head": nn.Linear(6, 1000)})
        self.spare = nn.Linear(3, 3)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.inner["head"](self.body(images))


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
    assert not is_small_model(name)


def test_a_head_within_a_module_is_found_by_its_name(add: Callable[..., str]) -> None:
    model = build_model(add(Named, head="inner.head"), 5, seed=1)
    assert model(torch.randn(2, 3, 4, 4)).shape == (2, 5)
    assert model.feature_size == 6
    check_features(model, 3, 4)


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


def one_other(classes: int) -> nn.Module:
    return nn.Linear(4, classes)


def by_place(classes: int, /, channels: int = 3) -> nn.Module:
    return nn.Linear(4, classes)


def by_keyword(*, classes: int) -> nn.Module:
    return nn.Linear(4, classes)


@pytest.mark.parametrize("build", [one_other, by_place, by_keyword])
def test_one_required_argument_of_another_name_receives_the_number_of_classes(
    add: Callable[..., str], build: Any
) -> None:
    assert build_model(add(build, features=4), 5, seed=1).extractor.out_features == 5


def failing(num_classes: int) -> nn.Module:
    raise ValueError(f"{num_classes} are too many")


@pytest.mark.parametrize(
    ("build", "fields", "message"),
    [
        (
            lambda num_classes, width: nn.Linear(width, num_classes),
            {},
            "the factory of the model requires width, expec",
        ),
        (lambda depth, classes: nn.Linear(depth, classes), {}, "the factory of the model requires depth, classes, "),
        (failing, {}, "model 'test_0' cannot be built: ValueError: 5 are too many"),
        (lambda: nn.Sequential(nn.Flatten()), {}, "has no linear layer"),
        (plain, {"head": "fc"}, "the head 'fc' of model 'test_0' is not there, expected a linear layer"),
        (plain, {"head": "0"}, "the head '0' of model 'test_0' is a Conv2d, expected a linear layer"),
        (lambda: 3, {}, "is built as a int, expected a torch.nn.Module"),
    ],
)
def test_a_network_without_the_head_that_its_record_names_is_refused(
    add: Callable[..., str], build: Any, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingsError, match=message):
        build_model(add(build, **fields), 5, seed=1)


def test_features_that_are_no_vector_per_image_are_refused(add: Callable[..., str]) -> None:
    model = build_model(add(lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.Linear(6, 2))), 5, seed=1).train()
    with pytest.raises(SettingsError, match=r"features have the shape \[2, 4, 6, 6\], expected \[2, 6\]"):
        check_features(model, 3, 8)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "no name"}, "a network's name is 'no name'"),
        ({"channels": 2}, "has 2 channels, expected 1 or 3"),
        ({"features": 3, "head": "fc"}, "has features 3 and head 'fc'"),
        ({"features": 0}, "has features 0"),
    ],
)
def test_a_record_that_cannot_be_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        Network(**{"name": "mine", "build": plain, **fields})
