# SPDX-License-Identifier: Apache-2.0
"""MoFedSAM: each local step mixes the sharpness-aware gradient with the mean descent of the previous round.

Equations: the step -> :class:`LocalMomentumSharpnessAware`, :func:`mix_gradients`; the mean descent
``m = - mean_u Delta_u / (tau_u eta_u)``, zero in round 0 -> :class:`MomentumExchange`.

Shapes: m by the trainable parameters' names in the state dict, each of its parameter's shape, with the sign and the
scale of a gradient; ``tau_u eta_u`` is ``[1]``, a length in parameters per unit gradient.

Participation: m is the mean over the sites whose updates were used, with equal weights. An absent site does not enter;
a new site receives the m of the others. In round 0 a step is FedSAM's times beta. A round without usable reports leaves
m unchanged.

Buffers: averaged as under FedAvg; m does not include them.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import torch
from pydantic import Field
from torch import nn

from fdg_plugins.core.linear import combine
from fdg_plugins.core.moved_gradients import sharpness_aware_gradients
from fdg_plugins.errors import SettingsError
from fdg_plugins.methods.fedsam import LocalSharpnessAware
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives.exchange import (
    LARGEST_VALUE,
    Exchange,
    PayloadValidator,
    Shapes,
    SiteReport,
    Tensors,
    parameter_shapes,
)
from fdg_plugins.objectives.objective import (
    ComputeGradients,
    LocalObjective,
    Objective,
    SiteRound,
    Trained,
    to_report,
)
from fdg_plugins.plugins import method
from fdg_plugins.plugins.fields import NotNegative
from fdg_plugins.settings.protocol import Protocol

STEP_LENGTH = "step_length"
FLOAT32_STEP = 2.0**-22  # relative: the length is sent as float32


@dataclass(frozen=True)
class MoFedSAMObjective(Objective):
    """Cross entropy, with steps that mix the sharpness-aware gradient with the descent of the previous round."""

    name = "mosam"
    acts = ("step",)
    neutral = {"radius": 0, "beta": 1}
    report = STEP_LENGTH
    needs_shared = "everything"
    reads_step_lengths = True

    radius: NotNegative = 0.05
    beta: Annotated[float, Field(gt=0, le=1)] = 0.6

    def check(self, protocol: Protocol) -> None:
        if protocol.momentum:
            raise SettingsError(field="momentum", value=protocol.momentum, expected=f"0 for objective {self.name!r}")
        if protocol.enable_tensor_disk_offload:
            raise SettingsError(field="enable_tensor_disk_offload", value=True, expected=f"false for {self.name!r}")

    def local(self, received: Tensors, model: ExtractorClassifier, site: SiteRound = SiteRound()) -> LocalObjective:
        parameters = dict(model.named_parameters())
        validator = self.payload_validator()
        momentum = validator.per_parameter(received, parameter_shapes(model)) if received else {}
        on_device = {name: value.to(parameters[name].device) for name, value in momentum.items()}
        return LocalMomentumSharpnessAware(self.radius, self.beta, on_device, site.learning_rate, task=site.task)

    def exchange(self, model: ExtractorClassifier, num_classes: int, num_sites: int = 1) -> Exchange:
        return MomentumExchange(parameter_shapes(model))


@dataclass(frozen=True)
class LocalMomentumSharpnessAware(LocalSharpnessAware):
    """FedSAM's loss with ``beta g~ + (1 - beta) m`` in place of g~; an empty m counts as zero."""

    beta: float
    momentum: Tensors
    learning_rate: float

    def step(
        self, model: ExtractorClassifier, compute_gradients: ComputeGradients, optimizer: torch.optim.Optimizer
    ) -> torch.Tensor:
        loss = sharpness_aware_gradients(model, compute_gradients, self.radius)
        mix_gradients(model, self.momentum, self.beta)
        optimizer.step()
        return loss

    def report(self, trained: Trained) -> dict[str, torch.Tensor]:
        length = trained.steps * self.learning_rate
        return to_report({STEP_LENGTH: torch.tensor([length], dtype=torch.float32)})


@torch.no_grad()
def mix_gradients(model: nn.Module, momentum: Tensors, beta: float) -> None:
    """Replace each gradient g of ``model`` by ``beta g + (1 - beta) m``; m by name, or empty for zero.

    ``beta = 1`` leaves the gradients unchanged, bit for bit.
    """
    if beta == 1:
        return
    for name, parameter in model.named_parameters():
        if parameter.grad is None:
            continue
        parameter.grad.mul_(beta)
        if momentum:
            parameter.grad.add_(momentum[name], alpha=1 - beta)


class SiteDescent(NamedTuple):
    """A checked report: the update of the trainable parameters, by name, and ``tau_u eta_u`` > 0."""

    update: Tensors
    step_length: float


