# SPDX-License-Identifier: Apache-2.0
"""FedDIM: each sample's insight, features times classifier weights, is drawn to the mean of its class over sites.

Equations (number in the paper -> here); the mathematics is in ``fdg_plugins.core.insight``:

- Eq. 4 -> :meth:`FedDIMObjective.report_trained` sends class means, :class:`InsightExchange` rebuilds the insight from
  them and from the site's updated weights, exactly; Eq. 5, 6 -> :class:`InsightExchange`
- Eq. 7 -> :class:`LocalInsight`; Table 3 -> the settings

Shapes: features z ``[B, D]`` enter the last linear layer, whose weight W is ``[Y, D]`` and whose bias is not used;
class means ``[K, D]`` of the K classes that a site has, counts ``[Y]``, the global insight J ``[Y, D, Y]``
(target ``"feature"``: ``[Y, D]``; ``"logit"``: ``[Y, Y]``).

Participation: a class is averaged over the sites of the round that have it. An absent site is not needed, and a new
site receives the insight of the others. With one site, samples are pulled towards that site's mean of earlier rounds.
Until a class has been reported, its samples are not penalised.

Segmentation: a sample is a pixel, and the penalty is the mean over the classes of the batch of each class's mean
(``Task.by_pixel``), so that the background does not drown the other classes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch

from fdg_plugins.core.insight import (
    ClassSums,
    GlobalInsight,
    class_shares,
    feature_penalty,
    insight_matrix,
    insight_penalty,
    squared_norms,
    update_global_insight,
)
from fdg_plugins.errors import SettingsError
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives.erm import LocalRisk
from fdg_plugins.objectives.exchange import (
    CLASS_COUNTS,
    LARGEST_VALUE,
    Exchange,
    PayloadValidator,
    SiteReport,
    Tensors,
    check_counts,
    largest_length,
)
from fdg_plugins.objectives.objective import FeatureBatch, LocalObjective, Objective, SiteRound, evaluating, to_report
from fdg_plugins.plugins import method
from fdg_plugins.plugins.fields import NotNegative, Share
from fdg_plugins.tasks import DEFAULT_TASK, Task

CLASS_MEANS = "class_means"
INSIGHT = "insight"
PRESENT = "present"

Target = Literal["insight", "feature", "logit"]


@dataclass(frozen=True)
class FedDIMObjective(Objective):
    """Cross entropy plus the squared distance of each sample from the global insight of its class."""

    name = "dim"
    neutral = {"strength": 0}
    report = "class_means"
    needs_classes = True
    needs_shared = "head"
    hosted = {}

    strength: NotNegative = 0.01
    insight_momentum: Share = 0.5
    target: Target = "insight"

    def local(self, received: Tensors, model: ExtractorClassifier, site: SiteRound = SiteRound()) -> LocalObjective:
        weight = model.last_layer.weight
        validator = self.payload_validator()
        insight = read_insight(validator, received, self.target, *weight.shape) if received else None
        if insight is None or self.strength == 0:
            return LocalRisk(task=site.task)
        on_device = GlobalInsight(insight.values.to(weight.device), insight.present.to(weight.device))
        return local_insight(self.strength, self.target, on_device, site.task)

    def report_trained(
        self, model: ExtractorClassifier, seen: Iterable[FeatureBatch], num_classes: int
    ) -> dict[str, torch.Tensor]:
        """Return the mean features, float32 ``[K, D]``, of the site's K classes, and the class counts, int64 ``[Y]``.

        The features are those of the trained model in evaluation mode over the whole training split, summed in float64.
        Rows are in the order of the classes.
        """
        with evaluating(model), torch.no_grad():
            samples = (batch.samples(model.penultimate_of(batch.features)) for batch in seen)
            return means_report(samples, num_classes, model.last_layer.weight)

    def exchange(self, model: ExtractorClassifier, num_classes: int, num_sites: int = 1) -> Exchange:
        feature_size = model.last_layer.in_features
        return InsightExchange(self.insight_momentum, self.target, num_classes, feature_size, model.last_layer_names[0])

    def hosted_exchange(self, head: str, shapes: Mapping[str, tuple[int, ...]]) -> Exchange:
        """Return the same for a global model whose head is one linear layer; raise ``SettingsError`` if it is not."""
        name = f"{head}.weight"
        shape = shapes.get(name, ())
        if len(shape) != 2:
            raise SettingsError(f"head is {head!r}, but {name!r} is no linear layer of the global model.")
        return InsightExchange(self.insight_momentum, self.target, *shape, name)


def means_report(
    samples: Iterable[tuple[torch.Tensor, torch.Tensor]], num_classes: int, weight: torch.Tensor
) -> dict[str, torch.Tensor]:
    """Return the report on batches of features ``[B, D]`` and labels ``[B]``, read once, summed in float64.

    ``weight [Y, D]``: of the last layer, for its length D and its device.
    """
    total = ClassSums(num_classes, weight.shape[1], weight.device)
    for features, labels in samples:
        total.add(features, labels)
    means, counts = total.means_of_held()
    return to_report({CLASS_MEANS: means, CLASS_COUNTS: counts})


@dataclass(frozen=True)
class LocalInsight(LocalRisk):
    """Eq. 7 with a global insight that is fixed for the round, on the model's device.

    The penalty is computed in float32 even under autocast, from the features as the extractor returned them. ``norms``:
    the squared norms ``[Y]`` of the insight, if precomputed.
    """

    strength: float
    target: Target
    insight: GlobalInsight
    norms: torch.Tensor | None = None

    def loss(self, model: ExtractorClassifier, images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        features = model.penultimate(images)
        logits = model.last_layer(features)
        penalty = self.penalty(*self.task.samples_of(features, targets), model.last_layer.weight)
        return self.task.loss(logits.float(), targets) + self.strength * penalty

    def penalty(self, features: torch.Tensor, labels: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Return the penalty of features ``[B, D]`` with labels ``[B]`` under the last layer's weight, a scalar."""
        values, present = self.insight.values, self.insight.present
        shares = class_shares(labels, len(weight)) if self.task.by_pixel else None
        if self.target == "insight":
            return insight_penalty(features, labels, weight, values, present, self.norms, shares)
        if self.target == "feature":
            return feature_penalty(features, labels, values, present, shares)
        with torch.autocast(features.device.type, enabled=False):
            logits = features.to(weight.dtype) @ weight.t()  # without bias, as at the server
        return feature_penalty(logits, labels, values, present, shares)


