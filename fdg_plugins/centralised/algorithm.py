# SPDX-License-Identifier: Apache-2.0
"""The contract of a centralised algorithm: its settings, its loss on one batch per source domain, and its step.

Shapes: m source domains; images ``[B, C, H, W]`` and the task's targets of one domain's batch, B the same for all
domains unless one has fewer images; Y classes; risks ``[m]``, the task's mean loss L_e of each domain's batch. Steps
count from 0.

Buffers: all batches of a step pass through the network together, so BatchNorm sees all domains at once. This holds for
every algorithm with a joint loss; their neutral settings are therefore ERM to the bit.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, NamedTuple

import torch

from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.tasks import DEFAULT_TASK, Task

MOST_STEPS = 10_000_000

Batch = tuple[torch.Tensor, torch.Tensor]
State = Mapping[str, torch.Tensor]
# Sets the gradients of the loss of the given batches, and returns their risks, detached.
ComputeGradients = Callable[[Sequence[Batch]], torch.Tensor]


class Loss(NamedTuple):
    """The scalar to minimise, the detached risks ``[m]``, and the state after this step."""

    value: torch.Tensor
    risks: torch.Tensor
    state: State


@dataclass(frozen=True)
class Algorithm(ABC):
    """The settings of an algorithm and its step. A subclass checks its settings on construction.

    ``name`` is used in commands and records, ``title`` in tables and figures; ``needs_labelled_images``: whether it is
    defined for one class per image alone.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    needs_labelled_images: ClassVar[bool] = False

    # What a class declares of itself for the contract suite (``fdg_plugins.testing``); nothing else reads it.
    neutral: ClassVar[Mapping[str, Any] | None] = None
    """Settings with which every step is ERM's, bit for bit; None: there are none."""
    compares_domains: ClassVar[bool] = True
    """Whether all that it adds compares domains, so that with one domain it is ERM."""

    @property
    def restarts_at(self) -> int | None:
        """The step before which the optimizer is created anew, without its moments; None for most algorithms."""
        return None

    def settings(self) -> dict[str, Any]:
        """Return the settings by name, from which an equal algorithm can be built."""
        return asdict(self)

    def begin(self, model: ExtractorClassifier, num_domains: int) -> State:
        """Return the state before the first step, on the model's device; empty for most algorithms.

        It is all that an algorithm keeps between steps, besides model and optimizer.
        """
        return {}

    @abstractmethod
    def loss(
        self,
        model: ExtractorClassifier,
        batches: Sequence[Batch],
        step: int,
        state: State,
        task: Task = DEFAULT_TASK,
    ) -> Loss:
        """Return the loss of one batch per source domain, in the domains' order, on the model's device.

        Called inside the run's autocast context. ``state`` is that after the previous step and must not be modified.
        """

    def update(
        self,
        model: ExtractorClassifier,
        batches: Sequence[Batch],
        compute_gradients: ComputeGradients,
        optimizer: torch.optim.Optimizer,
    ) -> torch.Tensor:
        """Take one step with ``model``; return the detached risks ``[m]`` before it.

        ``compute_gradients(batches)`` replaces the gradients with those of :meth:`loss` at the current parameters. It
        may be called more than once.
        """
        risks = compute_gradients(batches)
        optimizer.step()
        return risks


def domain_logits(model: ExtractorClassifier, batches: Sequence[Batch]) -> tuple[torch.Tensor, ...]:
    """Return the logits ``[B, Y]`` of each domain's images, in float32, from one forward pass over all domains."""
    return by_domain(model(all_images(batches)).float(), batches)


def all_images(batches: Sequence[Batch]) -> torch.Tensor:
    """Return the images of all domains as one batch ``[m B, C, H, W]``, in the domains' order."""
    return torch.cat([images for images, _ in batches])


def by_domain(values: torch.Tensor, batches: Sequence[Batch]) -> tuple[torch.Tensor, ...]:
    """Split ``values [m B, ...]``, one row per image of all domains, into the rows ``[B, ...]`` of each domain."""
    return values.split([len(labels) for _, labels in batches])


def domain_risks(logits: Sequence[torch.Tensor], batches: Sequence[Batch], task: Task = DEFAULT_TASK) -> torch.Tensor:
    """Return the task's mean loss of each domain, ``[m]``."""
    return torch.stack([task.loss(own, targets) for own, (_, targets) in zip(logits, batches, strict=True)])
