# SPDX-License-Identifier: Apache-2.0
r"""FedLGF: predictions are drawn to those of heads that are perturbed against them, the own and the global one.

Terms of the authors' code -> here, with p the predictions of the model that is trained; the mathematics is in
``fdg_plugins.core.flatness``:

- q_l: predictions of the current head, perturbed against it, on the current features -> local flatness
- q_g: predictions of the head as received, perturbed away from p, on the features of the extractor as received
- ``CE + lambda_l KL(q_l || p) + lambda_g KL(q_g || p)``, q_l and q_g constant -> :class:`LocalFlatness`

Shapes: features ``[B, D]``, predictions ``[B, Y]``.

Participation: as under FedAvg; nothing is exchanged and nothing is kept between rounds.

Buffers: averaged as under FedAvg. The model as received is used in evaluation mode.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch

from fdg_plugins.core.flatness import Kind, Perturbed, adversarial_predictions, divergence_from
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives.erm import LocalRisk
from fdg_plugins.objectives.exchange import Tensors
from fdg_plugins.objectives.objective import LocalObjective, Objective, SiteRound
from fdg_plugins.plugins.fields import NotNegative, Positive
from fdg_plugins.plugins.method import Default, Difference, Differences, Equation, Method, Reference, SettingSource
from fdg_plugins.randomness import torch_generator

Noise = Literal["normal", "uniform"]


@dataclass(frozen=True)
class FedLGFObjective(Objective):
    """Cross entropy, and the divergence from the predictions of perturbed heads.

    Args:
        local_strength: lambda_l >= 0, factor of the divergence from the current head's predictions.
        global_strength: lambda_g >= 0, factor of the divergence from the received head's. With both 0 it is FedAvg, bit
            for bit.
        perturbation: what is perturbed: ``"singular"`` values of the weights, or each ``"weight"``.
        probing: s0 > 0, the length of the random perturbation at which the gradient is taken.
        size: s1 >= 0, the length of the perturbation of the targets.
        noise: the random perturbation before it is scaled: ``"normal"``, or ``"uniform"`` on [-0.5, 0.5).
    """

    name: ClassVar[str] = "lgf"
    needs_labelled_images: ClassVar[bool] = True
    neutral: ClassVar[Mapping[str, Any] | None] = {"local_strength": 0, "global_strength": 0}

    local_strength: NotNegative = 0.1
    global_strength: NotNegative = 0.1
    perturbation: Kind = "singular"
    probing: Positive = 10.0
    size: NotNegative = 0.1
    noise: Noise = "normal"

    def local(self, received: Tensors, model: ExtractorClassifier, site: SiteRound = SiteRound()) -> LocalObjective:
        self.refuse_payload(received)
        if self.local_strength == 0 and self.global_strength == 0:
            return LocalRisk(task=site.task)
        received_model = GlobalModel.of(model, self.perturbation) if self.global_strength else None
        generator = torch_generator(site.seed, site.site, site.number, self.name)
        return LocalFlatness(self, received_model, generator, task=site.task)


@dataclass(frozen=True)
class GlobalModel:
    """The model as received, and its head; both are constant."""

    model: ExtractorClassifier
    head: Perturbed

    @classmethod
    def of(cls, model: ExtractorClassifier, kind: Kind) -> "GlobalModel":
        """Return a copy of ``model`` in evaluation mode, without gradients."""
        kept = copy.deepcopy(model).eval().requires_grad_(False)
        return cls(kept, Perturbed.of(kept.classifier, kind))

    def features(self, images: torch.Tensor) -> torch.Tensor:
        """Return the features ``[B, D]`` of images ``[B, C, H, W]``, without a graph."""
        with torch.no_grad():
            return self.model.features(images)


@dataclass(frozen=True)
class LocalFlatness(LocalRisk):
    """One round of FedLGF.

    The divergences are computed in float32 even under autocast.

    Args:
        settings: of the method.
        received: the model as received; None if its term has no weight.
        generator: draws the random perturbations, on the CPU.
    """

    settings: FedLGFObjective
    received: GlobalModel | None
    generator: torch.Generator

    def loss(self, model: ExtractorClassifier, images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the loss of images ``[B, C, H, W]`` and labels ``[B]``, a scalar."""
        features = model.features(images)
        logits = model.classifier(features).float()
        loss = self.task.loss(logits, targets)
        if self.settings.local_strength:
            head = Perturbed.of(model.classifier, self.settings.perturbation)
            loss = loss + self.settings.local_strength * self._divergence(head, features, logits)
        if self.received is not None:
            divergence = self._divergence(self.received.head, self.received.features(images), logits)
            loss = loss + self.settings.global_strength * divergence
        return loss

    def _divergence(self, head: Perturbed, features: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        """Return ``KL(q || p)``, with q the predictions of ``head``, perturbed away from p, on ``features [B, D]``."""
        with torch.autocast(features.device.type, enabled=False):
            settings = self.settings
            dtype = next(iter(head.weights.values())).dtype
            p = logits.detach().softmax(dim=1).to(dtype)
            q = adversarial_predictions(head, features.to(dtype), p, self._draw, settings.probing, settings.size)
            return divergence_from(q.to(logits.dtype), logits)

    def _draw(self, shape: tuple[int, ...]) -> torch.Tensor:
        if self.settings.noise == "normal":
            return torch.randn(shape, generator=self.generator)
        return torch.rand(shape, generator=self.generator) - 0.5


METHOD = Method(
    key="fedlgf",
    title="FedLGF",
    part="lgf",
    line="predictions are drawn to those of heads that are perturbed against them, the own and the global one",
    reference=Reference(
        authors="Yan, Guo",
        title="Local and Global Flatness for Federated Domain Generalization",
        venue="ECCV",
        year=2024,
    ),
    classes=(FedLGFObjective,),
    defaults=(
        Default(server={"server_lr": 1.0, "weighting": "uniform"}, source="FedLGF's code"),
        Default(
            objective={
                "local_strength": 0.1,
                "global_strength": 0.1,
                "perturbation": "singular",
                "probing": 10.0,
                "size": 0.1,
                "noise": "normal",
            },
            source="the run in FedLGF's README",
        ),
    ),
    letters=(
        "p predictions [Y] of the model that is trained; h a head, the current or the received one, on the features of "
        "its own extractor; p_h its predictions; W = U diag(S) V' a weight of its linear layers; δ perturbation; s₀ "
        "probing; s₁ size; λ_l local_strength; λ_g global_strength"
    ),
    equations=(
        Equation(
            formula="singular: U diag(relu(S + s δ)) V',   weight: W + s δ",
            meaning="a head perturbed by s; |δ| = 1 for the singular values of a layer, or for each row of a weight",
        ),
        Equation(
            formula="δ̂ = ∇_δ KL(p ‖ p_h(s₀ δ₀)), of length 1",
            meaning="δ₀ random, of length 1: the direction in which predictions depart most from p",
        ),
        Equation(formula="q = p_h(s₁ δ̂)", meaning="target: q_l of the current head, q_g of the received; constant"),
        Equation(formula="CE + λ_l KL(q_l ‖ p) + λ_g KL(q_g ‖ p)", meaning="what a site minimises"),
    ),
    settings=(
        SettingSource(name="local_strength", symbol="λ_l", paper="not established", code="0.1"),
        SettingSource(
            name="global_strength",
            symbol="λ_g",
            paper="not established",
            code="0.1",
            remark="both strengths 0 are FedAvg, bit for bit",
        ),
        SettingSource(
            name="perturbation",
            paper="weights and singular values",
            code="singular in the README's run",
            remark="or weight",
        ),
        SettingSource(name="probing", symbol="s₀", paper="not established", code="10; weight: 0.1"),
        SettingSource(
            name="size", symbol="s₁", paper="not established", code="0.1; weight: 0.01", remark="0: the targets are p_h"
        ),
        SettingSource(name="noise", paper="not established", code="normal; weight: uniform on [-0.5, 0.5)"),
    ),
    differences=Differences(
        rows=(
            Difference(
                point="BatchNorm",
                code="frozen",
                ours="batch_norm of the protocol; the received model is used in evaluation mode",
            ),
            Difference(
                point="initial weights of the head",
                code="Kaiming normal, standard deviation √(2/D) for D inputs",
                ours="torch's, uniform, standard deviation √(1/3D), as for every method",
            ),
        )
    ),
)
