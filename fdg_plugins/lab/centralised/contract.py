# SPDX-License-Identifier: Apache-2.0
"""The contract of every centralised algorithm. Each function takes a class and raises ``AssertionError`` if broken."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from functools import partial
from itertools import count
from typing import Any

import torch
from safetensors.torch import load, save
from torch import nn

from fdg_plugins.lab.centralised import Algorithm, CentralisedERM
from fdg_plugins.lab.centralised.algorithm import Batch
from fdg_plugins.lab.centralised.training import PooledTraining
from fdg_plugins.models import ExtractorClassifier, build_model
from fdg_plugins.tasks import DEFAULT_TASK
from fdg_plugins.testing.inputs import same_bits
from fdg_plugins.training.loop import DevicePolicy

AlgorithmClass = type[Algorithm]
CLASSES, STEPS = 3, 4
SMALL, NORMALISED = (1, 3, 4), (3, 16, 16)
CPU = torch.device("cpu")


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
    return [
        (
            torch.randn(size, *shape, generator=generator) + domain,
            torch.randint(CLASSES, (size,), generator=generator),
        )
        for domain in range(domains)
    ]


def trained(
    algorithm: Algorithm,
    model: ExtractorClassifier,
    *,
    domains: int = 3,
    shape: Sequence[int] = SMALL,
    bfloat16: bool = False,
) -> PooledTraining:
    """Train ``model`` in place with several Adam steps on generated batches; return the training."""
    streams = [_own_batches(domain, domains, shape) for domain in range(domains)]
    training = PooledTraining(model, algorithm, streams, partial(_adam, model), DevicePolicy(CPU, bfloat16=bfloat16))
    training.train(STEPS, lambda: False, lambda _: None)
    return training


def _adam(model: ExtractorClassifier) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=1e-2)


def _own_batches(domain: int, domains: int, shape: Sequence[int]) -> Iterator[Batch]:
    for number in count():
        yield small_batches(domains, seed=number, shape=shape)[domain]


def is_erm(algorithm: Algorithm, *, normalised: bool = False, domains: int = 3) -> bool:
    """Return whether several steps of an algorithm give the same bits as ERM."""
    own, plain = (normalised_network() if normalised else small_network() for _ in range(2))
    shape = NORMALISED if normalised else SMALL
    trained(algorithm, own, domains=domains, shape=shape)
    trained(CentralisedERM(), plain, domains=domains, shape=shape)
    return same_bits(own.state_dict(), plain.state_dict())


def in_force(class_: AlgorithmClass, warm_up: int = 0, **settings: Any) -> Algorithm:
    """Return the algorithm; a part with a warm-up takes effect after ``warm_up`` steps."""
    waits = {"warm_up": warm_up} if "warm_up" in {field.name for field in fields(class_)} else {}
    return class_(**{**waits, **settings})


def its_settings_make_it_again(class_: AlgorithmClass) -> None:
    """Settings determine the algorithm completely, and it has a name and a title."""
    algorithm = class_()
    assert class_(**algorithm.settings()) == algorithm
    assert class_.name
    assert class_.title


def neutral_settings_are_erm_to_the_bit(class_: AlgorithmClass) -> None:
    """With ``neutral`` settings, the steps are ERM's, whatever the other settings are."""
    if class_.neutral is None:
        return
    for normalised in (False, True):
        assert is_erm(in_force(class_, warm_up=2, **class_.neutral), normalised=normalised)


def what_is_not_neutral_is_not_erm(class_: AlgorithmClass) -> None:
    """With its own settings in effect, the algorithm differs from ERM."""
    assert is_erm(in_force(class_)) == (class_.neutral == {})


def with_one_domain_it_is_erm(class_: AlgorithmClass) -> None:
    """If one domain leaves nothing to compare (``compares_domains``), the steps are ERM's."""
    assert not class_.compares_domains or is_erm(in_force(class_), domains=1)


def the_order_of_the_domains_leaves_the_loss(class_: AlgorithmClass) -> None:
    """Reversing the domains leaves the loss unchanged and reverses their risks."""
    model, batches, algorithm = small_network(), small_batches(4), in_force(class_)
    state = algorithm.begin(model, 4)
    loss, turned = (algorithm.loss(model, found, 0, state) for found in (batches, batches[::-1]))
    torch.testing.assert_close(loss.value, turned.value)
    torch.testing.assert_close(loss.risks, turned.risks.flip(0))


def risks_are_the_domains_cross_entropies(class_: AlgorithmClass) -> None:
    """Risks are ``[m]``, one per domain, and neither they nor the state carry a graph."""
    model, batches, algorithm = small_network(), small_batches(), in_force(class_)
    loss = algorithm.loss(model, batches, 0, algorithm.begin(model, 3))
    expected = torch.stack([DEFAULT_TASK.loss(model(images), labels) for images, labels in batches])
    torch.testing.assert_close(loss.risks, expected.detach())
    assert loss.value.shape == ()
    assert loss.value.requires_grad
    assert not loss.risks.requires_grad
    assert not any(value.requires_grad for value in loss.state.values())


def inputs_stay_as_they_were(class_: AlgorithmClass) -> None:
    """Computing a loss changes neither batches nor the previous step's state."""
    model, batches, algorithm = small_network(), small_batches(), in_force(class_)
    state = algorithm.begin(model, 3)
    kept = {name: value.clone() for name, value in state.items()}
    algorithm.loss(model, batches, 0, state).value.backward()
    assert same_bits(state, kept)
    for (images, labels), (expected, own) in zip(batches, small_batches(), strict=True):
        assert torch.equal(images, expected)
        assert torch.equal(labels, own)


def a_state_that_was_saved_goes_on_as_if_unbroken(class_: AlgorithmClass) -> None:
    """The state between steps consists of tensors: after saving and loading it, the next loss has the same bits."""
    model, algorithm = small_network(), in_force(class_)
    state = algorithm.loss(model, small_batches(), 0, algorithm.begin(model, 3)).state
    read = load(save({name: value.contiguous() for name, value in state.items()}))
    assert same_bits(state, read)
    losses = [algorithm.loss(model, small_batches(seed=1), 1, one).value for one in (state, read)]
    assert torch.equal(*losses)


def it_trains_a_head_of_two_layers_under_bfloat16(class_: AlgorithmClass) -> None:
    """The algorithm also trains under autocast, and its state stays in full precision."""
    model, before = small_network(two_layer=True), small_network(two_layer=True)
    training = trained(in_force(class_), model, bfloat16=True)
    assert not same_bits(model.state_dict(), before.state_dict())
    assert all(value.dtype in (torch.float32, torch.float64) for value in training.state.values())


ALGORITHM_CONTRACT: tuple[Callable[[AlgorithmClass], None], ...] = (
    its_settings_make_it_again,
    neutral_settings_are_erm_to_the_bit,
    what_is_not_neutral_is_not_erm,
    with_one_domain_it_is_erm,
    the_order_of_the_domains_leaves_the_loss,
    risks_are_the_domains_cross_entropies,
    inputs_stay_as_they_were,
    a_state_that_was_saved_goes_on_as_if_unbroken,
    it_trains_a_head_of_two_layers_under_bfloat16,
)
"""The complete contract of a centralised algorithm."""
