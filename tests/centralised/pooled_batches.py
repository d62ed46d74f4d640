# SPDX-License-Identifier: Apache-2.0
"""Small networks and batches of several domains, for the tests of centralised algorithms."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from torch import nn

from fdg_plugins.centralised import Algorithm
from fdg_plugins.centralised.algorithm import Batch
from fdg_plugins.centralised.training import PooledTraining
from fdg_plugins.models import ExtractorClassifier, build_model
from fdg_plugins.training.loop import Arithmetic

CLASSES = 3
ON_CPU = Arithmetic(torch.device("cpu"))


def small_network(seed: int = 0, *, two_layer: bool = False) -> ExtractorClassifier:
    """Return a smooth network for images of ``[1, 3, 4]``, 5 features and three classes, without any buffer."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        extractor = nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.Tanh())
        head = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, CLASSES)) if two_layer else nn.Linear(5, CLASSES)
    return ExtractorClassifier(extractor, head)


def normalised_network(seed: int = 0) -> ExtractorClassifier:
    """Return a network with BatchNorm, for images of ``[3, 16, 16]``."""
    return build_model("convnet", CLASSES, seed=seed)


def small_batches(count: int = 3, size: int = 6, seed: int = 0, shape: Sequence[int] = (1, 3, 4)) -> list[Batch]:
    """Return a batch for each of ``count`` domains, whose images differ in their mean."""
    generator = torch.Generator().manual_seed(seed)
    return [
        (
            torch.randn(size, *shape, generator=generator) + domain,
            torch.randint(CLASSES, (size,), generator=generator),
        )
        for domain in range(count)
    ]


def adam(model: ExtractorClassifier) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=1e-2)


def sgd(model: ExtractorClassifier) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=1e-2)


def trained(
    algorithm: Algorithm,
    model: ExtractorClassifier,
    steps: int = 4,
    *,
    domains: int = 3,
    shape: Sequence[int] = (1, 3, 4),
    optimizer: Callable[[ExtractorClassifier], torch.optim.Optimizer] = adam,
    arithmetic: Arithmetic = ON_CPU,
) -> PooledTraining:
    """Train ``model`` by some steps on batches of their own; return the training."""
    streams = [own_batches(domain, domains, shape) for domain in range(domains)]
    training = PooledTraining(model, algorithm, streams, partial(optimizer, model), arithmetic)
    training.train(steps, lambda: False, lambda _: None)
    return training


def own_batches(domain: int, domains: int, shape: Sequence[int]) -> Iterator[Batch]:
    """Yield other batches of one of the domains for ever."""
    for number in itertools.count():
        yield small_batches(domains, seed=number, shape=shape)[domain]


def same_bits(one: ExtractorClassifier, other: ExtractorClassifier) -> bool:
    """Return whether all parameters and buffers are equal."""
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(first, second) for first, second in pairs)
