# SPDX-License-Identifier: Apache-2.0
"""FedIIR: the gradient of each batch with respect to the classifier is drawn to the mean gradient over sites.

Equations (section of the paper -> here); the mathematics is in ``fdg_plugins.core.alignment``:

- 3.3, the gradient over the training split -> :meth:`FedIIRObjective.report_received`
- App. C, the moving average g -> :class:`GradientExchange`; Algorithm 1, the loss -> :class:`LocalAlignment`

Shapes: gradients by the classifier's names in the state dict, each with its parameter's shape: for a linear classifier,
weight ``[Y, D]`` and bias ``[Y]``.

Participation: g is updated from the sites that reported, with equal weights. A new site needs no history; an absent
site affects g only through the moving average. With one site and ``v = 0``, the site is pulled towards its own
gradient. If no report of a round is usable, g does not change. Before the first report, sites minimise the cross
entropy alone.

Buffers: BatchNorm's follow the protocol's ``batch_norm``; ``frozen_batchnorm`` holds those received during training.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from fdg_plugins.core.alignment import (
    classifier_gradient,
    disagreement,
    gradient_alignment_penalty,
    update_mean_gradient,
)
from fdg_plugins.core.outliers import MAJORITY, MOST_TIMES, clip_factors
from fdg_plugins.errors import SettingsError
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.models.batch_norm import batch_norm_buffers
from fdg_plugins.objectives.erm import LocalRisk
from fdg_plugins.objectives.exchange import Exchange, PayloadValidator, Phase, SiteReport, Tensors
from fdg_plugins.objectives.objective import FeatureBatch, LocalObjective, Objective, SiteRound, evaluating, to_report
from fdg_plugins.plugins import method
from fdg_plugins.plugins.fields import NotNegative, Share

GRADIENT = "gradient/"


@dataclass(frozen=True)
class FedIIRObjective(Objective):
    """Cross entropy plus the squared distance of the classifier's gradient from the mean over sites."""

    name = "iir"
    neutral = {"strength": 0}
    report = "classifier_gradient"
    needs_shared = "head"
    hosted = {"probe": "previous_round"}

    strength: NotNegative = 1e-2
    ema: Share = 0.95
    frozen_batchnorm: bool = False
    probe: Literal["extra_task", "previous_round"] = "extra_task"

    @property
    def probes(self) -> bool:
        return self.probe == "extra_task"

    def local(self, received: Tensors, model: ExtractorClassifier, site: SiteRound = SiteRound()) -> LocalObjective:
        parameters = classifier_parameters(model)
        validator = self.payload_validator()
        shapes = {name: tuple(parameter.shape) for name, parameter in parameters.items()}
        gradient = read_gradient(validator, received, shapes) if received else {}
        objective: LocalObjective = LocalRisk(task=site.task)
        if gradient and self.strength > 0:
            mean = {name: gradient[GRADIENT + name].to(parameter.device) for name, parameter in parameters.items()}
            objective = LocalAlignment(self.strength / 2, mean, task=site.task)
        if self.frozen_batchnorm:
            model.hold(batch_norm_buffers(model))
        return objective

    def report_received(
        self, model: ExtractorClassifier, seen: Iterable[FeatureBatch], num_classes: int
    ) -> dict[str, torch.Tensor]:
        """Return the classifier's gradient of the mean cross entropy over the training split, float32, by name.

        The model is in evaluation mode, and a batch is weighted by its number of samples, so the result does not depend
        on how the samples are batched. No gradient of the extractor is computed.
        """
        with evaluating(model):
            return gradient_report(model.classifier, classifier_parameters(model), seen)

    def exchange(self, model: ExtractorClassifier, num_classes: int, num_sites: int = 1) -> Exchange:
        shapes = {name: tuple(value.shape) for name, value in classifier_parameters(model).items()}
        return GradientExchange(self.ema, shapes, "probe" if self.probes else "train")

    def hosted_exchange(self, head: str, shapes: Mapping[str, tuple[int, ...]]) -> Exchange:
        """Return the same for the head of a global model; raise ``SettingsError`` if it has no parameters."""
        if not shapes:
            raise SettingsError(f"head is {head!r}, of which the global model has no parameters.")
        return GradientExchange(self.ema, shapes, "train")


