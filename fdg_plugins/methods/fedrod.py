# SPDX-License-Identifier: Apache-2.0
"""FedRoD: a generic head, trained as if all classes were equally frequent, and on top of it a head of each site's own.

With features z, logits o_G of the generic and o_P of the personal head, n_k the site's training samples of class k:

- ``CE(sg(o_G) + o_P, y)`` trains the personal head alone, which reads z without gradient
- ``CE(o_G + gamma log n_k, y)``, balanced softmax, trains extractor and generic head -> :func:`log_shares`
- the site's own prediction, ``o_G + o_P`` -> :class:`TwoHeads`

Shapes: features ``[B, D]``; logits ``[B, Y]``; the personal head has the parameters of the classifier.

Participation: the personal head is personal: trained by the site's optimiser, kept for its next round, and never sent.
A new site starts with a last layer of zeros, so that its own prediction is the generic one. On the held-out domain the
generic head alone is evaluated, without log n_k.

Numerics: log n_k is taken relative to the most frequent class, which changes no probability, and makes it zero for
sites with equally many samples of each class. A class that the site lacks gets ``ABSENT`` instead of minus infinity:
its probability is exactly zero in float32.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives.erm import LocalRisk
from fdg_plugins.objectives.exchange import Tensors
from fdg_plugins.objectives.objective import (
    LocalObjective,
    Objective,
    PersonalModel,
    SiteRound,
    Trained,
    device_of,
    kept_state,
)
from fdg_plugins.plugins import method
from fdg_plugins.plugins.fields import NotNegative

ABSENT = -1e4  # exp of it is zero in float32


@dataclass(frozen=True)
class FedRoDObjective(Objective):
    """Balanced softmax for extractor and generic head, cross entropy for a personal head on top of them."""

    name = "rod"
    acts = ("objective", "personal")
    neutral = {"balance": 0}
    needs_labelled_images = True
    personalises = True

    balance: NotNegative = 1.0

    def local(self, received: Tensors, model: ExtractorClassifier, site: SiteRound = SiteRound()) -> LocalObjective:
        shift = log_shares(site.class_counts, model.last_layer.out_features, self.balance)
        return LocalRobustDecoupling(personal_head(model, site), shift.to(device_of(model)), task=site.task)

    def personal(self, model: ExtractorClassifier, received: Tensors, site: SiteRound = SiteRound()) -> PersonalModel:
        return PersonalModel(TwoHeads(model, personal_head(model, site)))


@dataclass(frozen=True)
class LocalRobustDecoupling(LocalRisk):
    """One round of FedRoD: ``head`` is the personal one, ``shift [Y]`` is gamma log n_k."""

    head: nn.Module
    shift: torch.Tensor

    def parameters(self) -> Sequence[nn.Parameter]:
        return list(self.head.parameters())

    def loss(self, model: ExtractorClassifier, images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return ``CE(o_G + gamma log n_k, y) + CE(sg(o_G) + o_P, y)`` of images and labels ``[B]``, a scalar.

        The first term has no gradient for the personal head, the second for nothing else.
        """
        features = model.features(images)
        generic = model.classifier(features).float()
        own = self.head(features.detach()).float()
        return self.task.loss(generic + self.shift, targets) + self.task.loss(generic.detach() + own, targets)

    def memory(self, trained: Trained) -> dict[str, torch.Tensor]:
        return kept_state(self.head)


class TwoHeads(nn.Module):
    """Images ``[B, C, H, W]`` to a site's own logits ``o_G + o_P``, ``[B, Y]``."""

    def __init__(self, model: ExtractorClassifier, head: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.head = head

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features = self.model.features(images)
        return self.model.classifier(features) + self.head(features)


def log_shares(counts: Sequence[int], num_classes: int, balance: float) -> torch.Tensor:
    """Return ``balance log(n_k / max n)``, float32 ``[Y]``; ``ABSENT`` for a class without samples.

    It is zero without counts and for a ``balance`` of zero.

    >>> log_shares([4, 4, 0], 3, 0.5).tolist()
    [0.0, 0.0, -10000.0]
    """
    if not counts or balance == 0:
        return torch.zeros(num_classes)
    n = torch.tensor(counts, dtype=torch.float64)
    return (balance * torch.log(n / n.max()).float()).masked_fill(n == 0, ABSENT)


def personal_head(model: ExtractorClassifier, site: SiteRound) -> nn.Module:
    """Return the head that the site kept, on the model's device; a new one gives logits of zero."""
    head = copy.deepcopy(model.classifier).requires_grad_(True)
    with torch.no_grad():
        last = [layer for layer in head.modules() if isinstance(layer, nn.Linear)][-1]
        for parameter in last.parameters():
            parameter.zero_()
    if site.memory:
        head.load_state_dict(dict(site.memory))
    return head


METHOD = method.Method(
    key="fedrod",
    title="FedRoD",
    rank=18,
    line=("a generic model trained by balanced softmax, and a personal head on top of it that stays at its site"),
    reference=method.Reference(
        "Chen, Chao", "On Bridging Generic and Personalized Federated Learning for Image Classification", "ICLR", 2022
    ),
    classes=(FedRoDObjective,),
    letters=(
        "z features; o_G, o_P logits of the generic and of the personal head; sg(·) without gradient; y "
        "label; nₖ the site's training samples of class k; γ balance; CE mean cross entropy of a batch"
    ),
    equations=(
        method.Equation("CE(o_G + γ log nₖ, y)", "balanced softmax, for extractor and generic head"),
        method.Equation("CE(sg(o_G) + o_P, y)", "for the personal head alone, which reads sg(z)"),
        method.Equation("o_G + o_P", "the site's own prediction; elsewhere o_G is the prediction"),
    ),
    settings=(
        method.SettingSource(
            "balance",
            symbol="γ",
            paper="1",
            code="PFLlib: 1",
            remark="factor of log nₖ; 0: the generic model is FedAvg",
        ),
    ),
    differences=method.Differences(
        compared="PFLlib, FedOMG",
        rows=(
            method.Difference(
                "start of the personal head",
                code="a copy of the initial generic head",
                ours="its last layer at zero: the generic prediction",
            ),
            method.Difference(
                "hyper-network for the personal head",
                paper="the second form",
                code="not implemented",
                ours="not implemented",
            ),
            method.Difference(
                "under FedOMG",
                paper="FedOMG's Tables 1 and 5, without details",
                code="updates scaled by their share of the samples, the result times N, of all sites",
                ours="FedOMG's step on extractor and generic head, of the sites of the round",
            ),
        ),
    ),
    leaves=(method.OWN_MODEL,),
    combined={"fedomg": "reported in FedOMG's paper (Tables 1 and 5)"},
)
