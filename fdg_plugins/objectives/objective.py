# SPDX-License-Identifier: Apache-2.0
"""The contract of a local objective: a site's loss and step, what it reports and keeps, and the server side.

An :class:`Objective` holds the settings of a method as one immutable value, the same at the server and at every site.
A site derives one :class:`LocalObjective` per round from it, the server one ``Exchange`` per run.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

import torch

from fdg_plugins.errors import SettingsError
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.models.network import evaluation_mode
from fdg_plugins.objectives.exchange import Exchange, PayloadValidator, Tensors, readable
from fdg_plugins.plugins.fields import check_fields
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.tasks import DEFAULT_TASK, Task

Batches = Iterable[tuple[torch.Tensor, torch.Tensor]]
ComputeGradients = Callable[[], torch.Tensor]
Shared = Literal["nothing", "head", "everything"]
Point = Literal["objective", "network", "step", "personal"]


class FeatureBatch(NamedTuple):
    """A batch of features from which a site computes a report, on the model's device.

    ``images [B, C, H, W]``; ``features [B, D]``, by the model to be reported on, in evaluation mode, without autocast
    and without a graph; ``targets``, as ``task`` defines them. A dense model has features ``[B, H, W, D]``.
    """

    images: torch.Tensor
    features: torch.Tensor
    targets: torch.Tensor
    task: Task = DEFAULT_TASK

    def samples(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return features ``[S, D]`` and classes ``[S]``, one row per sample, from the inputs of the last layer."""
        return self.task.samples_of(features, self.targets)

    def summed_loss(self, logits: torch.Tensor) -> torch.Tensor:
        """Return B times the mean loss of the batch, a scalar."""
        return self.task.summed_loss(logits, self.targets)


@dataclass(frozen=True)
class SiteRound:
    """Which site trains in which round, counted from 0, for how many epochs, and the values it uses.

    ``seed`` and ``task``: those of the run. ``learning_rate`` and ``momentum``: of the optimizer in this round.
    ``memory``: what :meth:`LocalObjective.memory` returned when the site last trained in this run, however long ago and
    in whichever process; empty before that. ``class_counts [Y]``: samples of each class in the training split, upper
    bounds unless there is one class per image; empty if unknown.
    """

    site: str = ""
    number: int = 0
    seed: int = 0
    learning_rate: float = 1.0
    momentum: float = 0.0
    memory: Tensors = field(default_factory=dict)
    task: Task = DEFAULT_TASK
    epochs: int = 1
    class_counts: tuple[int, ...] = ()


@dataclass(frozen=True)
class FineTuning:
    """How a site trains a copy of the received model on its training split before it evaluates the copy as its own.

    Args:
        parameters: the names of the parameters that are trained, all others being fixed.
        epochs: passes over the training split, at least 1.
        steps: the number of steps after which it ends; None: with the last epoch.
        learning_rate: that of SGD without momentum and weight decay; None: the optimizer of the site's training.
    """

    parameters: tuple[str, ...]
    epochs: int = 1
    steps: int | None = None
    learning_rate: float | None = None


class PersonalModel(NamedTuple):
    """A site's own model: a network that returns logits, and how the model in it is fine-tuned before (None: not)."""

    network: torch.nn.Module
    tuning: FineTuning | None = None


class Trained(NamedTuple):
    """The outcome of local training: the update (local minus global, on the CPU) and the number of steps.

    ``effective_steps`` is FedNova's ``||a||_1``: the displacement under a constant unit gradient, divided by the
    learning rate.
    """

    update: Tensors
    steps: int
    effective_steps: float


