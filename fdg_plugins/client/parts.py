# SPDX-License-Identifier: Apache-2.0
"""The site's half of FedDIM and FedIIR for a training loop of the user's own: a penalty for the loss, and a report.

In every round: :meth:`SitePart.begin` with the model received, :meth:`penalty` once after each forward pass, and
:meth:`SitePart.report` after training, whose tensors go into the answer.

Shapes: features ``[B, D]``, the inputs of the head; labels ``[B]``; the head's weight ``[Y, D]``.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, get_args

import torch
from nvflare.app_common.abstract.fl_model import FLModel

from fdg_plugins.client.answers import checked_batches
from fdg_plugins.core.alignment import gradient_alignment_penalty
from fdg_plugins.core.insight import GlobalInsight
from fdg_plugins.errors import SettingsError, check_choice
from fdg_plugins.messages import META_RECEIVED
from fdg_plugins.methods.feddim import LocalInsight, Target, local_insight, means_report, read_insight
from fdg_plugins.methods.fediir import GRADIENT, gradient_report, read_gradient
from fdg_plugins.objectives.exchange import PayloadValidator
from fdg_plugins.objectives.objective import FeatureBatch, device_of, evaluating
from fdg_plugins.training.loop import Batches


class SitePart(ABC):
    """The site's half of a method with reports, kept by the script for all rounds.

    The head computes the logits and is the last part of the network. Its inputs are read by a hook on each forward
    pass, so the network needs no method that returns features.

    Args:
        model: the network.
        head: dotted name of the head within it: ``"fc"``, ``"net.classifier"``. The server needs the same name.
    """

    def __init__(self, model: torch.nn.Module, head: str) -> None:
        self.model = model
        self.head_name = head
        if not head or (found := dict(model.named_modules()).get(head)) is None:
            raise SettingsError(field="head", value=head, expected="the dotted name of a module of the model")
        self.head = found
        self._features: torch.Tensor | None = None
        self.head.register_forward_pre_hook(self._keep_features)

    @abstractmethod
    def begin(self, received: FLModel, batches: Batches) -> None:
        """Read what the server sent with the model; called before the first step, with that model loaded.

        ``batches``: the training split without augmentation, pairs of images and labels, at least one. Raises
        ``SettingsError`` if the server's tensors do not fit the head.
        """

    @abstractmethod
    def report(self, batches: Batches) -> dict[str, torch.Tensor]:
        """Return the tensors to report, after training. ``batches``: as for :meth:`begin`; read once."""

    @property
    def features(self) -> torch.Tensor:
        """The inputs ``[B, D]`` of the head in the last forward pass."""
        if self._features is None:
            raise SettingsError(f"no batch has passed through the head {self.head_name!r}, expected one before this.")
        return self._features

    def _keep_features(self, _module: torch.nn.Module, inputs: tuple[Any, ...]) -> None:
        self._features = inputs[0]

    def _seen(self, batches: Batches) -> Iterator[FeatureBatch]:
        """Yield ``batches`` with their features, by the model as it is, in evaluation mode and without a graph.

        Raises ``SettingsError`` without any batch: a report of none would count as one of zeros.
        """
        for images, labels in checked_batches(batches, "train"):
            device = device_of(self.model)
            with evaluating(self.model), torch.no_grad():
                self.model(images.to(device))
            yield FeatureBatch(images, self.features, labels.to(device))


class ClassInsight(SitePart):
    """FedDIM: draws each sample's insight, features times head weights, to the mean of its class over the sites.

    Args:
        model: the network.
        head: dotted name of its last linear layer.
        target: what is drawn together: ``"insight"`` (FedDIM), ``"feature"`` or ``"logit"``; as at the server.
    """

    def __init__(self, model: torch.nn.Module, head: str, target: Target = "insight") -> None:
        super().__init__(model, head)
        check_choice("target", target, get_args(Target))
        if not isinstance(self.head, torch.nn.Linear):
            raise SettingsError(field="head", value=head, expected="the name of a linear layer")
        self.linear: torch.nn.Linear = self.head
        self.target: Target = target
        self._insight: LocalInsight | None = None

    def begin(self, received: FLModel, batches: Batches = ()) -> None:
        """Read the global insight, which the server has from its second round on; ``batches`` are not read."""
        tensors = _received(received)
        if not tensors:
            self._insight = None
            return
        found = read_insight(
            PayloadValidator("sent for FedDIM", SettingsError), tensors, self.target, *self.linear.weight.shape
        )
        device = self.linear.weight.device
        on_device = GlobalInsight(found.values.to(device), found.present.to(device))
        self._insight = local_insight(1.0, self.target, on_device)

    def penalty(self, labels: torch.Tensor) -> torch.Tensor:
        """Return ``1/B sum_i |I_i - J^(y_i)|^2`` of the batch that has just passed, a scalar; 0 without an insight.

        To be multiplied by the strength lambda and added to the mean cross entropy.
        """
        if self._insight is None:
            return torch.zeros((), device=labels.device)
        return self._insight.penalty(self.features, labels, self.linear.weight)

    def report(self, batches: Batches) -> dict[str, torch.Tensor]:
        """Return the mean features ``[K, D]`` of the K classes held, by the trained model, and the counts ``[Y]``."""
        samples = ((batch.features, batch.targets) for batch in self._seen(batches))
        return means_report(samples, self.linear.out_features, self.linear.weight)


class GradientAlignment(SitePart):
    """FedIIR: draws the gradient of each batch with respect to the head to the mean gradient over the sites.

    The gradient reported is that of the model as received; the server uses it one round later (``probe:
    "previous_round"``), because FLARE's own workflows ask nothing before training.

    Args:
        model: the network.
        head: dotted name of its classifier, a layer or several.
    """

    def __init__(self, model: torch.nn.Module, head: str) -> None:
        super().__init__(model, head)
        self.parameters = {f"{head}.{name}": one for name, one in self.head.named_parameters()}
        self._mean: Mapping[str, torch.Tensor] = {}
        self._own: dict[str, torch.Tensor] = {}

    def begin(self, received: FLModel, batches: Batches) -> None:
        """Read the mean gradient, and compute the site's own gradient over ``batches``."""
        tensors, self._mean = _received(received), {}
        if tensors:
            shapes = {name: tuple(one.shape) for name, one in self.parameters.items()}
            found = read_gradient(PayloadValidator("sent for FedIIR", SettingsError), tensors, shapes)
            self._mean = {name: found[GRADIENT + name].to(one.device) for name, one in self.parameters.items()}
        with evaluating(self.model):
            self._own = gradient_report(self.head, self.parameters, self._seen(batches))

    def penalty(self, loss: torch.Tensor) -> torch.Tensor:
        """Return ``|grad_omega loss - g|^2`` for the mean loss of a batch, a scalar; 0 before g is known.

        To be multiplied by gamma/2 and added to ``loss``. The graph of ``loss`` is kept, for ``backward``.
        """
        if not self._mean:
            return torch.zeros((), device=loss.device)
        return gradient_alignment_penalty(loss, self.parameters, self._mean)

    def report(self, batches: Batches = ()) -> dict[str, torch.Tensor]:
        """Return the gradient that :meth:`begin` computed, by the parameters' names; ``batches`` are not read."""
        return dict(self._own)


def _received(received: FLModel) -> Mapping[str, Any]:
    tensors: Mapping[str, Any] = (received.meta or {}).get(META_RECEIVED) or {}
    return tensors
