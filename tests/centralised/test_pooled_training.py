# SPDX-License-Identifier: Apache-2.0
"""Endless batches of a domain, and the loop of steps over those of all domains."""

from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from fdg_plugins.data import DomainData, open_domain
from fdg_plugins.errors import FDGError, Stopped
from fdg_plugins.lab.centralised import CentralisedERM
from fdg_plugins.lab.centralised.training import PooledTraining, endless_batches
from fdg_plugins.settings.protocol import Protocol
from tests.centralised.pooled_batches import ON_CPU, adam, own_batches, same_bits, small_network, trained


@pytest.fixture(scope="module")
def domain() -> DomainData:
    """A domain of real digits, of which 20 train."""
    return open_domain(None, "rotateddigits", "angle_15", seed=3, max_samples=30)


def batches(domain: DomainData, count: int, size: int = 6, seed: int = 3) -> list[tuple[torch.Tensor, torch.Tensor]]:
    protocol = Protocol(dataset="rotateddigits", target="angle_0", batch_size=size, seed=seed, image_size=16)
    return list(islice(endless_batches(domain, protocol), count))


def pixels(found: list[tuple[torch.Tensor, torch.Tensor]]) -> list[bytes]:
    return [image.numpy().tobytes() for images, _ in found for image in images]


@pytest.mark.parametrize(("size", "per_pass"), [(6, 3), (10, 2), (19, 1), (20, 1), (64, 1)])
def test_all_batches_are_of_one_size_and_a_pass_shows_no_image_twice(
    domain: DomainData, size: int, per_pass: int
) -> None:
    assert len(domain.train) == 20
    found = batches(domain, 3 * per_pass, size)
    assert {tuple(images.shape) for images, _ in found} == {(min(size, 20), 1, 16, 16)}
    for number in range(3):
        shown = pixels(found[number * per_pass : (number + 1) * per_pass])
        assert len(set(shown)) == len(shown) == per_pass * min(size, 20)


def test_every_pass_has_an_order_of_its_own_that_follows_from_the_seed(domain: DomainData) -> None:
    first, second = batches(domain, 2, 20), batches(domain, 2, 20)
    assert pixels(first) == pixels(second)
    assert pixels(first[:1]) != pixels(first[1:])
    assert sorted(pixels(first[:1])) == sorted(pixels(first[1:]))
    assert pixels(batches(domain, 2, 20, seed=4)) != pixels(first)


def test_the_protocol_says_how_far_images_are_augmented(data_root: Path) -> None:
    photos = open_domain(data_root, "pacs", "photo", seed=3)

    def shown(**settings: Any) -> torch.Tensor:
        protocol = Protocol(target="sketch", batch_size=4, seed=3, image_size=16, **settings)
        return next(endless_batches(photos, protocol))[0]

    assert torch.equal(shown(), shown(crop_scale=0.8, color_jitter=0.4))
    assert not torch.equal(shown(), shown(crop_scale=0.7))
    assert not torch.equal(shown(), shown(color_jitter=0.3))


def test_domains_are_shuffled_each_in_its_own_way(domain: DomainData) -> None:
    other = open_domain(None, "rotateddigits", "angle_30", seed=3, max_samples=30)
    orders = []
    for data in (domain, other):
        in_order = [sample.label for sample in data.train]
        (_, labels), *_ = batches(data, 1, 20)
        assert sorted(labels.tolist()) == sorted(in_order)
        orders.append(labels.tolist())
    assert orders[0] != orders[1]


def test_the_mean_risks_are_those_of_the_steps() -> None:
    model = small_network()
    seen: list[int] = []
    training = PooledTraining(
        model,
        CentralisedERM(),
        [own_batches(0, 2, (1, 3, 4)), own_batches(1, 2, (1, 3, 4))],
        partial(adam, model),
        ON_CPU,
    )
    apart = [training.train(1, lambda: False, seen.append) for _ in range(4)]
    whole = PooledTraining(
        other := small_network(),
        CentralisedERM(),
        [own_batches(0, 2, (1, 3, 4)), own_batches(1, 2, (1, 3, 4))],
        partial(adam, other),
        ON_CPU,
    )
    risks = whole.train(4, lambda: False, lambda _: None)
    assert risks == pytest.approx([sum(values) / 4 for values in zip(*apart, strict=True)])
    assert same_bits(model, other)  # where checkpoints fall makes no difference to training
    assert seen == [1, 2, 3, 4]


def test_an_order_to_stop_is_obeyed_before_the_next_step() -> None:
    model = small_network()
    steps: list[int] = []
    training = PooledTraining(model, CentralisedERM(), [own_batches(0, 1, (1, 3, 4))], partial(adam, model), ON_CPU)
    with pytest.raises(Stopped):
        training.train(10, lambda: len(steps) == 3, steps.append)
    assert training.steps_done == 3


def test_training_that_diverges_is_said_with_parameter_and_step() -> None:
    def wild(model: torch.nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=float("inf"))

    with pytest.raises(FDGError, match=r"parameter 'extractor.1.weight' is not finite after step 2, .* of ERM"):
        trained(CentralisedERM(), small_network(), 2, optimizer=wild)
