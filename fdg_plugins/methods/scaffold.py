# SPDX-License-Identifier: Apache-2.0
"""SCAFFOLD: each step of a site is corrected by the difference between its own gradient and that of all sites.

Equations, with c the server's control variate and c_u the site's: the step -> :class:`LocalControlVariates`,
:func:`correct_gradients`; option II, whose change the site sends -> :func:`control_change`; the mean over all N sites
-> :class:`ControlExchange`.

Shapes: c and c_u by the trainable parameters' names in the state dict, each of its parameter's shape, with the sign and
the scale of a gradient.

Participation: c and all c_u start at zero; while c is zero, a site's first round is FedAvg's, bit for bit. An absent
site keeps its c_u, and after every round c is the mean of c_u over all N sites. This invariant requires that the server
accepts every report of a site that trained. A report that is refused or lost, also because the round had too few usable
updates, has changed c_u but not c. A round that the server repeats is safe: a site then starts from its earlier c_u.

Buffers: averaged as under FedAvg; c does not include them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

from fdg_plugins.core.linear import combine
from fdg_plugins.errors import SettingsError
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives.erm import LocalRisk
from fdg_plugins.objectives.exchange import (
    Exchange,
    PayloadValidator,
    Shapes,
    SiteReport,
    Tensors,
    parameter_shapes,
    readable,
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
from fdg_plugins.settings.protocol import Protocol

ROUNDED = 2.0**-7  # of a value: an update may have been rounded to bfloat16 after its control was computed
FLOAT_SLACK = 1e-5  # of a value: float32 sums in another order
TINY = 1e-12


@dataclass(frozen=True)
class SCAFFOLDObjective(Objective):
    """Cross entropy, with steps corrected by control variates. It has no settings."""

    name = "scaffold"
    acts = ("step",)
    neutral = {}
    neutral_when_received = False
    report = "control_variate"
    needs_shared = "everything"
    reads_step_lengths = True

    def check(self, protocol: Protocol) -> None:
        if protocol.enable_tensor_disk_offload:
            raise SettingsError(field="enable_tensor_disk_offload", value=True, expected=f"false for {self.name!r}")

    def local(self, received: Tensors, model: ExtractorClassifier, site: SiteRound = SiteRound()) -> LocalObjective:
        shapes = parameter_shapes(model)
        server = self.payload_validator().per_parameter(received, shapes) if received else zeros(shapes)
        own = site.memory or zeros(shapes)
        correction: dict[str, torch.Tensor] = {}
        if received or site.memory:
            parameters = dict(model.named_parameters())
            correction = {name: (server[name] - own[name]).to(parameters[name].device) for name in shapes}
        return LocalControlVariates(server, own, correction, site.learning_rate, task=site.task)

    def exchange(self, model: ExtractorClassifier, num_classes: int, num_sites: int = 1) -> Exchange:
        return ControlExchange(parameter_shapes(model), num_sites)


@dataclass(frozen=True)
class LocalControlVariates(LocalRisk):
    """The task's loss with steps along ``grad CE + c - c_u``.

    ``server``, ``own``: c and c_u by name, float32 on the CPU. ``correction``: their difference on the model's device;
    empty if both are zero.
    """

    server: Tensors
    own: Tensors
    correction: Tensors
    learning_rate: float

    def step(
        self, model: ExtractorClassifier, compute_gradients: ComputeGradients, optimizer: torch.optim.Optimizer
    ) -> torch.Tensor:
        loss = compute_gradients()
        correct_gradients(model, self.correction)
        optimizer.step()
        return loss

    def report(self, trained: Trained) -> dict[str, torch.Tensor]:
        return to_report(self._change(trained))

    def memory(self, trained: Trained) -> dict[str, torch.Tensor]:
        """Return ``c_u+``, float32, by name; c_u unchanged if the change, or the result, could not be read again.

        A round that ends in NaN therefore does not exclude the site from all later rounds.
        """
        change = self._change(trained)
        moved = {name: value + change[name] for name, value in self.own.items()}
        return to_report(moved if readable(change.values()) and readable(moved.values()) else self.own)

    def _change(self, trained: Trained) -> dict[str, torch.Tensor]:
        return control_change(trained.update, self.server, self.learning_rate * trained.effective_steps)


@torch.no_grad()
def correct_gradients(model: nn.Module, correction: Tensors) -> None:
    """Add ``c - c_u`` to the gradients of ``model``, by name; a missing gradient counts as zero.

    An empty correction leaves the gradients unchanged, bit for bit.
    """
    for name, parameter in model.named_parameters():
        if name not in correction or not parameter.requires_grad:
            continue
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        parameter.grad.add_(correction[name])


def control_change(update: Tensors, server: Tensors, length: float) -> dict[str, torch.Tensor]:
    """Return ``c_u+ - c_u = -(c + Delta_u / length)``, float32, by the names of c; ``length`` is ``eta_u a_u``.

    The change does not depend on c_u, so server and site add exactly the same numbers.
    """
    return {name: -(control + update[name].float() / length) for name, control in server.items()}


def zeros(shapes: Shapes) -> dict[str, torch.Tensor]:
    """Return a control variate of zeros, float32, by name."""
    return {name: torch.zeros(tuple(shape)) for name, shape in shapes.items()}


class ControlExchange(Exchange):
    """The server side of SCAFFOLD: receives the changes of the control variates of N sites, and broadcasts c."""

    def __init__(self, shapes: Shapes, num_sites: int) -> None:
        super().__init__(num_sites=num_sites)
        self.shapes = {name: tuple(shape) for name, shape in sorted(shapes.items())}
        self.num_sites = num_sites

    def read_report(self, validator: PayloadValidator, report: SiteReport) -> dict[str, torch.Tensor]:
        change, facts = validator.per_parameter(report.content, self.shapes), report.facts
        if facts is None:
            return change
        control = self.learned or zeros(self.shapes)
        for name, shape in self.shapes.items():
            missing = f"the change of {name!r} came without its update, expected both"
            moved = validator.update_of(name, report.update, shape, missing) / (
                facts.learning_rate * facts.effective_steps
            )
            slack = ROUNDED * moved.abs() + FLOAT_SLACK * control[name].abs()
            if not bool(((change[name] + control[name] + moved).abs() <= slack + TINY).all()):
                validator.refuse(
                    f"the change of {name!r} does not follow from its update, expected -(c + update / length)"
                )
        return change

    def learn(self, reports: Mapping[str, Tensors]) -> dict[str, torch.Tensor]:
        """Return ``c + 1/N sum_S (c_u+ - c_u)``, summed in float64, by name."""
        control = self.learned or zeros(self.shapes)
        factors = torch.tensor([1.0, *[1 / self.num_sites] * len(reports)], dtype=torch.float64)
        return {
            name: combine(factors, [control[name], *(change[name] for change in reports.values())])
            for name in self.shapes
        }


METHOD = method.Method(
    key="scaffold",
    title="SCAFFOLD",
    rank=9,
    line="each step of a site is corrected by how its own gradient differs from that of all sites",
    reference=method.Reference(
        "Karimireddy, Kale, Mohri, Reddi, Stich, Suresh",
        "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning",
        "ICML",
        2020,
    ),
    classes=(SCAFFOLDObjective,),
    defaults=(
        method.Default(
            protocol={"momentum": 0.0, "keep_momentum": False},
            server={"server_lr": 1.0, "weighting": "uniform"},
            source="SCAFFOLD, Algorithm 1: plain SGD, every site the same",
        ),
        method.SGD_ON_SEGMENTATION,
    ),
    letters=(
        "Δᵤ update of site u (local − global); ηᵤ its learning rate; aᵤ how far its steps went (its "
        "number of steps, for plain SGD); cᵤ its control variate; c the server's; S sites of the round; N "
        "all sites that train in the run; CE mean cross entropy of a batch"
    ),
    equations=(
        method.Equation("g = grad CE + c − cᵤ", "gradient of a local step, c and cᵤ being fixed for the round"),
        method.Equation(
            "cᵤ⁺ = cᵤ − c − Δᵤ / (ηᵤ aᵤ)",
            "the mean gradient along the way, after the training; cᵤ⁺ − cᵤ is sent, cᵤ⁺ stays at the site",
            number="option II",
        ),
        method.Equation("c⁺ = c + 1/N Σ_S (cᵤ⁺ − cᵤ)", "at the server; c and all cᵤ are zero at the start"),
    ),
    differences=method.Differences(
        compared="FedDG-GA",
        rows=(
            method.Difference("option", paper="I, the gradient at the model received, or II", code="II", ours="II"),
            method.Difference(
                "control of a site",
                paper="update over learning rate times steps",
                code="without the learning rate: at 1e-3 a thousand times too small, nearly FedAvg",
                ours="as the paper",
            ),
            method.Difference(
                "momentum",
                paper="none",
                code="0.9, on the corrected gradient",
                ours="the protocol's; with it aᵤ is FedNova's number of effective steps",
            ),
            method.Difference(
                "c at the server",
                paper="mean of the changes, times the share of sites in the round",
                code="mean of cᵤ with the weights of the sites",
                ours="as the paper, under any weights",
            ),
        ),
    ),
    leaves=(
        method.Leaving(
            "change of the control variate",
            "the trainable parameters",
            "the update, exactly, whatever a filter did to the update itself",
            report="control_variate",
        ),
    ),
    combined={
        "fedga": (
            "reported in FedDG-GA's paper (Tables 1 and 2), whose code weighs the controls as well, "
            "which is not done here"
        ),
    },
)
