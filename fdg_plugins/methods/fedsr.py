# SPDX-License-Identifier: Apache-2.0
"""FedSR: features are sampled from a Gaussian that is kept short and close to a Gaussian of the class at the site.

Terms of the authors' code -> here; (m, s) are mean and scale of an image's features:

- ``z = m + s eps``, from which the head computes the logits -> :class:`GaussianLayer`
- CMI -> :class:`ClassReferences`; ``CE + a_L2 L2R + a_CMI CMI``, with L2R the mean length of z
  -> :meth:`LocalSimpleRepresentation.loss`

Shapes: features ``[B, D]``; m, s, z ``[B, D']``, here with D' = D, so that the classifier does not change; r_mu and
r_sigma ``[Y, D']``; C a scalar.

Participation: r_mu, r_sigma and C are personal: trained with the model by the same optimiser, kept by the site for its
next round, and never sent. A new site starts at (0, 1, 1). The row of a class that a site lacks has no gradient and
changes by weight decay only.

Numerics: s and softplus(r_sigma) are at least 1e-6. C is clamped to at least 1/128 after every step: ``-log C`` keeps
it positive, but its slope ``a_CMI D' / C`` would cause huge steps near zero.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import nn
from torch.nn.functional import softplus

from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives.erm import LocalRisk
from fdg_plugins.objectives.exchange import Tensors
from fdg_plugins.objectives.objective import (
    ComputeGradients,
    LocalObjective,
    Objective,
    SiteRound,
    Trained,
    kept_state,
)
from fdg_plugins.plugins import method
from fdg_plugins.plugins.fields import NotNegative
from fdg_plugins.randomness import on_device, seeded, torch_generator

SMALLEST_SCALE = 1e-6  # small, but its logarithm and its inverse square are moderate numbers in float32
SMALLEST_FACTOR = 1 / 128


class GaussianLayer(nn.Module):
    """Features ``[B, D]`` -> N(mean, scale^2) over ``[B, D']``, from one linear layer with ``2 D'`` outputs.

    The output of the layer is the mean, in both modes, so a network that contains it is deterministic. A method that
    trains on samples draws them from :meth:`distribution`.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, 2 * outputs)

    @property
    def out_features(self) -> int:
        return self.linear.out_features // 2

    def distribution(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return mean and scale, ``[B, D']`` each, of features ``[B, D]``, in the parameters' precision."""
        with torch.autocast(features.device.type, enabled=False):
            mean, raw = self.linear(features.to(self.linear.weight.dtype)).chunk(2, dim=1)
            return mean, positive(raw)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return self.distribution(features)[0]


def positive(raw: torch.Tensor) -> torch.Tensor:
    """Return ``softplus(raw) = log(1 + exp(raw))``, but at least ``SMALLEST_SCALE``, below which it has no gradient."""
    return softplus(raw).clamp_min(SMALLEST_SCALE)


@dataclass(frozen=True)
class FedSRObjective(Objective):
    """Cross entropy of sampled features, plus their length and their divergence from the class's Gaussian.

    With both factors zero, the sampling remains: FedAvg of a network with noise in its features.
    """

    name = "sr"
    acts = ("objective", "network")
    needs_labelled_images = True

    l2_strength: NotNegative = 0.01
    cmi_strength: NotNegative = 0.001

    def adapt(self, model: ExtractorClassifier, image_shape: tuple[int, ...], seed: int) -> ExtractorClassifier:
        with seeded(seed, self.name, "gaussian layer"):
            gaussian = GaussianLayer(model.feature_size, model.feature_size)
        head = model.classifier if isinstance(model.classifier, nn.Sequential) else [model.classifier]
        model.classifier = nn.Sequential(gaussian, *head)
        return model

    def local(self, received: Tensors, model: ExtractorClassifier, site: SiteRound = SiteRound()) -> LocalObjective:
        gaussian, _ = parts(model)
        references = ClassReferences(model.last_layer.out_features, gaussian.out_features)
        if site.memory:
            references.load_state_dict(dict(site.memory))
        generator = torch_generator(site.seed, site.site, site.number, self.name)
        on_device = references.to(gaussian.linear.weight.device)
        return LocalSimpleRepresentation(self, on_device, generator, task=site.task)


class ClassReferences(nn.Module):
    """The parameters that a site trains and keeps: a Gaussian ``[D']`` for each class, and the factor C of features."""

    def __init__(self, num_classes: int, size: int) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(num_classes, size))
        self.raw_scale = nn.Parameter(torch.ones(num_classes, size))
        self.factor = nn.Parameter(torch.ones(()))

    def divergence(self, mean: torch.Tensor, scale: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return CMI, the mean KL divergence over the batch from each sample's Gaussian to that of its class, a scalar.

        ``mean``, ``scale``: m and s, ``[B, D']`` each; ``labels [B]``.
        """
        m, s = self.factor * mean, self.factor * scale
        r_mu, r = self.mean[labels], positive(self.raw_scale)[labels]
        per_coordinate = torch.log(r / s) + (s.square() + (m - r_mu).square()) / (2 * r.square()) - 0.5
        return per_coordinate.sum(dim=1).mean()


@dataclass(frozen=True)
class LocalSimpleRepresentation(LocalRisk):
    """One round of FedSR. ``generator``, on the CPU, draws the noise. Penalties are float32, even under autocast."""

    settings: FedSRObjective
    references: ClassReferences
    generator: torch.Generator

    def parameters(self) -> Sequence[nn.Parameter]:
        return list(self.references.parameters())

    def loss(self, model: ExtractorClassifier, images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return ``CE + a_L2 L2R + a_CMI CMI`` of images ``[B, C, H, W]`` and labels ``[B]``, a scalar."""
        gaussian, head = parts(model)
        mean, scale = gaussian.distribution(model.features(images))
        noise = on_device(torch.randn(mean.shape, generator=self.generator), mean.device).to(mean.dtype)
        z = mean + scale * noise
        loss = self.task.loss(head(z).float(), targets)
        # A term with strength zero is not computed, because zero times infinity is not zero.
        if self.settings.l2_strength:
            loss = loss + self.settings.l2_strength * z.norm(dim=1).mean()
        if self.settings.cmi_strength:
            loss = loss + self.settings.cmi_strength * self.references.divergence(mean, scale, targets)
        return loss

    def step(
        self, model: ExtractorClassifier, compute_gradients: ComputeGradients, optimizer: torch.optim.Optimizer
    ) -> torch.Tensor:
        loss = super().step(model, compute_gradients, optimizer)
        with torch.no_grad():
            self.references.factor.clamp_(min=SMALLEST_FACTOR)
        return loss

    def memory(self, trained: Trained) -> dict[str, torch.Tensor]:
        return kept_state(self.references)


def parts(model: ExtractorClassifier) -> tuple[GaussianLayer, nn.Sequential]:
    """Return the Gaussian layer that :meth:`FedSRObjective.adapt` inserted, and the head that follows it."""
    classifier = cast("nn.Sequential", model.classifier)
    return cast("GaussianLayer", classifier[0]), classifier[1:]


METHOD = method.Method(
    key="fedsr",
    title="FedSR",
    rank=16,
    line=(
        "features are drawn from a Gaussian, kept short, and near a Gaussian of their class that the site "
        "keeps to itself"
    ),
    reference=method.Reference(
        "Nguyen, Torr, Lim",
        "FedSR: A Simple and Effective Domain Generalization Method for Federated Learning",
        "NeurIPS",
        2022,
    ),
    classes=(FedSRObjective,),
    defaults=(method.Default(server={"server_lr": 1.0, "weighting": "uniform"}, source="FedSR's code"),),
    letters=(
        "m, s mean and scale [D] of an image's features; ε standard normal; z sample; y label; r_μ, r_σ "
        "references [Y, D]; C factor; α l2_strength; β cmi_strength"
    ),
    equations=(
        method.Equation("z = m + s ε", "features that the head reads in training; in evaluation it reads m"),
        method.Equation("L2R = mean_B ‖z‖", "length of the features"),
        method.Equation(
            "CMI = mean_B KL( N(C m, (C s)²) ‖ N(r_μ[y], softplus(r_σ[y])²) )",
            "divergence from the class's reference, summed over the coordinates",
        ),
        method.Equation("CE(head(z), y) + α L2R + β CMI", "what a site minimises, over the model, r_μ, r_σ and C"),
    ),
    settings=(
        method.SettingSource(
            "l2_strength", symbol="α", paper="FedOMG's Table 4: 0.01", code="0.01", remark="factor of the length"
        ),
        method.SettingSource(
            "cmi_strength",
            symbol="β",
            paper="FedOMG's Table 4: 0.001",
            code="0.001 (README); 5e-4 (command line)",
            remark="factor of the divergence",
        ),
    ),
    differences=method.Differences(
        rows=(
            method.Difference(
                "evaluation",
                code="log of the mean softmax over 20 samples of z",
                ours="by the mean m: one answer for an image",
            ),
            method.Difference(
                "positive C and scales",
                code="not ensured",
                ours="C at least 1/128 after each step, scales at least 1e-6",
            ),
        )
    ),
    combined={
        "fedomg": (
            "reported in FedOMG's paper (Table 2), FedSR at 0.01 and 0.001 (Table 4); its released "
            "FedSR code draws a new random head for every batch"
        ),
    },
)
