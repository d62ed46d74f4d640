# SPDX-License-Identifier: Apache-2.0
"""FedAS: a site draws the received extractor to the class means of its own last one before it trains it.

- parameter alignment: the extractor alone, by plain SGD -> :func:`alignment_loss`; then extractor and personal head, by
  cross entropy -> :class:`LocalAlignment`
- the report: the Fisher trace T of the trained model -> :func:`fisher_trace` over :func:`equal_batches`
- client synchronisation: weights in proportion to T -> :class:`FisherWeighting`

Shapes: class means mu ``[Y, D]``, held ``[Y]``: classes of which the site has images; T a scalar.

Participation: a site keeps its trained model and its class means by its identity, also over rounds without it. A new
site aligns to the class means of the received extractor and starts from the received head. The server learns and sends
nothing. The held-out domain is evaluated by the global model, whose head is the weighted mean of the sites' heads.

Buffers: averaged as under FedAvg, with the weights by T; the site's own model has its own. Running statistics move in
the alignment too.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

import torch
from pydantic import Field

from fdg_plugins.aggregators.contributions import Contribution
from fdg_plugins.aggregators.weightings import ONLY_ROUND, RoundOf, Weighting
from fdg_plugins.core.insight import ClassSums, feature_penalty
from fdg_plugins.core.weighting import fisher_weights
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives.exchange import Exchange, PayloadValidator, SiteReport, Tensors, readable
from fdg_plugins.objectives.objective import (
    ComputeGradients,
    FeatureBatch,
    LocalObjective,
    Objective,
    PersonalModel,
    SiteRound,
    Trained,
    device_of,
    evaluating,
    to_report,
)
from fdg_plugins.plugins import method
from fdg_plugins.plugins.fields import NotNegative
from fdg_plugins.tasks import Task

Batch = tuple[torch.Tensor, torch.Tensor]  # images [B, C, H, W] and labels [B]

REPORT_FISHER_TRACE = "fisher_trace"
MODEL, MEANS, HELD = "model/", "class_means", "classes_held"


@dataclass(frozen=True)
class FedASObjective(Objective):
    """Alignment of the extractor to the site's own class means, then cross entropy with a personal head."""

    name = "as"
    acts = ("objective", "step", "personal")
    report = REPORT_FISHER_TRACE
    needs_labelled_images = True
    needs_shared = "head"
    needs_trained = ("extractor",)
    personalises = True
    changes_effective_steps = True
    neutral = {"align_epochs": 0}

    align_epochs: Annotated[int, Field(ge=0, le=100)] = 1
    align_lr: NotNegative = 0.01
    fisher_batch: Annotated[int, Field(ge=1, le=64)] = 16

    @property
    def more_epochs(self) -> int:
        return int(self.align_epochs)

    def local(self, received: Tensors, model: ExtractorClassifier, site: SiteRound = SiteRound()) -> LocalObjective:
        if not site.memory:
            return LocalAlignment(self, site.task)
        kept, device = _kept_model(site), device_of(model)
        head = {name: kept[name] for name in model.head_names if name in kept}
        means = ClassMeans(site.memory[MEANS].to(device), site.memory[HELD].to(device))
        return LocalAlignment(self, site.task, head, means)

    def personal(self, model: ExtractorClassifier, received: Tensors, site: SiteRound = SiteRound()) -> PersonalModel:
        model.load_state_dict({**model.state_dict(), **_kept_model(site)})
        return PersonalModel(model)

    def exchange(self, model: ExtractorClassifier, num_classes: int, num_sites: int = 1) -> Exchange:
        return TraceReports()


def _kept_model(site: SiteRound) -> dict[str, torch.Tensor]:
    return {name.removeprefix(MODEL): value for name, value in site.memory.items() if name.startswith(MODEL)}


# --- a site's training ---


class ClassMeans(NamedTuple):
    """Mean features ``[Y, D]``, float32, zero for a class without images, and which classes have some, ``[Y]``."""

    means: torch.Tensor
    held: torch.Tensor


