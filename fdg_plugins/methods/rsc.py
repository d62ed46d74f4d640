# SPDX-License-Identifier: Apache-2.0
"""RSC: the features on which a site's classifier relies most are muted, and it trains on the rest.

Steps on one batch (authors' code -> here), with F the feature maps before global average pooling, z their mean over
positions and o the logits of z:

- ``g = d sum_b o[b, y_b] / dz`` -> :func:`label_gradient`. Pooling distributes it evenly, so the mean over positions
  needs no gradient of the map
- what to mute: the channels of largest ``g``, or the positions of largest ``sum_c F_c g_c`` -> :func:`largest`; for the
  samples whose label loses most probability through muting -> :meth:`LocalSelfChallenge.kept`

Shapes: maps ``[B, D, H, W]``, features and their gradient ``[B, D]``, labels ``[B]``.

Participation, buffers: as under FedAvg; nothing is exchanged or kept. The extractor runs once per step, unmuted, so
BatchNorm's statistics are updated once.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.models.registry import check_pooled
from fdg_plugins.objectives.erm import LocalRisk
from fdg_plugins.objectives.exchange import Tensors
from fdg_plugins.objectives.objective import LocalObjective, Objective, SiteRound, evaluating
from fdg_plugins.plugins import method
from fdg_plugins.plugins.fields import Share
from fdg_plugins.randomness import torch_generator

SMALLEST_LOSS = 1e-4  # of probability, as in the authors' code; a sample that loses less is not muted

Variant = Literal["feature", "spatial_channel"]


@dataclass(frozen=True)
class RSCObjective(Objective):
    """Cross entropy of samples without the features that contribute most to their labels' logits."""

    name = "rsc"
    neutral = {"feature_fraction": 0}
    needs_labelled_images = True

    variant: Variant = "spatial_channel"
    feature_fraction: Share = 1 / 3
    batch_fraction: Share = 1 / 3

    def check_network(self, model: ExtractorClassifier, image_shape: tuple[int, ...]) -> None:
        if self.feature_fraction and self.batch_fraction:
            check_pooled(model, image_shape)

    def local(self, received: Tensors, model: ExtractorClassifier, site: SiteRound = SiteRound()) -> LocalObjective:
        if self.feature_fraction == 0 or self.batch_fraction == 0:
            return LocalRisk(task=site.task)
        generator = torch_generator(site.seed, site.site, site.number, self.name)
        return LocalSelfChallenge(self.variant, self.feature_fraction, self.batch_fraction, generator, task=site.task)


