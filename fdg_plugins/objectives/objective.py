# SPDX-License-Identifier: Apache-2.0
"""The contract of a local objective: the loss and the step of a site, what it reports and keeps, and the server half.

An :class:`Objective` holds the settings of a method as one immutable value, the same at the server and at every site.
A site derives one :class:`LocalObjective` per round from it, the server one ``Exchange`` per run.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

import torch

from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives.exchange import Exchange, Tensors
from fdg_plugins.tasks import DEFAULT_TASK, Task

Batches = Iterable[tuple[torch.Tensor, torch.Tensor]]
ComputeGradients = Callable[[], torch.Tensor]
Shared = Literal["nothing", "head", "everything"]


class Seen(NamedTuple):
    """A batch as reports take it: images ``[B, C, H, W]``, their features ``[B, D]`` by the model that is reported of,
    in evaluation mode, without autocast and without a graph, and targets, which ``task`` reads; all on the model's
    device."""

    images: torch.Tensor
    features: torch.Tensor
    targets: torch.Tensor
    task: Task = DEFAULT_TASK

    def samples(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return features ``[S, D]`` and classes ``[S]`` of each sample, of what the last layer reads of the batch."""
        return self.task.samples_of(features, self.targets)

    def summed_loss(self, logits: torch.Tensor) -> torch.Tensor:
        """Return B times the mean loss of the batch."""
        return self.task.summed_loss(logits, self.targets)


@dataclass(frozen=True)
class SiteRound:
    """Which site trains in which round, counted from 0, and how; ``task`` is what the network learns.

    ``memory`` is what :meth:`LocalObjective.memory` returned when the site last trained in an earlier round of the run,
    however long ago and whichever process it was; empty before that.
    """

    site: str = ""
    number: int = 0
    seed: int = 0
    learning_rate: float = 1.0
    momentum: float = 0.0
    memory: Tensors = field(default_factory=dict)
    task: Task = DEFAULT_TASK


class Trained(NamedTuple):
    """What local training did: the update (local - global, on the CPU), the steps, and how far these went.

    ``effective_steps`` is FedNova's ``||a||_1``, the displacement under a constant unit gradient over the learning
    rate.
    """

    update: Tensors
    steps: int
    effective_steps: float


