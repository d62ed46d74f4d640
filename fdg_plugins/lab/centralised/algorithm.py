# SPDX-License-Identifier: Apache-2.0
"""The contract of a centralised algorithm: its settings, its loss on one batch per source domain, and its step.

Shapes: m source domains; images ``[B, C, H, W]`` and the task's targets of one domain's batch, B the same for all
domains unless one has fewer images; Y classes; risks ``[m]``, the task's mean loss L_e of each domain's batch. Steps
count from 0.

Buffers: all batches of a step pass through the network together, so BatchNorm sees all domains at once. This holds for
every algorithm with a joint loss; their neutral settings are therefore ERM to the bit. DomainBed passes the domains one
after another for GroupDRO and IGA.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, ClassVar, NamedTuple

import torch
from pydantic import Field

from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.plugins.fields import NotNegative, check_fields
from fdg_plugins.tasks import DEFAULT_TASK, Task

MOST_STEPS = 10_000_000
WarmUp = Annotated[int, Field(ge=0, le=MOST_STEPS)]

Batch = tuple[torch.Tensor, torch.Tensor]
State = Mapping[str, torch.Tensor]
# Sets the gradients of the loss of the given batches, and returns their risks, detached.
ComputeGradients = Callable[[Sequence[Batch]], torch.Tensor]


class Loss(NamedTuple):
    """What an algorithm returns for one step.

    ``value``: the scalar to minimise, with its graph. ``risks``: float32 ``[m]``, each domain's mean loss before the
    step, detached. ``state``: what the next step receives, detached.
    """

    value: torch.Tensor
    risks: torch.Tensor
    state: State


@dataclass(frozen=True)
class Algorithm:
    """The settings of an algorithm and its step, whose values are checked by their annotations.

    ``name`` identifies the algorithm in commands and records, ``title`` in tables and figures.
    ``needs_labelled_images``: whether the algorithm is defined only for tasks with one class per image. ``pools``:
    whether one model is trained on all source domains, rather than one at each site.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    needs_labelled_images: ClassVar[bool] = False
    pools: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def restarts_at(self) -> int | None:
        """The step, counted from 0, before which the optimizer is rebuilt and loses its moments; None: never."""
        return None

    def settings(self) -> dict[str, Any]:
        """Return the settings by name; ``make_algorithm(name, settings)`` builds an equal algorithm from them."""
        return asdict(self)

    def begin(self, model: ExtractorClassifier, num_domains: int) -> State:
        """Return the state before the first step, on the model's device; empty for most algorithms.

        The state is all that an algorithm carries from step to step, apart from the model and the optimizer. Of the
        ``model``, only shapes and the device are read; ``num_domains`` is m.
        """
        return {}

    def objective(
        self, risks: torch.Tensor, logits: Sequence[torch.Tensor], batches: Sequence[Batch], step: int, state: State
    ) -> tuple[torch.Tensor, State]:
        """Return the scalar to minimise, and the new state; by default ``mean_e L_e``, and the state as it was.

        ``risks`` ``[m]`` have their graph; ``logits`` are of each of the m domains, ``[B, Y]``, float32; the rest is as
        for :meth:`loss`.
        """
        return risks.mean(), state

    def loss(
        self, model: ExtractorClassifier, batches: Sequence[Batch], step: int, state: State, task: Task = DEFAULT_TASK
    ) -> Loss:
        """Return the loss of one batch per source domain, with the domains' risks and the new state.

        Called inside the run's autocast context.

        Args:
            model: the network in training mode, on the device of the batches.
            batches: for each domain, in a fixed order, images ``[B, C, H, W]`` and the task's targets.
            step: the number of steps taken so far, from 0.
            state: the state after the previous step, or that of :meth:`begin`. It must not be modified.
            task: defines the loss of logits and targets.
        """
        logits = by_domain(model(all_images(batches)).float(), batches)
        risks = domain_risks(logits, batches, task)
        value, after = self.objective(risks, logits, batches, step, state)
        return Loss(value, risks.detach(), after)

    def update(
        self,
        model: ExtractorClassifier,
        batches: Sequence[Batch],
        compute_gradients: ComputeGradients,
        optimizer: torch.optim.Optimizer,
    ) -> torch.Tensor:
        """Take one step with ``model``, changed in place; return the risks ``[m]`` before it, detached.

        ``compute_gradients`` sets the gradients of :meth:`loss` for the given batches at the current parameters,
        replacing earlier ones, and returns their risks. It may be called more than once per step. The ``optimizer``
        holds the parameters of ``model``.
        """
        risks = compute_gradients(batches)
        optimizer.step()
        return risks