def gradient_report(
    classifier: torch.nn.Module, parameters: Mapping[str, torch.Tensor], seen: Iterable[FeatureBatch]
) -> dict[str, torch.Tensor]:
    """Return the gradient of the mean loss of ``seen``, read once, with respect to the classifier's ``parameters``.

    The result is float32, by the parameters' names in the report; a batch is weighted by its number of samples.
    """
    sums = {name: torch.zeros_like(value, dtype=torch.float64) for name, value in parameters.items()}
    count = 0
    with torch.enable_grad():
        for batch in seen:
            loss = batch.summed_loss(classifier(batch.features).float())
            for name, gradient in classifier_gradient(loss, parameters).items():
                sums[name] += gradient
            count += len(batch.targets)
    return to_report({GRADIENT + name: (value / max(count, 1)).float() for name, value in sums.items()})


@dataclass(frozen=True)
class LocalAlignment(LocalRisk):
    """Algorithm 1's loss with a mean gradient that is fixed for the round, on the model's device.

    Classifier and penalty are computed in float32 even under autocast, because the penalty is a difference of
    gradients. The extractor uses the site's precision.
    """

    factor: float
    mean_gradient: Mapping[str, torch.Tensor]

    def loss(self, model: ExtractorClassifier, images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        features = model.features(images)
        with torch.autocast(features.device.type, enabled=False):
            logits = model.classifier(features.to(model.last_layer.weight.dtype))
            loss = self.task.loss(logits.float(), targets)
            penalty = gradient_alignment_penalty(loss, classifier_parameters(model), self.mean_gradient)
            return loss + self.factor * penalty


class GradientExchange(Exchange):
    """The server side of FedIIR: receives each site's classifier gradient, and broadcasts their moving average."""

    def __init__(self, ema: float, shapes: Mapping[str, Sequence[int]], phase: Phase) -> None:
        super().__init__(phase)
        self.ema = ema
        self.shapes = {name: tuple(shape) for name, shape in sorted(shapes.items())}

    def read_report(self, validator: PayloadValidator, report: SiteReport) -> dict[str, torch.Tensor]:
        return read_gradient(validator, report.content, self.shapes)

    def learn(self, reports: Mapping[str, Tensors]) -> dict[str, torch.Tensor]:
        """Return ``v g + (1 - v) mean``, by the names in the report; the mean is of shortened gradients.

        From three sites on, none is longer than ``MOST_TIMES`` times the round's median. No report is refused for its
        length: the gradient of a site that fits its images vanishes.
        """
        self.disagrees = disagreement(reports)
        if len(reports) >= MAJORITY:
            lengths = [
                math.hypot(*(float(value.double().norm()) for value in one.values())) for one in reports.values()
            ]
            factors = dict(zip(reports, clip_factors(lengths, MOST_TIMES), strict=True))
            reports = {site: {name: g * factors[site] for name, g in one.items()} for site, one in reports.items()}
        return update_mean_gradient(self.learned or None, reports, self.ema)


def classifier_parameters(model: ExtractorClassifier) -> dict[str, torch.nn.Parameter]:
    """Return omega: the classifier's parameters by name in the state dict."""
    return {f"classifier.{name}": parameter for name, parameter in model.classifier.named_parameters()}


def read_gradient(
    validator: PayloadValidator, tensors: Any, shapes: Mapping[str, Sequence[int]]
) -> dict[str, torch.Tensor]:
    """Return the gradients in ``tensors``, float32, by the names ``gradient/<parameter>``; refuse what does not fit."""
    found = validator.fields(tensors, [GRADIENT + name for name in shapes])
    return {
        GRADIENT + name: validator.numbers(GRADIENT + name, found[GRADIENT + name], shape)
        for name, shape in shapes.items()
    }


METHOD = method.Method(
    key="fediir",
    title="FedIIR",
    rank=4,
    line="the classifier's gradient of each batch is drawn to the mean gradient over sites",
    reference=method.Reference(
        "Guo, Guo, Cao, Wu, Chang",
        "Out-of-Distribution Generalization of Federated Learning via Implicit Invariant Relationships",
        "ICML",
        2023,
    ),
    classes=(FedIIRObjective,),
    defaults=(
        method.Default(
            server={"server_lr": 1.0, "weighting": "uniform"}, source="FedIIR, Algorithm 1: every site the same"
        ),
        method.Default(
            objective={"strength": 0.01, "ema": 0.95, "probe": "extra_task"}, source="FedIIR, Table 3, RotatedMNIST"
        ),
        method.Default(
            protocol={"batch_norm": "reestimate"}, source="ours: the probe sees the network that is trained"
        ),
        method.Default(on="photographs", protocol={"batch_norm": "frozen"}, source="FedIIR's code"),
        method.Default(on="segmentation", protocol={"batch_norm": "reestimate"}, source="ours: from scratch"),
        method.Default(on="photographs", objective={"strength": 0.001}, source="FedIIR, Table 3, PACS"),
        method.Default(on="vlcs", objective={"strength": 0.005}, source="FedIIR, Table 3"),
        method.Default(on="officehome", objective={"strength": 0.0005}, source="FedIIR, Table 3"),
        method.Default(on="photographs", beside="fedomg", objective={"strength": 0.0001}, source="FedOMG, Table 4"),
    ),
    letters=("θ all parameters; ω those of the classifier; Rᵤ mean loss of site u; g mean gradient; v ema; γ strength"),
    equations=(
        method.Equation(
            "∇_ω Rᵤ(θ)",
            "gradient over the whole training split, at the model received, in a separate task (probe)",
            number="3.3",
        ),
        method.Equation("g ← v g + (1 − v) meanᵤ ∇_ω Rᵤ(θ)", "mean gradient at the server, from zero", number="App. C"),
        method.Equation(
            "Rᵤ(θ; batch) + γ/2 ‖∇_ω Rᵤ(θ; batch) − g‖²",
            "what a site minimises, g being fixed for the round",
            number="Algorithm 1",
        ),
    ),
    settings=(
        method.SettingSource(
            "strength",
            symbol="γ",
            paper="Table 3: 1e-2 RotatedMNIST, 5e-3 VLCS, 1e-3 PACS, 5e-4 OfficeHome; FedOMG's Table 4: 1e-4",
            remark="0 is FedAvg under the same batch_norm, bit for bit",
        ),
        method.SettingSource(
            "ema", symbol="v", paper="0.95 (Table 3)", remark="share of the earlier mean gradient; 0 has no memory"
        ),
        method.SettingSource(
            "frozen_batchnorm",
            paper="not said",
            code="true: BatchNorm trains in evaluation mode for ever",
            remark="BatchNorm keeps the statistics received and normalises by them in training",
        ),
        method.SettingSource(
            "batch_norm",
            paper="not said",
            code="frozen: statistics never change",
            remark="whose statistics probe and penalty see",
        ),
        method.SettingSource(
            "probe",
            paper="extra_task: before each round's training (Algorithm 1)",
            code="extra_task",
            remark="previous_round sends gradients with the updates: saves the trip, one round late",
        ),
    ),
    differences=method.Differences(
        rows=(
            method.Difference(
                "mean gradient",
                paper="mean over sites of full-batch gradients",
                code="mean over the batches of all sites",
                ours="as the paper; a batch weighs by its samples, every site the same",
            ),
            method.Difference("mode in which it is taken", paper="not said", code="evaluation", ours="evaluation"),
            method.Difference(
                "BatchNorm in training",
                paper="not said",
                code="evaluation mode for ever",
                ours="as the code on photographs (batch_norm frozen); elsewhere training mode",
            ),
            method.Difference(
                "initial weights of the head",
                paper="not said",
                code="Kaiming normal, standard deviation √(2/D) for D inputs",
                ours="torch's, uniform, standard deviation √(1/3D), as for every method",
            ),
        )
    ),
    leaves=(
        method.Leaving(
            "gradient of the mean loss over the training split, by the classifier",
            "the classifier",
            "mixed features of the samples, shares of the classes",
            report="classifier_gradient",
        ),
        method.NORMALIZATION,
    ),
)
