# SPDX-License-Identifier: Apache-2.0
"""FedLGF: predictions are drawn to those of heads that are perturbed against them, the own and the global one.

Equations: the record below, as the authors' code has them -> :class:`LocalFlatness`; the mathematics is in
``fdg_plugins.core.flatness``. The global head reads the features of the extractor as received; targets are constants.

Shapes: features ``[B, D]``, predictions ``[B, Y]``.

Participation, buffers: as under FedAvg; nothing is exchanged or kept. The model as received is in evaluation mode.
"""

import copy
from dataclasses import dataclass
from typing import Literal

import torch

from fdg_plugins.core.flatness import Kind, Perturbed, adversarial_predictions, divergence_from
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives.erm import LocalRisk
from fdg_plugins.objectives.exchange import Tensors
from fdg_plugins.objectives.objective import LocalObjective, Objective, SiteRound
from fdg_plugins.plugins import method
from fdg_plugins.plugins.fields import NotNegative, Positive
from fdg_plugins.randomness import torch_generator

Noise = Literal["normal", "uniform"]


@dataclass(frozen=True)
class FedLGFObjective(Objective):
    """Cross entropy, and the divergence from the predictions of perturbed heads."""

    name = "lgf"
    needs_labelled_images = True
    neutral = {"local_strength": 0, "global_strength": 0}

    local_strength: NotNegative = 0.1
    global_strength: NotNegative = 0.1
    perturbation: Kind = "singular"
    probing: Positive = 10.0
    size: NotNegative = 0.1
    noise: Noise = "normal"

    def local(self, received: Tensors, model: ExtractorClassifier, site: SiteRound = SiteRound()) -> LocalObjective:
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
        kept = copy.deepcopy(model).eval().requires_grad_(False)
        return cls(kept, Perturbed.of(kept.classifier, kind))

    def features(self, images: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return self.model.features(images)


@dataclass(frozen=True)
class LocalFlatness(LocalRisk):
    """One round of FedLGF; ``received``: None if its term has no weight. Divergences are always computed in float32."""

    settings: FedLGFObjective
    received: GlobalModel | None
    generator: torch.Generator

    def loss(self, model: ExtractorClassifier, images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
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


METHOD = method.Method(
    key="fedlgf",
    title="FedLGF",
    rank=21,
    line=("predictions are drawn to those of heads that are perturbed against them, the own and the global one"),
    reference=method.Reference(
        "Yan, Guo", "Local and Global Flatness for Federated Domain Generalization", "ECCV", 2024
    ),
    classes=(FedLGFObjective,),
    defaults=(
        method.Default(server={"server_lr": 1.0, "weighting": "uniform"}, source="FedLGF's code"),
        method.Default(
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
        "p predictions [Y] of the model that is trained; h a head, the current or the received one, on "
        "the features of its own extractor; p_h its predictions; W = U diag(S) V' a weight of its linear "
        "layers; δ perturbation; s₀ probing; s₁ size; λ_l local_strength; λ_g global_strength"
    ),
    equations=(
        method.Equation(
            "singular: U diag(relu(S + s δ)) V',   weight: W + s δ",
            "a head perturbed by s; |δ| = 1 for the singular values of a layer, or for each row of a weight",
        ),
        method.Equation(
            "δ̂ = ∇_δ KL(p ‖ p_h(s₀ δ₀)), of length 1",
            "δ₀ random, of length 1: the direction in which predictions depart most from p",
        ),
        method.Equation("q = p_h(s₁ δ̂)", "target: q_l of the current head, q_g of the received; constant"),
        method.Equation("CE + λ_l KL(q_l ‖ p) + λ_g KL(q_g ‖ p)", "what a site minimises"),
    ),
    settings=(
        method.SettingSource(
            "local_strength",
            symbol="λ_l",
            code="0.1",
            remark="factor of the divergence from the current head's predictions",
        ),
        method.SettingSource(
            "global_strength",
            symbol="λ_g",
            code="0.1",
            remark="the same of the received head's; both strengths 0 are FedAvg, bit for bit",
        ),
        method.SettingSource(
            "perturbation",
            paper="weights and singular values",
            code="singular in the README's run",
            remark="of the weights' singular values, or of each weight",
        ),
        method.SettingSource(
            "probing",
            symbol="s₀",
            code="10; weight: 0.1",
            remark="length of the random perturbation at which the gradient is taken",
        ),
        method.SettingSource(
            "size",
            symbol="s₁",
            code="0.1; weight: 0.01",
            remark="length of the perturbation of the targets; 0: they are p_h",
        ),
        method.SettingSource(
            "noise",
            code="normal; weight: uniform on [-0.5, 0.5)",
            remark="the random perturbation before it is scaled",
        ),
    ),
    differences=method.Differences(
        rows=(
            method.Difference(
                "BatchNorm",
                code="frozen",
                ours="batch_norm of the protocol; the received model is used in evaluation mode",
            ),
            method.Difference(
                "initial weights of the head",
                code="Kaiming normal, standard deviation √(2/D) for D inputs",
                ours="torch's, uniform, standard deviation √(1/3D), as for every method",
            ),
        )
    ),
)