@dataclass(frozen=True)
class CentralisedERM(Algorithm):
    """Empirical risk minimisation on the pooled source domains: ``mean_e L_e``. The baseline for all others.

    References: Vapnik, "Statistical Learning Theory", 1998; as DomainBed has it: Gulrajani, Lopez-Paz, "In Search of
    Lost Domain Generalization", ICLR 2021.

    Every domain has the same weight, however many images it has. Differences: DomainBed takes the mean over all images
    of the step, which is the same if all batches have one size.
    """

    name: ClassVar[str] = "erm"
    title: ClassVar[str] = "ERM"


@dataclass(frozen=True)
class LocalOnly(Algorithm):
    """Each source site alone: the images, passes and optimizer of the federated runs, and its own selection.

    What a site that considers a federation compares it with. Nothing is shared.
    """

    name: ClassVar[str] = "local"
    title: ClassVar[str] = "Local"
    pools: ClassVar[bool] = False


@dataclass(frozen=True)
class AnnealedPenalty(Algorithm):
    """The mean risk plus a penalty that gets its full strength only after a warm-up, where the optimizer restarts.

    The schedule is DomainBed's, for IRM, V-REx and Fishr. Equation: minimise ``mean_e L_e + w(t) penalty`` with
    ``w(t) = early_strength`` for ``t < warm_up``, else ``strength`` -> :meth:`strength_at`. The optimizer restarts at
    the switch because Adam's moments come from much smaller gradients. With a strength of zero, penalty and restart are
    off from the first step: the algorithm is ERM, bit for bit.

    ``early_strength``: the factor during the warm-up, a constant of the algorithm. ``strength``: at least 0.
    ``warm_up``: steps, at least 0; with 0 the full strength applies from the first step.
    """

    early_strength: ClassVar[float] = 1.0

    strength: NotNegative
    warm_up: WarmUp

    @property
    def restarts_at(self) -> int | None:
        """The first step with full strength, ``warm_up``; None if the strength is zero."""
        return self.warm_up if self.strength else None

    def strength_at(self, step: int) -> float:
        """Return w(t), the factor of the penalty in ``step`` t, counted from 0."""
        if not self.strength:
            return 0.0
        return self.strength if step >= self.warm_up else self.early_strength

    def penalty(self, logits: Sequence[torch.Tensor], risks: torch.Tensor, batches: Sequence[Batch]) -> torch.Tensor:
        """Return the penalty without its factor, a differentiable scalar, from the arguments of :meth:`objective`."""
        raise NotImplementedError

    def objective(
        self, risks: torch.Tensor, logits: Sequence[torch.Tensor], batches: Sequence[Batch], step: int, state: State
    ) -> tuple[torch.Tensor, State]:
        """Return ``mean_e L_e + w(t) penalty``, which is not computed where w(t) = 0, and the state as it was."""
        value = risks.mean()
        if strength := self.strength_at(step):
            value = value + strength * self.penalty(logits, risks, batches)
        return value, state


def all_images(batches: Sequence[Batch]) -> torch.Tensor:
    """Return the images of all domains as one batch ``[m B, C, H, W]``, in the order of the domains."""
    return torch.cat([images for images, _ in batches])


def by_domain(values: torch.Tensor, batches: Sequence[Batch]) -> tuple[torch.Tensor, ...]:
    """Split ``values [m B, ...]``, one row per image, into m tensors ``[B, ...]``, one per domain."""
    return values.split([len(labels) for _, labels in batches])


def domain_risks(logits: Sequence[torch.Tensor], batches: Sequence[Batch], task: Task) -> torch.Tensor:
    """Return the task's mean loss of each domain, ``[m]``, from m tensors of logits ``[B, Y]`` and the batches."""
    return torch.stack([task.loss(own, targets) for own, (_, targets) in zip(logits, batches, strict=True)])
