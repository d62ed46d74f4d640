# SPDX-License-Identifier: Apache-2.0
"""What a site minimises, what it reports beside its update, and where the server's half of the method comes from.

An :class:`Objective` is the settings of a method as one immutable value, the same at the server and at every site.
A site makes of it one :class:`LocalObjective` per round, the server one ``Exchange`` per run.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch

from fdg_plugins.errors import SettingsError
from fdg_plugins.methods.exchange import Exchange, Tensors
from fdg_plugins.models import ExtractorClassifier

Batches = Iterable[tuple[torch.Tensor, torch.Tensor]]


class LocalObjective(ABC):
    """What one site minimises in one round."""

    def prepare(self, model: ExtractorClassifier) -> None:  # noqa: B027 - most objectives train as the model is set
        """Set the model as the method trains it; called after ``model.train()``, before each epoch."""

    @abstractmethod
    def loss(self, model: ExtractorClassifier, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the loss of a batch, images ``[B, C, H, W]`` and labels ``[B]`` on the model's device, as a scalar.

        Called inside the site's autocast context.
        """


@dataclass(frozen=True)
class Objective(ABC):
    """The settings of a local objective, and its two halves. A subclass checks its settings on construction.

    ``report`` names what a site shares for it beside the update, as the site's administrator allows or forbids it.
    """

    name: ClassVar[str]
    report: ClassVar[str | None] = None

    @property
    def probes(self) -> bool:
        """Whether a task of its own comes before each round's training, which :meth:`report_received` answers."""
        return False

    def settings(self) -> dict[str, Any]:
        """Return name and settings, of which ``make_objective`` makes this objective again."""
        return {"name": self.name, **asdict(self)}

    # --- at a site ---

    @abstractmethod
    def local(self, received: Tensors, model: ExtractorClassifier) -> LocalObjective:
        """Return what the site minimises in this round, for ``model`` on the device where it trains.

        ``received`` is what the server sent beside the model, empty if there was nothing yet. Raises
        ``SettingsError`` if it does not fit.
        """

    def report_received(
        self, model: ExtractorClassifier, batches: Batches, num_classes: int
    ) -> dict[str, torch.Tensor]:
        """Return what the site reports of the model as received; empty for most methods.

        It is the answer to the probe task where :attr:`probes`, else it goes with the update. ``batches`` are the
        whole training split, un-augmented, on the model's device. The model keeps its parameters and modes.
        """
        return {}

    def report_trained(self, model: ExtractorClassifier, batches: Batches, num_classes: int) -> dict[str, torch.Tensor]:
        """Return what the site reports of its own model, with its update; else as :meth:`report_received`."""
        return {}

    # --- at the server ---

    def exchange(self, model: ExtractorClassifier, num_classes: int) -> Exchange | None:
        """Return the server's half; None for a method without. Of ``model`` only names and shapes are read."""
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


def to_report(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return tensors as FLARE's encoder needs them: plain, dense, contiguous, on the CPU."""
    return {name: value.detach().cpu().contiguous() for name, value in tensors.items()}


def check_number(name: str, value: Any, at_most: float = math.inf) -> None:
    """Raise ``SettingsError`` unless ``value`` is a finite number from 0 to ``at_most``."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or not 0 <= value <= at_most:
        wanted = "a finite number of at least 0" if at_most == math.inf else f"a number from 0 to {at_most}"
        raise SettingsError(f"{name} is {value!r}, expected {wanted}.")


def check_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    """Raise ``SettingsError`` unless ``value`` is one of ``choices``."""
    if not isinstance(value, str) or value not in choices:
        raise SettingsError(f"{name} is {value!r}, expected one of {', '.join(sorted(choices))}.")