class MomentumExchange(Exchange):
    """The server side of MoFedSAM: receives updates and step lengths, and broadcasts m."""

    def __init__(self, shapes: Shapes) -> None:
        super().__init__()
        self.shapes = {name: tuple(shape) for name, shape in sorted(shapes.items())}

    def read_report(self, validator: PayloadValidator, report: SiteReport) -> SiteDescent:
        """Return the update and the step length, which must be the protocol's."""
        sent = validator.fields(report.content, (STEP_LENGTH,))
        length = float(validator.numbers(STEP_LENGTH, sent[STEP_LENGTH], (1,)))
        if length <= 0:
            validator.refuse(f"{STEP_LENGTH!r} is {length:g}, expected a number above 0")
        facts = report.facts
        expected = length if facts is None else facts.steps * facts.learning_rate
        if not math.isclose(length, expected, rel_tol=FLOAT32_STEP):
            validator.refuse(f"{STEP_LENGTH!r} is {length:g}, expected {expected:g} under this protocol")
        missing = f"{STEP_LENGTH!r} came without an update of"
        moved = {
            name: validator.update_of(name, report.update, shape, f"{missing} {name!r}")
            for name, shape in self.shapes.items()
        }
        if max(float(value.abs().max()) for value in moved.values()) / length > LARGEST_VALUE:
            validator.refuse(f"the update over {STEP_LENGTH!r} has values beyond {LARGEST_VALUE:g}")
        return SiteDescent(moved, length)

    def learn(self, reports: Mapping[str, SiteDescent]) -> dict[str, torch.Tensor]:
        """Return ``m = - mean_u Delta_u / (tau_u eta_u)``, by name, summed in float64."""
        sites = list(reports.values())
        coefficients = torch.tensor([-1 / (len(sites) * site.step_length) for site in sites], dtype=torch.float64)
        return {name: combine(coefficients, [site.update[name] for site in sites]) for name in self.shapes}


METHOD = method.Method(
    key="mofedsam",
    title="MoFedSAM",
    rank=8,
    line="FedSAM's gradient in each local step, mixed with what all sites did in the last round",
    reference=method.Reference(
        "Qu, Li, Duan, Liu, Tang, Lu", "Generalized Federated Learning via Sharpness Aware Minimization", "ICML", 2022
    ),
    classes=(MoFedSAMObjective,),
    defaults=(
        method.Default(protocol={"momentum": 0.0, "keep_momentum": False}, source="MoFedSAM, stated for plain SGD"),
        method.SGD_ON_SEGMENTATION,
        method.Default(objective={"radius": 0.05}, source="ours: as FedSAM's; from scratch, 0.6 stays at chance"),
        method.Default(objective={"beta": 0.6}, source="FedOMG, Table 4"),
        method.Default(on="photographs", objective={"radius": 0.6}, source="FedOMG, Table 4"),
    ),
    letters=(
        "θᵤ trainable parameters of site u; Δᵤ its update (local − global); τᵤ its steps; ηᵤ its learning "
        "rate; g̃ FedSAM's gradient; m mean descent of the last round; ρ radius; β beta"
    ),
    equations=(
        method.Equation(
            "θᵤ ← θᵤ − ηᵤ (β g̃ + (1 − β) m)",
            "local step, m being fixed for the round; weight decay is the optimiser's, beside it",
        ),
        method.Equation(
            "m ← − meanᵤ Δᵤ / (τᵤ ηᵤ)",
            "at the server, over the sites of the round, each counting the same; zero in the first round",
        ),
    ),
    settings=(
        method.SettingSource(
            "radius",
            symbol="ρ",
            paper="of MoFedSAM: not established; FedOMG's Table 4: 0.6",
            code="FL-Simulator: 0.1",
            remark="0 takes the plain gradient in place of g̃",
        ),
        method.SettingSource(
            "beta",
            symbol="β",
            paper="of MoFedSAM: not established; FedOMG's Table 4: 0.6, and that it is this beta is not established",
            code="FL-Simulator: 0.1 (named alpha); FedOMG: none",
            remark="share of the site's own gradient, above 0, at most 1, which is FedSAM, bit for bit",
        ),
    ),
    differences=method.Differences(
        compared="FL-Simulator, FedOMG",
        rows=(
            method.Difference(
                "momentum in FedOMG's rows",
                paper="a momentum parameter of 0.6 (FedOMG's Table 4)",
                code="FedOMG: plain SAM with SGD, momentum 0.9, no beta",
                ours="fedsam without and mofedsam with it",
            ),
            method.Difference(
                "momentum of the optimiser", code="FedOMG: 0.9", ours="refused: m would lose a gradient's scale"
            ),
            method.Difference(
                "weight decay",
                code="not established",
                ours=(
                    "the optimiser's; what it did is also part of m, so that at a constant gradient it counts 1/β times"
                ),
            ),
            method.Difference("clipping", code="the final gradient to norm 10, optional", ours="none"),
        ),
    ),
    leaves=(
        method.Leaving(
            "step length: steps times learning rate",
            "1 number",
            "nothing that steps and learning rate did not tell",
            report="step_length",
        ),
    ),
)
