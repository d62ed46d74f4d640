# SPDX-License-Identifier: Apache-2.0
"""Layers that draw at random, such as dropout, draw from the run's seed, for every site and round."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fdg_plugins.models import NETWORKS, Network, build_model
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.settings.site_config import SiteConfig
from fdg_plugins.training.session import SiteSession

NAME = "test_dropout"
DRAWN: list[float] = []


class Draws(nn.Module):
    """Draws a number from the global generator in every training step, as dropout does, and notes it."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if self.training:
            DRAWN.append(float(torch.rand(())))
        return images


def build(num_classes: int) -> nn.Module:
    return nn.Sequential(Draws(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(48, num_classes))


@pytest.fixture(autouse=True)
def _network() -> Iterator[None]:
    NETWORKS.add(Network(name=NAME, build=build))
    yield
    NETWORKS.remove(NAME)


def drawn(root: Path, site: str = "photo", number: int = 0, seed: int = 0) -> list[float]:
    """Return what the network of a site draws in one round."""
    protocol = Protocol(model=NAME, target="sketch", image_size=16, local_epochs=2, batch_size=16, seed=seed)
    session = SiteSession(site, SiteConfig(device="cpu", data_root=root, domain="photo"), protocol)
    DRAWN.clear()
    session.train(build_model(NAME, 7, seed=0).state_dict(), number, lambda: False, lambda epoch, loss: None)
    return list(DRAWN)


def test_the_draws_are_the_same_again_and_the_global_generator_is_left_alone(data_root: Path) -> None:
    first = drawn(data_root)
    torch.rand(7)
    before = torch.get_rng_state()
    assert drawn(data_root) == first
    assert torch.equal(torch.get_rng_state(), before)
    assert len(set(first)) == len(first) > 2


@pytest.mark.parametrize("other", [{"site": "other"}, {"number": 1}, {"seed": 1}])
def test_sites_rounds_and_seeds_draw_differently(data_root: Path, other: dict[str, Any]) -> None:
    assert not set(drawn(data_root)) & set(drawn(data_root, **other))