class LocalObjective(ABC):
    """One site's loss in one round, its rule for a step, and what it reports and keeps afterwards."""

    def parameters(self) -> Sequence[torch.nn.Parameter]:
        """Return the method's own parameters, on the model's device. They are trained with the model and never sent."""
        return ()

    def observe_received(  # noqa: B027 - most objectives need nothing of the received model's features
        self, model: ExtractorClassifier, seen: Iterable[FeatureBatch], num_classes: int
    ) -> None:
        """Note what the training needs of the model as received; called once, before :meth:`begin`.

        What is noted stays at the site. Parameters and modes of the model are not changed.

        Args:
            model: the network as received.
            seen: the whole training split without augmentation, in an order that mixes the classes and is the same in
                all rounds; features are computed on reading, which is possible once. Unread, it costs nothing.
            num_classes: Y.
        """

    def begin(self, model: ExtractorClassifier) -> None:  # noqa: B027 - most objectives train the model as received
        """Change the model before its first step; called once, after the received model was evaluated."""

    def prepare(self, model: ExtractorClassifier) -> None:  # noqa: B027 - most objectives train as the model is set
        """Set the modes of the model's modules for training; called after ``model.train()``, before each epoch."""

    @abstractmethod
    def loss(self, model: ExtractorClassifier, images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the loss of a batch, a scalar: images ``[B, C, H, W]`` and the task's targets, on the model's device.

        Called inside the site's autocast context.
        """

    def step(
        self, model: ExtractorClassifier, compute_gradients: ComputeGradients, optimizer: torch.optim.Optimizer
    ) -> torch.Tensor:
        """Take one step on one batch; return the loss of the batch before it, detached.

        ``compute_gradients()`` replaces the gradients with those of :meth:`loss` on the batch at the current
        parameters, and returns the loss. It may be called more than once.
        """
        loss = compute_gradients()
        optimizer.step()
        return loss

    def observe_trained(  # noqa: B027 - most objectives need nothing of the trained model's features
        self, model: ExtractorClassifier, seen: Iterable[FeatureBatch], num_classes: int
    ) -> None:
        """Note what :meth:`report` and :meth:`memory` need of the trained model; called once, before both.

        Arguments and side effects are those of :meth:`observe_received`.
        """

    def report(self, trained: Trained) -> dict[str, torch.Tensor]:
        """Return what the site reports about its training, sent with its update; empty for most methods."""
        return {}

    def memory(self, trained: Trained) -> dict[str, torch.Tensor]:
        """Return what the site keeps for its next round; it never leaves the site."""
        return {}


@dataclass(frozen=True)
class Objective(ABC):
    """The settings of a method that acts at the sites; the same value at the server and at every site.

    Its fields are the settings, checked on construction by their annotations (``fdg_plugins.plugins.fields``).
    ``report``: the name of what a site shares in addition to its update, which the site's administrator allows or
    forbids; None: nothing.
    """

    role: ClassVar[str] = "objective"
    name: ClassVar[str]
    acts: ClassVar[tuple[Point, ...]] = ("objective",)  # what it changes of a site's training, for tables
    report: ClassVar[str | None] = None
    needs_labelled_images: ClassVar[bool] = False  # whether it requires one class per image
    needs_classes: ClassVar[bool] = False  # whether it requires one class per sample, an image or a pixel
    needs_flat_images: ClassVar[bool] = False  # whether it requires images with two sides, not volumes
    needs_shared: ClassVar[Shared] = "nothing"  # what must be shared, because the server reads it
    needs_trained: ClassVar[tuple[str, ...]] = ()  # parts of the network that have steps of their own, by module
    changes_effective_steps: ClassVar[bool] = False  # whether a parameter moves less than the effective steps say
    reads_step_lengths: ClassVar[bool] = False  # whether it uses step lengths, known only for SGD
    personalises: ClassVar[bool] = False  # whether each site has its own model, which it judges too
    hosted: ClassVar[Mapping[str, Any] | None] = None
    """Settings with which FLARE's own workflows can host it (:meth:`hosted_exchange`); None: they cannot."""

    # Declarations for the contract suite (``fdg_plugins.testing``); nothing else reads them.
    neutral: ClassVar[Mapping[str, Any] | None] = None
    """Settings that give FedAvg's training, bit for bit, before anything was received; None: no such settings exist."""
    neutral_when_received: ClassVar[bool] = True
    """Whether these settings are neutral for any payload; false for a method without a strength."""

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def more_epochs(self) -> int:
        """The epochs that a site trains in a round in addition to the protocol's ``local_epochs``."""
        return 0

    @property
    def probes(self) -> bool:
        """Whether a separate task, answered by :meth:`report_received`, precedes each round's training."""
        return False

    def settings(self) -> dict[str, Any]:
        """Return name and settings; ``make_objective`` builds an equal objective from them."""
        return {"name": self.name, **asdict(self)}

    # --- at a site ---

    def payload_validator(self) -> PayloadValidator:
        """Return a reader of the server's payload, whose ``SettingsError`` says that it was sent for this method."""
        return PayloadValidator(f"sent for objective {self.name!r}", SettingsError)

    @abstractmethod
    def local(self, received: Tensors, model: ExtractorClassifier, site: SiteRound = SiteRound()) -> LocalObjective:
        """Return the loss and the step for one round, for ``model`` on the device on which it trains.

        Args:
            received: the server's payload, empty if there is none yet; ignored by a method without an exchange.
            model: the network as received, adapted by :meth:`adapt`.
            site: the site, the round and the site's state.

        Raises ``SettingsError`` if the payload or the site's state does not fit.
        """

    def personal(self, model: ExtractorClassifier, received: Tensors, site: SiteRound = SiteRound()) -> PersonalModel:
        """Return the site's own model; asked for only if the method :attr:`personalises`.

        Args:
            model: a copy of the network as received, which may be changed.
            received: as for :meth:`local`.
            site: as for :meth:`local`.

        Raises as :meth:`local`.
        """
        return PersonalModel(model)

    def report_received(
        self, model: ExtractorClassifier, seen: Iterable[FeatureBatch], num_classes: int
    ) -> dict[str, torch.Tensor]:
        """Return what the site reports about the model as received; empty for most methods.

        The report answers the probe task if :attr:`probes`; otherwise it is sent with the update. Parameters and modes
        of the model are not changed.

        Args:
            model: the network as received.
            seen: the whole training split without augmentation; features are computed on reading, which is possible
                once.
            num_classes: Y.
        """
        return {}

    def report_trained(
        self, model: ExtractorClassifier, seen: Iterable[FeatureBatch], num_classes: int
    ) -> dict[str, torch.Tensor]:
        """Return what the site reports about its trained model, with its update; empty for most methods.

        Arguments and side effects are those of :meth:`report_received`.
        """
        return {}

    # --- at both ends ---

    def check(self, protocol: Protocol) -> None:  # noqa: B027 - the flags of the class say what most methods need
        """Raise ``SettingsError`` for a protocol under which the method cannot train, beyond what the flags say."""

    def check_network(  # noqa: B027 - most methods train any network
        self, model: ExtractorClassifier, image_shape: tuple[int, ...]
    ) -> None:
        """Raise ``SettingsError`` for a network that the method cannot train; the server asks before round 1.

        ``image_shape``: ``(C, H, W)``, or ``(C, H, W, Z)``. ``model`` is as :meth:`adapt` receives it.
        """

    def adapt(self, model: ExtractorClassifier, image_shape: tuple[int, ...], seed: int) -> ExtractorClassifier:
        """Return the network that the method trains, made from ``model``, which may be changed.

        Most methods return ``model`` itself. ``image_shape``: ``(C, H, W)``, or ``(C, H, W, Z)``. Added parameters are
        initialised from ``seed`` alone.
        """
        return model

    # --- at the server ---

    def exchange(self, model: ExtractorClassifier, num_classes: int, num_sites: int = 1) -> Exchange | None:
        """Return the server side; None for a method without one. Only names and shapes of ``model`` are read.

        ``num_sites``: the number of sites that train in any round of the run.
        """
        return None

    def named(self, exchange: Exchange) -> Exchange:
        """Return a server side of this objective with the names of the objective and of its report."""
        exchange.name, exchange.report = self.name, self.report or exchange.report
        return exchange

    def hosted_exchange(self, head: str, shapes: Mapping[str, tuple[int, ...]]) -> Exchange:
        """Return the server side in a workflow of FLARE's own; asked for only if the method is :attr:`hosted`.

        Such a workflow knows a global model but neither network nor census, and has no task that precedes training.

        Args:
            head: dotted name of the network's head in the global model.
            shapes: of the head's trainable parameters, by their names in the global model; empty if it has none.

        Raises ``SettingsError`` if the method cannot read such a head, or has no such side.
        """
        raise SettingsError(f"objective {self.name!r} says that it is hosted, but has no hosted_exchange.")


def kept_state(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return the state of ``module`` for :meth:`LocalObjective.memory`; nothing if it could not be read again."""
    kept = to_report({name: value.clone() for name, value in module.state_dict().items()})
    return kept if readable(kept.values()) else {}


def device_of(model: torch.nn.Module) -> torch.device:
    """Return the device of the model's parameters."""
    return next(model.parameters()).device


@contextmanager
def evaluating(model: torch.nn.Module) -> Iterator[None]:
    """Put ``model`` into evaluation mode, without autocast; on exit, restore the mode of every module."""
    with evaluation_mode(model), torch.autocast(device_of(model).type, enabled=False):
        yield


def see(
    model: ExtractorClassifier, batches: Batches, task: Task = DEFAULT_TASK, size: int | None = None
) -> Iterator[FeatureBatch]:
    """Yield ``batches``, on the model's device, with features computed by ``model`` in its state at that moment.

    ``size``: the side in pixels of the images that the model is trained on, as :meth:`Task.logits` needs it.
    """
    for images, targets in batches:
        with evaluating(model), torch.no_grad():
            features = task.logits(model.features, images, size)
        yield FeatureBatch(images, features, targets, task)


def to_report(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return tensors as FLARE's encoder needs them: detached, contiguous, on the CPU."""
    return {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