@dataclass(frozen=True)
class LocalSelfChallenge(LocalRisk):
    """One round of self-challenging. ``generator``, on the CPU, chooses positions or channels for each batch."""

    variant: Variant
    feature_fraction: float
    batch_fraction: float
    generator: torch.Generator

    def loss(self, model: ExtractorClassifier, images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        maps = model.feature_map(images)
        features = model.pool(maps * self.kept(model, maps, targets))
        return self.task.loss(model.classifier(features).float(), targets)

    def kept(self, model: ExtractorClassifier, maps: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return a mask of the features to keep, bool ``[B, D, 1, 1]`` (channels) or ``[B, 1, H, W]`` (positions).

        It is computed in evaluation mode and in the parameters' precision, even under autocast. The model's modes and
        gradients are not changed.
        """
        maps = maps.detach().to(model.last_layer.weight.dtype)
        positions = self.variant == "spatial_channel" and bool(torch.randint(2, (), generator=self.generator))
        with evaluating(model), torch.no_grad():
            features = model.pool(maps)
            gradient = label_gradient(model.classifier, features, labels)
            scores = gradient[:, :, None, None]
            if positions:
                scores = (maps * scores).sum(dim=1, keepdim=True)  # sum_c F_c g_c, [B, 1, H, W]
            muted = largest(scores.flatten(1), self.feature_fraction).view_as(scores)
            before = label_probability(model.classifier, features, labels)
            lost = before - label_probability(model.classifier, model.pool(maps * ~muted), labels)
        chosen = largest(lost[None], self.batch_fraction)[0]
        if self.variant == "spatial_channel":
            chosen &= lost > SMALLEST_LOSS
        return ~(muted & chosen[:, None, None, None])


def label_gradient(classifier: nn.Module, features: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the gradient ``[B, D]`` of each sample's label logit with respect to the features.

    For a linear classifier these are the rows ``W[y]``.
    """
    features = features.detach().requires_grad_()
    with torch.enable_grad():
        logits = classifier(features).gather(1, labels[:, None])
        return torch.autograd.grad(logits.sum(), features)[0]


def label_probability(classifier: nn.Module, features: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the probability ``[B]`` that the classifier assigns to each sample's label."""
    return classifier(features).softmax(dim=1).gather(1, labels[:, None])[:, 0]


def largest(scores: torch.Tensor, fraction: float) -> torch.Tensor:
    """Return a mask ``[B, K]`` of the ``floor(fraction K)`` largest ``scores [B, K]`` of each row; ties: the first."""
    # A product such as 0.29 * 100 = 28.999999999999996 counts as the whole number.
    count = int(fraction * scores.shape[1] + 1e-9)
    order = scores.argsort(dim=1, descending=True, stable=True)
    return torch.zeros_like(scores, dtype=torch.bool).scatter_(1, order[:, :count], True)


METHOD = method.Method(
    key="rsc",
    title="RSC",
    rank=15,
    line="the features that speak most for a sample's label are muted, and the site trains on the rest",
    reference=method.Reference(
        "Huang, Wang, Xing, Huang", "Self-Challenging Improves Cross-Domain Generalization", "ECCV", 2020
    ),
    classes=(RSCObjective,),
    letters=(
        "F feature maps [B, D, H, W] before global average pooling; z their mean over positions; o "
        "logits; y labels; g gradient [B, D]; f feature_fraction; q batch_fraction"
    ),
    equations=(
        method.Equation(
            "g = d/dz Σ_b o[b, y_b]", "what each feature adds to the label's logit, with the head in evaluation mode"
        ),
        method.Equation(
            "positions: Σ_c F_c g_c, the top ⌊f H W⌋\nchannels: g, the top ⌊f D⌋",
            "what is muted in each sample, either with equal chance for each batch",
        ),
        method.Equation(
            "p_before(y) − p_after(y), the top ⌊q B⌋ above 1e-4",
            "the samples that stay muted: those whose label loses most probability",
        ),
        method.Equation("CE(head(pool(F · mask)), y)", "what a site minimises"),
    ),
    settings=(
        method.SettingSource(
            "variant",
            code="spatial_channel; feature in DomainBed",
            remark=(
                "spatial_channel mutes positions or channels, with equal chance; feature channels alone, without "
                "a bound of 1e-4"
            ),
        ),
        method.SettingSource(
            "feature_fraction",
            symbol="f",
            code="1/3 of the positions, 1/3.2 of the channels; DomainBed: 1/3",
            remark="share that is muted, rounded down; 0 is FedAvg, bit for bit",
        ),
        method.SettingSource(
            "batch_fraction",
            symbol="q",
            code="0.3, plus 0.2 every 10 epochs; FedDG-GA's code and DomainBed: 1/3",
            remark="share of the samples that are muted, rounded down; 0 is FedAvg, bit for bit",
        ),
    ),
    differences=method.Differences(
        remark="RSC is a method for pooled data; FedDG-GA's paper compares with it as local training.",
        rows=(
            method.Difference(
                "FedDG-GA's scripts for RSC",
                paper="RSC",
                code="call the network without labels and flag: nothing is muted, plain FedAvg",
                ours="RSC",
            ),
            method.Difference(
                "score of a position",
                code="Σ_c F_c times the gradient's mean; FedDG-GA's: the gradient alone, which is the same everywhere",
                ours="Σ_c F_c g_c, as the authors' code",
            ),
            method.Difference(
                "number of features",
                code="rounded up, fewer if scores are equal; DomainBed: at or above the percentile",
                ours="rounded down, exactly",
            ),
        ),
    ),
    combined={"fedga": "reported in FedDG-GA's paper (Tables 1 and 2); its released scripts mute nothing"},
)
