# SPDX-License-Identifier: Apache-2.0
"""The contract of a centralised algorithm: settings, a loss of one batch per source domain, and how it takes a step.

Shapes: m source domains; images ``[B, C, H, W]`` and labels ``[B]`` of one domain's batch, B the same for all domains
unless one has fewer images; Y classes; risks ``[m]``, the mean cross entropy L_e of each domain's batch. Steps count
from 0.

All batches of a step go through the network as one, so that BatchNorm sees all domains at once, in every algorithm that
looks at them together. So their neutral settings are ERM to the bit.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch.nn.functional import cross_entropy

from fdg_plugins.errors import SettingsError
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.values import shorten

MOST_STEPS = 10_000_000

Batch = tuple[torch.Tensor, torch.Tensor]
State = Mapping[str, torch.Tensor]
# Sets the gradients of the loss of the given batches, and returns their risks, detached.
ComputeGradients = Callable[[Sequence[Batch]], torch.Tensor]


class Loss(NamedTuple):
    """The scalar to be minimised, the risks ``[m]``, detached, and the state after this step."""

    value: torch.Tensor
    risks: torch.Tensor
    state: State


@dataclass(frozen=True)
class Algorithm(ABC):
    """The settings of an algorithm, and what it does with a step. A subclass checks its settings on construction.

    ``name`` is what commands call it, ``title`` what people do.
    """

    name: ClassVar[str]
    title: ClassVar[str]

    @property
    def restarts_at(self) -> int | None:
        """The step before which the optimizer is created anew, without its moments; None for most."""
        return None

    def settings(self) -> dict[str, Any]:
        """Return the settings by name, of which the same algorithm can be made again."""
        return asdict(self)

    def begin(self, model: ExtractorClassifier, num_domains: int) -> State:
        """Return the state before the first step, on the model's device; empty for most.

        It is all that an algorithm keeps from step to step, beside model and optimizer.
        """
        return {}

    @abstractmethod
    def loss(self, model: ExtractorClassifier, batches: Sequence[Batch], step: int, state: State) -> Loss:
        """Return the loss of one batch per source domain, in the domains' order, on the model's device.

        Called inside the run's autocast context. ``state`` is that after the step before, and is not changed.
        """

    def update(
        self,
        model: ExtractorClassifier,
        batches: Sequence[Batch],
        compute_gradients: ComputeGradients,
        optimizer: torch.optim.Optimizer,
    ) -> torch.Tensor:
        """Change ``model`` by one step; return the risks ``[m]`` before it, detached.

        ``compute_gradients(batches)`` sets the gradients of :meth:`loss` at the parameters as they are, in place of
        earlier ones. It may be called more than once.
        """
        risks = compute_gradients(batches)
        optimizer.step()
        return risks


def domain_logits(model: ExtractorClassifier, batches: Sequence[Batch]) -> tuple[torch.Tensor, ...]:
    """Return the logits ``[B, Y]`` of each domain's images in float32, from one forward pass over all of them."""
    return by_domain(model(all_images(batches)).float(), batches)


def all_images(batches: Sequence[Batch]) -> torch.Tensor:
    """Return the images of all domains as one batch, in the domains' order."""
    return torch.cat([images for images, _ in batches])


def by_domain(values: torch.Tensor, batches: Sequence[Batch]) -> tuple[torch.Tensor, ...]:
    """Return the rows of ``values``, one for each image of all domains, domain by domain."""
    return values.split([len(labels) for _, labels in batches])


def domain_risks(logits: Sequence[torch.Tensor], batches: Sequence[Batch]) -> torch.Tensor:
    """Return the mean cross entropy of each domain, ``[m]``."""
    return torch.stack([cross_entropy(own, labels) for own, (_, labels) in zip(logits, batches, strict=True)])


def check_count(name: str, value: Any, at_least: int = 0) -> None:
    """Raise ``SettingsError`` unless ``value`` is a whole number from ``at_least`` to ``MOST_STEPS``."""
    if not isinstance(value, int) or isinstance(value, bool) or value < at_least:
        raise SettingsError(f"{name} is {shorten(value)}, expected a whole number of at least {at_least}.")
    if value > MOST_STEPS:
        raise SettingsError(f"{name} is {shorten(value)}, expected at most {MOST_STEPS:,}.")