def local_insight(strength: float, target: Target, insight: GlobalInsight, task: Task = DEFAULT_TASK) -> LocalInsight:
    """Return Eq. 7 with everything that is constant during the round precomputed, in the layout that steps read."""
    if target != "insight":
        return LocalInsight(strength, target, insight, task=task)
    laid_out = insight.values.transpose(1, 2).contiguous().transpose(1, 2)
    fixed = GlobalInsight(laid_out, insight.present)
    return LocalInsight(strength, target, fixed, squared_norms(laid_out), task=task)


class SiteMeans(NamedTuple):
    """A checked report: class means ``[Y, D]`` (zero where the count is), counts ``[Y]``, weights ``[Y, D]``."""

    means: torch.Tensor
    counts: torch.Tensor
    weight: torch.Tensor


class InsightExchange(Exchange):
    """The server side of FedDIM: receives class means, and broadcasts the global insight.

    ``momentum``: m of Eq. 6. ``target``: what is averaged. ``weight_name``: of the last layer's weight ``[Y, D]``.
    """

    def __init__(self, momentum: float, target: Target, num_classes: int, feature_size: int, weight_name: str) -> None:
        super().__init__(target=target)
        self.momentum = momentum
        self.target: Target = target
        self.num_classes = num_classes
        self.feature_size = feature_size
        self.weight_name = weight_name
        self._weight = torch.zeros(num_classes, feature_size)

    def read_model(self, state: Tensors) -> None:
        self._weight = state[self.weight_name].detach().cpu().float()

    def read_report(self, validator: PayloadValidator, report: SiteReport) -> SiteMeans:
        sent = validator.fields(report.content, (CLASS_MEANS, CLASS_COUNTS))
        counts = validator.counts(CLASS_COUNTS, sent[CLASS_COUNTS], self.num_classes)
        check_counts(validator, counts, report.facts)
        means = validator.class_means(CLASS_MEANS, sent[CLASS_MEANS], counts, self.feature_size)
        missing = f"{CLASS_MEANS!r} came without an update of {self.weight_name!r}, expected both"
        moved = validator.update_of(self.weight_name, report.update, self._weight.shape, missing)
        site = SiteMeans(means, counts, self._weight + moved)
        if not self._largest(site) <= LARGEST_VALUE:  # also refuses NaN
            validator.refuse(f"{CLASS_MEANS!r} times {self.weight_name!r} has values beyond {LARGEST_VALUE:g}")
        return site

    def sizes(self, report: SiteMeans) -> dict[str, float]:
        return {CLASS_MEANS: largest_length(report.means), self.weight_name: float(torch.linalg.norm(report.weight))}

    def learn(self, reports: Mapping[str, SiteMeans]) -> dict[str, torch.Tensor]:
        previous = GlobalInsight(self.learned[INSIGHT], self.learned[PRESENT]) if self.learned else None
        counts = torch.stack([site.counts for site in reports.values()])
        insight = update_global_insight(previous, map(self._rebuilt, reports.values()), counts, self.momentum)
        return {INSIGHT: insight.values, PRESENT: insight.present}

    def _rebuilt(self, site: SiteMeans) -> torch.Tensor:
        if self.target == "insight":
            return insight_matrix(site.means, site.weight)
        if self.target == "feature":
            return site.means
        return (site.means.double() @ site.weight.double().t()).float()

    def _largest(self, site: SiteMeans) -> float:
        """Return the largest absolute value of what is averaged, without a tensor ``[Y, D, Y]``."""
        if self.target == "insight":
            return float((site.weight.abs().amax(dim=0) * site.means.abs()).max())
        return float(self._rebuilt(site).abs().max())