class LocalObjective(ABC):
    """What one site minimises in one round, how it takes a step, and what it makes of the whole."""

    def parameters(self) -> Sequence[torch.nn.Parameter]:
        """Return parameters of the method's own, on the model's device, trained beside the model's; they stay here."""
        return ()

    def prepare(self, model: ExtractorClassifier) -> None:  # noqa: B027 - most objectives train as the model is set
        """Set the model as the method trains it; called after ``model.train()``, before each epoch."""

    @abstractmethod
    def loss(self, model: ExtractorClassifier, images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the loss of a batch, images ``[B, C, H, W]`` and the task's targets on the model's device, a scalar.

        Called inside the site's autocast context.
        """

    def step(
        self, model: ExtractorClassifier, compute_gradients: ComputeGradients, optimizer: torch.optim.Optimizer
    ) -> torch.Tensor:
        """Change ``model`` by one step on one batch; return the batch's loss before it, detached.

        ``compute_gradients()`` sets the gradients of :meth:`loss` on that batch, at the parameters as they are, in
        place of earlier ones, and returns the loss. It may be called more than once.
        """
        loss = compute_gradients()
        optimizer.step()
        return loss

    def report(self, trained: Trained) -> dict[str, torch.Tensor]:
        """Return what the site reports of its training, with its update; empty for most methods."""
        return {}

    def memory(self, trained: Trained) -> dict[str, torch.Tensor]:
        """Return what the site keeps for its next round; it never leaves the site."""
        return {}


@dataclass(frozen=True)
class Objective(ABC):
    """The settings of a local objective, and its two halves. A subclass checks its settings on construction.

    ``report`` names what a site shares for it beside the update, as the site's administrator allows or forbids it.
    """

    name: ClassVar[str]
    report: ClassVar[str | None] = None
    reports_parameters: ClassVar[bool] = False  # whether the server keeps a number per parameter and site
    plain_sgd: ClassVar[bool] = False  # whether the method is defined for SGD without momentum alone
    reads_step_lengths: ClassVar[bool] = False  # whether it follows from how far steps go, which SGD's rate tells
    needs_labelled_images: ClassVar[bool] = False  # whether it is defined for one class per image alone
    changes_effective_steps: ClassVar[bool] = False  # whether its steps go less far than the effective steps reported
    needs_shared: ClassVar[Shared] = "nothing"  # what must travel, for the server reads it

    # What a class declares of itself for the contract suite (``fdg_plugins.testing``); nothing else reads it.
    neutral: ClassVar[Mapping[str, Any] | None] = None
    """Settings with which training is FedAvg's, bit for bit, before anything was received; None: there are none."""
    neutral_when_received: ClassVar[bool] = True
    """Whether these are neutral whatever was received; false for a method without a strength."""

    @property
    def probes(self) -> bool:
        """Whether a task of its own comes before each round's training, which :meth:`report_received` answers."""
        return False

    def settings(self) -> dict[str, Any]:
        """Return name and settings, of which ``make_objective`` makes this objective again."""
        return {"name": self.name, **asdict(self)}

    # --- at a site ---

    @abstractmethod
    def local(self, received: Tensors, model: ExtractorClassifier, site: SiteRound = SiteRound()) -> LocalObjective:
        """Return what the site minimises in this round, for ``model`` on the device where it trains.

        ``received`` is what the server sent beside the model, empty if there was nothing yet. Raises
        ``SettingsError`` if it, or the site's memory, does not fit.
        """

    def report_received(
        self, model: ExtractorClassifier, seen: Iterable[Seen], num_classes: int
    ) -> dict[str, torch.Tensor]:
        """Return what the site reports of the model as received; empty for most methods.

        It is the answer to the probe task where :attr:`probes`, else it goes with the update. ``seen`` is the whole
        training split, un-augmented; features are computed as it is read, which can be done once. The model keeps its
        parameters and modes.
        """
        return {}

    def report_trained(
        self, model: ExtractorClassifier, seen: Iterable[Seen], num_classes: int
    ) -> dict[str, torch.Tensor]:
        """Return what the site reports of its own model, with its update; else as :meth:`report_received`."""
        return {}

    # --- at both ends ---

    def adapt(self, model: ExtractorClassifier, image_shape: tuple[int, int, int], seed: int) -> ExtractorClassifier:
        """Return the network that the method trains, made of ``model``, which may be changed; most train it as it is.

        ``image_shape`` is ``(C, H, W)``. What is added is initialised by ``seed`` alone.
        """
        return model

    # --- at the server ---

    def exchange(self, model: ExtractorClassifier, num_classes: int, num_sites: int = 1) -> Exchange | None:
        """Return the server's half; None for a method without. Of ``model`` only names and shapes are read.

        ``num_sites`` counts all sites that train in this run, in whichever of its rounds.
        """
        return None


@contextmanager
def evaluating(model: ExtractorClassifier) -> Iterator[None]:
    """Put ``model`` into evaluation mode, without autocast, and every module back into its mode in the end."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        with torch.autocast(model.last_layer.weight.device.type, enabled=False):
            yield
    finally:
        for module, training in modes:
            module.training = training


def see(model: ExtractorClassifier, batches: Batches, task: Task = DEFAULT_TASK) -> Iterator[Seen]:
    """Yield ``batches``, on the model's device, with the features by ``model`` as it is when each is asked for."""
    for images, targets in batches:
        with evaluating(model), torch.no_grad():
            features = model.features(images)
        yield Seen(images, features, targets, task)


def to_report(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return tensors as FLARE's encoder needs them: plain, dense, contiguous, on the CPU."""
    return {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
