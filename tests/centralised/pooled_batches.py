# SPDX-License-Identifier: Apache-2.0
"""Small networks and batches of several domains, for the tests of centralised algorithms."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch

from fdg_plugins.lab.centralised import Algorithm
from fdg_plugins.lab.centralised.algorithm import Batch
from fdg_plugins.lab.centralised.contract import CLASSES as CLASSES
from fdg_plugins.lab.centralised.contract import normalised_network as normalised_network
from fdg_plugins.lab.centralised.contract import small_batches as small_batches
from fdg_plugins.lab.centralised.contract import small_network as small_network
from fdg_plugins.lab.centralised.training import PooledTraining
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.training.loop import DevicePolicy

ON_CPU = DevicePolicy(torch.device("cpu"))


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
    policy: DevicePolicy = ON_CPU,
) -> PooledTraining:
    """Train ``model`` by some steps on batches of their own; return the training."""
    streams = [own_batches(domain, domains, shape) for domain in range(domains)]
    training = PooledTraining(model, algorithm, streams, partial(optimizer, model), policy)
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