def read_insight(
    validator: PayloadValidator, tensors: Any, target: Target, num_classes: int, feature_size: int
) -> GlobalInsight:
    """Return the global insight in ``tensors``, as broadcast or as saved; refuse what does not fit."""
    shapes = {
        "insight": (num_classes, feature_size, num_classes),
        "feature": (num_classes, feature_size),
        "logit": (num_classes, num_classes),
    }
    found = validator.fields(tensors, (INSIGHT, PRESENT))
    values = validator.numbers(INSIGHT, found[INSIGHT], shapes[target])
    return GlobalInsight(values, validator.flags(PRESENT, found[PRESENT], num_classes))


METHOD = method.Method(
    key="feddim",
    title="FedDIM",
    rank=3,
    line=("each sample's insight, features times classifier weights, is drawn to the mean of its class over sites"),
    reference=method.Reference(
        "Liao, Xie, Fu, Huang, Deng, Chen, Zheng",
        "Federated Domain Generalization with Decision Insight Matrix",
        "IJCAI",
        2025,
    ),
    classes=(FedDIMObjective,),
    defaults=(
        method.Default(server={"server_lr": 1.0, "weighting": "uniform"}, source="FedDIM, Eq. 5: every site the same"),
        method.Default(
            objective={"strength": 0.01, "insight_momentum": 0.5, "target": "insight"},
            source="ours: the paper prints neither",
        ),
    ),
    letters=(
        "z features [D] that enter the last layer; W its weight [Y, D]; B batch; J⁽ᵏ⁾ global insight of "
        "class k [D, Y]; λ strength; m insight_momentum"
    ),
    equations=(
        method.Equation(
            "I[d, y] = W[y, d] z[d]",
            "insight of a sample; its sums over d are the logits without bias",
            number="Eq. 2, 3",
        ),
        method.Equation(
            "Iᵤ⁽ᵏ⁾ = mean of I over site u's samples of class k",
            "rebuilt by the server from the site's class means: Iᵤ⁽ᵏ⁾[d, y] = Wᵤ[y, d] z̄ᵤ,ₖ[d]",
            number="Eq. 4",
        ),
        method.Equation(
            "J⁽ᵏ⁾ ← (1 − m) J⁽ᵏ⁾ + m meanᵤ Iᵤ⁽ᵏ⁾",
            "global insight; the first time it is the mean itself",
            number="Eq. 5, 6",
        ),
        method.Equation(
            "CE + λ/B Σᵢ ‖Iᵢ − J⁽ʸⁱ⁾‖²",
            "what a site minimises, J of the sample's class being fixed for the round",
            number="Eq. 7",
        ),
    ),
    settings=(
        method.SettingSource(
            "strength",
            symbol="λ",
            paper="not printed; grid 1e-4 to 1, of which 1 hurts",
            remark=(
                "the default is our choice; stands beside the mean cross entropy of a batch; 0 is FedAvg, bit for bit"
            ),
        ),
        method.SettingSource(
            "insight_momentum",
            symbol="m",
            paper="not printed; grid 0.1 to 0.9",
            remark=(
                "share of the round's mean in the global insight; the default is our choice; 0 keeps the first "
                "value, 1 has no memory"
            ),
        ),
        method.SettingSource("target", paper="insight; feature and logit in Table 3", remark="what is drawn together"),
    ),
    differences=method.Differences(
        compared="",
        remark="No code of the authors was compared.",
        rows=(
            method.Difference(
                "a site sends",
                paper="insight matrices, classes × features × classes",
                ours="class means and counts; the server rebuilds the matrices, exactly",
            ),
            method.Difference(
                "mean over sites (Eq. 5)",
                paper="over all sites of the round",
                ours="over those that have the class: the same if all do",
            ),
            method.Difference(
                "cross entropy in Eq. 7",
                paper="a sum over the batch",
                ours="its mean: the same effect takes a λ smaller by the factor of the batch size",
            ),
            method.Difference(
                "weights in Eq. 4",
                paper="the site's",
                ours="global + update, the same up to rounding and to what a filter did to the update",
            ),
        ),
    ),
    leaves=(
        method.Leaving(
            "mean feature vector of each class",
            "classes held × features",
            "a mean of few samples is close to a sample's own features; of one sample it is them. All sites "
            "receive what follows from the mean of a class that one site of a round holds alone",
            report="class_means",
        ),
        method.Leaving(
            "number of samples of each class",
            "classes",
            "class shares, which the census told before; with masks the number of pixels of each class, which "
            "it did not tell",
            report="class_means",
        ),
    ),
)
