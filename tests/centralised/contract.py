# SPDX-License-Identifier: Apache-2.0
"""The contract of every centralised algorithm: each function takes a class; and small networks and batches for it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from functools import partial
from itertools import count
from typing import Any

import torch
from safetensors.torch import load, save
from torch import nn

from fdg_plugins.lab.centralised.algorithm import Algorithm, Batch, CentralisedERM
from fdg_plugins.lab.centralised.run import PooledTraining
from fdg_plugins.models import ExtractorClassifier, build_model
from fdg_plugins.tasks import DEFAULT_TASK
from fdg_plugins.testing.inputs import same_bits
from fdg_plugins.training.loop import DevicePolicy

AlgorithmClass = type[Algorithm]
CLASSES = 3
SMALL, NORMALISED = (1, 3, 4), (3, 16, 16)
# Settings with which every step equals ERM's, bit for bit; of Fish there are none.
NEUTRAL: dict[str, dict[str, Any]] = {
    "erm": {},
    "local": {},  # each site's step is ERM's on its own images
    "groupdro": {"step_size": 0.0},
    **{name: {"strength": 0.0} for name in ("irm", "vrex", "iga", "fishr")},
}


def small_network(*, two_layer: bool = False) -> ExtractorClassifier:
    """Return a smooth network for images ``[B, 1, 3, 4]``, with 5 features, three classes and no buffers."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        extractor = nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.Tanh())
        head = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, CLASSES)) if two_layer else nn.Linear(5, CLASSES)
    return ExtractorClassifier(extractor, head)


def normalised_network() -> ExtractorClassifier:
    """Return a network with batch normalisation, for images ``[B, 3, 16, 16]``."""
    return build_model("convnet", CLASSES, seed=0)


def small_batches(domains: int = 3, size: int = 6, seed: int = 0, shape: Sequence[int] = SMALL) -> list[Batch]:
    """Return one batch per domain, images ``[B, *shape]`` and labels ``[B]``; the domains' images differ in mean."""
    generator = torch.Generator().manual_seed(seed)
    images = [torch.randn(size, *shape, generator=generator) for _ in range(domains)]
    labels = [torch.randint(CLASSES, (size,), generator=generator) for _ in range(domains)]
    return [(image + number, label) for number, (image, label) in enumerate(zip(images, labels, strict=True))]


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
    shape: Sequence[int] = SMALL,
    optimizer: Callable[[ExtractorClassifier], torch.optim.Optimizer] = adam,
    bfloat16: bool = False,
) -> PooledTraining:
    """Train ``model`` in place with several steps on generated batches; return the training."""
    streams = [own_batches(domain, domains, shape) for domain in range(domains)]
    policy = DevicePolicy(torch.device("cpu"), bfloat16=bfloat16)
    training = PooledTraining(model, algorithm, streams, partial(optimizer, model), policy)
    training.train(steps)
    return training


def own_batches(domain: int, domains: int, shape: Sequence[int] = SMALL) -> Iterator[Batch]:
    """Yield other batches of one of the domains for ever."""
    for number in count():
        yield small_batches(domains, seed=number, shape=shape)[domain]


def equal(one: ExtractorClassifier, other: ExtractorClassifier) -> bool:
    return same_bits(one.state_dict(), other.state_dict())


def is_erm(algorithm: Algorithm, *, normalised: bool = False, domains: int = 3) -> bool:
    """Return whether several steps of an algorithm give the same bits as ERM."""
    own, plain = (normalised_network() if normalised else small_network() for _ in range(2))
    shape = NORMALISED if normalised else SMALL
    trained(algorithm, own, domains=domains, shape=shape)
    trained(CentralisedERM(), plain, domains=domains, shape=shape)
    return equal(own, plain)


def in_force(class_: AlgorithmClass, warm_up: int = 0, **settings: Any) -> Algorithm:
    """Return the algorithm; a part with a warm-up takes effect after ``warm_up`` steps."""
    waits = {"warm_up": warm_up} if "warm_up" in {field.name for field in fields(class_)} else {}
    return class_(**{**waits, **settings})


def neutral_settings_and_one_domain_are_erm_to_the_bit(class_: AlgorithmClass) -> None:
    """Whatever the other settings are; with its own in effect, the algorithm differs from ERM."""
    assert class_(**class_().settings()) == class_()
    neutral = NEUTRAL.get(class_.name)
    assert is_erm(in_force(class_)) == (neutral == {})
    for normalised in (False, True):
        assert neutral is None or is_erm(in_force(class_, 2, **neutral), normalised=normalised)
    # Every term that the others add compares domains.
    assert class_.name in ("irm", "fish") or is_erm(in_force(class_), domains=1)


def the_loss_is_of_the_domains_in_any_order(class_: AlgorithmClass) -> None:
    """Reversing the domains leaves the loss and reverses their risks, which are cross entropies without a graph."""
    model, batches, algorithm = small_network(), small_batches(4), in_force(class_)
    state = algorithm.begin(model, 4)
    loss, turned = (algorithm.loss(model, found, 0, state) for found in (batches, batches[::-1]))
    torch.testing.assert_close(loss.value, turned.value)
    torch.testing.assert_close(loss.risks, turned.risks.flip(0))
    expected = torch.stack([DEFAULT_TASK.loss(model(images), labels) for images, labels in batches])
    torch.testing.assert_close(loss.risks, expected.detach())
    assert (loss.value.shape, loss.value.requires_grad, loss.risks.requires_grad) == ((), True, False)
    assert not any(value.requires_grad for value in loss.state.values())


def inputs_stay_and_a_saved_state_goes_on(class_: AlgorithmClass) -> None:
    """A loss changes neither batches nor state; after saving and loading the state, the next loss has the same bits."""
    model, batches, algorithm = small_network(), small_batches(), in_force(class_)
    first = algorithm.begin(model, 3)
    kept = {name: value.clone() for name, value in first.items()}
    loss = algorithm.loss(model, batches, 0, first)
    loss.value.backward()
    assert same_bits(first, kept)
    pairs = [pair for one in zip(batches, small_batches(), strict=True) for pair in zip(*one, strict=True)]
    assert all(torch.equal(*pair) for pair in pairs)
    read = load(save({name: value.contiguous() for name, value in loss.state.items()}))
    losses = [algorithm.loss(model, small_batches(seed=1), 1, state).value for state in (loss.state, read)]
    assert torch.equal(*losses)


def it_trains_a_head_of_two_layers_under_bfloat16(class_: AlgorithmClass) -> None:
    """The algorithm also trains under autocast, and its state stays in full precision."""
    model, before = small_network(two_layer=True), small_network(two_layer=True)
    training = trained(in_force(class_), model, bfloat16=True)
    assert not equal(model, before)
    assert all(value.dtype in (torch.float32, torch.float64) for value in training.state.values())


ALGORITHM_CONTRACT: tuple[Callable[[AlgorithmClass], None], ...] = (
    neutral_settings_and_one_domain_are_erm_to_the_bit,
    the_loss_is_of_the_domains_in_any_order,
    inputs_stay_and_a_saved_state_goes_on,
    it_trains_a_head_of_two_layers_under_bfloat16,
)
"""The complete contract of a centralised algorithm."""
