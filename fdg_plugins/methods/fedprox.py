# SPDX-License-Identifier: Apache-2.0
"""FedProx: a penalty on the squared distance keeps a site's parameters near those it received.

Equation: ``CE + mu/2 |theta_u - theta|^2`` -> :class:`LocalProximal`, over the trainable parameters.

Shapes: theta and theta_u have each parameter's own shape; the term is a scalar.

Participation, buffers: as under FedAvg; nothing is exchanged or kept. The term does not include buffers.

Degenerate cases: ``mu = 0`` is FedAvg. A site that takes a single step takes FedAvg's for any mu, because the gradient
of the term is zero at theta.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from fdg_plugins.core.linear import squared_norm
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives.erm import LocalRisk
from fdg_plugins.objectives.exchange import Tensors
from fdg_plugins.objectives.objective import ComputeGradients, LocalObjective, Objective, SiteRound
from fdg_plugins.plugins import method
from fdg_plugins.plugins.fields import NotNegative


@dataclass(frozen=True)
class FedProxObjective(Objective):
    """Cross entropy plus the squared distance of the parameters from those received."""

    name = "prox"
    acts = ("step",)
    changes_effective_steps = True
    neutral = {"strength": 0}

    strength: NotNegative = 0.01

    def local(self, received: Tensors, model: ExtractorClassifier, site: SiteRound = SiteRound()) -> LocalObjective:
        if self.strength == 0:
            return LocalRisk(task=site.task)
        received_parameters = tuple(parameter.detach().clone() for parameter in model.parameters())
        return LocalProximal(self.strength, received_parameters, task=site.task)


@dataclass(frozen=True)
class LocalProximal(LocalRisk):
    """Steps along the gradient of ``CE + mu/2 |theta_u - theta|^2``, of which :meth:`loss` is CE alone.

    ``received``: theta, in the order of the model's parameters.
    """

    strength: float
    received: tuple[torch.Tensor, ...]

    def step(
        self, model: ExtractorClassifier, compute_gradients: ComputeGradients, optimizer: torch.optim.Optimizer
    ) -> torch.Tensor:
        """Take one step; return the penalised loss of the batch before it.

        The term's gradient is known in closed form. Backpropagation through the term would cost a CPU more than a step.
        """
        risk = compute_gradients()
        term = add_proximal_gradients(model.parameters(), self.received, self.strength)
        optimizer.step()
        return risk + self.strength * term


@torch.no_grad()
def add_proximal_gradients(
    parameters: Iterable[torch.Tensor], received: Iterable[torch.Tensor], strength: float
) -> torch.Tensor:
    """Add ``mu (theta_u - theta)`` to the gradients of ``parameters``; return ``1/2 |theta_u - theta|^2``, float32.

    ``received``: theta, in the order of ``parameters``. A parameter without a gradient is not trained, nor counted.
    """
    trained = [(own, own.grad, other) for own, other in zip(parameters, received, strict=True) if own.grad is not None]
    own, gradients, fixed = (list(tensors) for tensors in zip(*trained, strict=True))
    differences = torch._foreach_sub(own, fixed)
    torch._foreach_add_(gradients, differences, alpha=strength)
    return (0.5 * squared_norm(differences)).float()


METHOD = method.Method(
    key="fedprox",
    title="FedProx",
    rank=6,
    line="each site's parameters are held near those it received",
    reference=method.Reference(
        "Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith", "Federated Optimization in Heterogeneous Networks", "MLSys", 2020
    ),
    classes=(FedProxObjective,),
    defaults=(
        method.Default(objective={"strength": 0.01}, source="FLARE's FedProx"),
        method.Default(on="photographs", objective={"strength": 0.1}, source="FedDG-GA's code"),
    ),
    letters=("θ parameters received, trainable ones; θᵤ those of site u; CE mean cross entropy of a batch; μ strength"),
    equations=(method.Equation("CE + μ/2 ‖θᵤ − θ‖²", "what a site minimises, θ being fixed for the round"),),
    settings=(
        method.SettingSource(
            "strength",
            symbol="μ",
            paper="of FedProx: not established; FedDIM, which compares with it: not stated",
            code="FedDG-GA 0.1; FLARE 0.01; PFLlib 0; FedDG benchmark: grid 1e-3, 1e-2, 1e-1",
            remark="0 is FedAvg, bit for bit",
        ),
    ),
    differences=method.Differences(
        compared="FedDG-GA, FedDG benchmark",
        rows=(
            method.Difference(
                "the term",
                paper="μ/2 times the squared norm of all parameters together",
                code=(
                    "FedDG-GA: its gradient, in the momentum buffer, which is the same; FedDG benchmark: norms of the "
                    "tensors, not squared, which is another method"
                ),
                ours="as the paper; its gradient μ (θᵤ − θ) is added to that of the loss",
            ),
        ),
    ),
    combined={"fedga": "reported in FedDG-GA's paper (Tables 1 and 2)"},
)