@dataclass
class LocalAlignment(LocalObjective):
    """The two phases of one round.

    ``head``: that the site trained last, by name, or empty. ``means``: to align to; ``epoch``: that has begun, from 1.
    Of the trained model, ``kept`` is what stays at the site, ``trace`` its T.
    """

    settings: FedASObjective
    task: Task
    head: Tensors = field(default_factory=dict)
    means: ClassMeans | None = None
    epoch: int = 0
    kept: dict[str, torch.Tensor] = field(default_factory=dict)
    trace: torch.Tensor | None = None

    def observe_received(self, model: ExtractorClassifier, seen: Iterable[FeatureBatch], num_classes: int) -> None:
        if self.settings.align_epochs and self.means is None:
            total = ClassSums(num_classes, model.feature_size, device_of(model))
            for batch in seen:
                total.add(*batch.samples(batch.features))
            self.means = class_means_of(total)

    def begin(self, model: ExtractorClassifier) -> None:
        model.load_state_dict({**model.state_dict(), **self.head})

    def prepare(self, model: ExtractorClassifier) -> None:
        self.epoch += 1

    @property
    def _aligns(self) -> bool:
        return self.epoch <= self.settings.align_epochs

    def loss(self, model: ExtractorClassifier, images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the alignment of images and labels ``[B]`` in its epochs, then their cross entropy, a scalar."""
        if not self._aligns or self.means is None:
            return self.task.loss(model(images).float(), targets)
        return alignment_loss(model.features(images), targets, self.means)

    def step(
        self, model: ExtractorClassifier, compute_gradients: ComputeGradients, optimizer: torch.optim.Optimizer
    ) -> torch.Tensor:
        loss = compute_gradients()
        if not self._aligns:
            optimizer.step()
            return loss
        with torch.no_grad():
            for parameter in model.extractor.parameters():
                if parameter.grad is not None:
                    parameter.sub_(parameter.grad, alpha=self.settings.align_lr)
        return loss

    def observe_trained(self, model: ExtractorClassifier, seen: Iterable[FeatureBatch], num_classes: int) -> None:
        total = ClassSums(num_classes, model.feature_size, device_of(model))

        def noted() -> Iterator[Batch]:
            for batch in seen:
                total.add(*batch.samples(batch.features))
                yield batch.images, batch.targets

        trace = fisher_trace(model, equal_batches(noted(), self.settings.fisher_batch), self.task)
        means = class_means_of(total)
        self.trace = trace.reshape(1).float()
        floats = {name: value for name, value in model.state_dict().items() if value.is_floating_point()}
        kept = {f"{MODEL}{name}": value.detach().clone() for name, value in floats.items()}
        self.kept = to_report({**kept, MEANS: means.means, HELD: means.held})

    def report(self, trained: Trained) -> dict[str, torch.Tensor]:
        return {} if self.trace is None else to_report({REPORT_FISHER_TRACE: self.trace})

    def memory(self, trained: Trained) -> dict[str, torch.Tensor]:
        usable = readable(value for value in self.kept.values() if value.is_floating_point())
        return self.kept if usable else {}


def class_means_of(total: ClassSums) -> ClassMeans:
    """Return the mean features of each class, zero for a class without images."""
    sums, counts = total.result()
    return ClassMeans((sums / counts.clamp(min=1)[:, None]).float(), counts > 0)


def alignment_loss(features: torch.Tensor, labels: torch.Tensor, to: ClassMeans) -> torch.Tensor:
    """Return ``sum_k mean_{i: y_i = k} |z_i - mu_k|^2 / D`` over the batch's classes that have a mean, a scalar.

    ``features [B, D]``, ``labels [B]``. Zero, with zero gradient, if no class of the batch has a mean.
    """
    shares = (labels[:, None] == labels).sum(dim=1).double().reciprocal()  # 1 / n_k of each image's class
    return feature_penalty(features, labels, to.means, to.held, shares) / features.shape[1]


def equal_batches(batches: Iterable[Batch], size: int) -> Iterator[Batch]:
    """Yield the images and targets of ``batches``, in order, in batches of exactly ``size`` images.

    What is left over is dropped, as by the authors' loader: the mean of fewer images has a longer gradient. Fewer than
    ``size`` images in all are one batch.
    """
    left: Batch | None = None
    dropped = False  # whether what is left over follows whole batches
    for images, targets in batches:
        if left is not None:
            images, targets = torch.cat([left[0], images]), torch.cat([left[1], targets])
        for part in zip(images.split(size), targets.split(size), strict=True):
            whole = len(part[0]) == size
            left, dropped = (None if whole else part), dropped or whole
            if whole:
                yield part
    if left is not None and not dropped:
        yield left


def fisher_trace(model: ExtractorClassifier, batches: Iterable[Batch], task: Task) -> torch.Tensor:
    """Return ``sum_b |grad L_b|^2``, a float64 scalar.

    L_b is the mean loss of batch b, in evaluation mode and without autocast; the gradient is that of all trainable
    parameters. Parameters, their gradients and modes stay as they are.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    total = torch.zeros((), dtype=torch.float64, device=device_of(model))
    for images, targets in batches:
        with evaluating(model), torch.enable_grad():
            loss = task.loss(model(images).float(), targets)
            gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        squares = [gradient.double().square().sum() for gradient in gradients if gradient is not None]
        total = total + torch.stack(squares).sum()
    return total


# --- the server ---


class TraceReports(Exchange):
    """The server side of FedAS: a site's Fisher trace, checked, as the weighting reads it.

    Traces are not compared: those of honest sites differ a thousandfold. What a lie gains is limited with the weights.
    """

    def read_report(self, validator: PayloadValidator, report: SiteReport) -> float:
        sent = validator.fields(report.content, (REPORT_FISHER_TRACE,))
        trace = float(validator.numbers(REPORT_FISHER_TRACE, sent[REPORT_FISHER_TRACE], (1,)))
        if trace < 0:
            validator.refuse(f"{REPORT_FISHER_TRACE!r} is {trace:g}, expected at least 0")
        return trace


class FisherWeighting(Weighting):
    """Weights in proportion to the trace of the Fisher information of the sites' models. Works with any direction."""

    shares = REPORT_FISHER_TRACE
    example_reports = (0.5, 2.0, 0.0)

    def __call__(self, contributions: Sequence[Contribution], round_of: RoundOf = ONLY_ROUND) -> torch.Tensor:
        """Return the weights of the round's sites, float64 ``[U]``."""
        samples = [contribution.num_samples or 0 for contribution in contributions]
        return fisher_weights([trace_of(contribution) for contribution in contributions], samples)

    def check(self, contribution: Contribution) -> None:
        trace_of(contribution)
        if contribution.num_samples is None:
            contribution.refuse("did not say its number of samples")


def trace_of(contribution: Contribution) -> float:
    """Return the checked trace of a contribution; raise ``ContributionError`` if there is none."""
    trace = contribution.reports.get(REPORT_FISHER_TRACE)
    if not isinstance(trace, float) or not 0 <= trace < math.inf:
        contribution.refuse("there is no usable Fisher trace of its model")
    return trace


METHOD = method.Method(
    key="fedas",
    title="FedAS",
    rank=24,
    line=(
        "the received extractor is first drawn to a site's own class means; sites weigh by their models' Fisher trace"
    ),
    reference=method.Reference(
        "Yang, Huang, Ye", "FedAS: Bridging Inconsistency in Personalized Federated Learning", "CVPR", 2024
    ),
    classes=(FisherWeighting, FedASObjective),
    letters=(
        "z features [D]; μ_k mean features of class k at the site, by the extractor that it trained last; "
        "B_k the batch's images of class k; L_b mean cross entropy of batch b of the site's training "
        "images; w its trained model; Tᵤ Fisher trace of site u; η rate of the alignment; CE mean cross "
        "entropy of a batch"
    ),
    equations=(
        method.Equation(
            "Σ_k 1/|B_k| Σ_{i ∈ B_k} ‖zᵢ − μ_k‖² / D",
            "what the extractor minimises in the first epochs, the head having no part in it",
        ),
        method.Equation("CE", "what extractor and the site's own head minimise then"),
        method.Equation("Tᵤ = Σ_b ‖∇_w L_b‖²", "of the trained model, in evaluation mode"),
        method.Equation("Tᵤ / Σᵥ Tᵥ", "the weight of site u"),
    ),
    settings=(
        method.SettingSource(
            "align_epochs",
            code="1",
            remark="epochs of the alignment, before local_epochs; 0: none, which is FedAvg's training",
        ),
        method.SettingSource("align_lr", symbol="η", code="0.01", remark="of plain SGD"),
        method.SettingSource(
            "fisher_batch",
            code="the training batch, 16",
            remark=(
                "images whose mean gradient is squared, 1 to 64; 1 is the empirical Fisher information, at a "
                "backward pass an image"
            ),
        ),
    ),
    differences=method.Differences(
        compared="authors' code, PFLlib",
        rows=(
            method.Difference(
                "the model that is aligned",
                paper="the received one, at each site",
                code="one object, by the sites of the round in turn",
                ours="the received one, at each site",
            ),
            method.Difference(
                "class means of a new site", code="by the initial extractor", ours="by the received extractor"
            ),
            method.Difference(
                "T",
                paper="trace of the Fisher information",
                code=(
                    "mean gradients of whole batches, squared and summed, an incomplete last one dropped; also of "
                    "sites not drawn, for the log"
                ),
                ours="the same, of the sites that train; fewer images than a batch are one",
            ),
            method.Difference("all T zero", code="divides by zero", ours="weights by samples"),
            method.Difference(
                "an unseen domain",
                paper="not defined",
                code="not defined",
                ours="the global model, whose head is the weighted mean of the heads",
            ),
        ),
    ),
    leaves=(
        method.Leaving(
            "sum of the squared gradients of the trained model over batches of training images",
            "1 number",
            "how far the site's model is from fitting its images; grows with their number and with wrong labels",
            report="fisher_trace",
        ),
        method.OWN_MODEL,
    ),
)
