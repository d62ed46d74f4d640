# SPDX-License-Identifier: Apache-2.0
r"""FedAS: a site draws the received extractor to the class means of its own last one before it trains it.

Algorithm -> here, with features z, mu_k the mean features of class k by the extractor that the site trained last:

- parameter alignment: the extractor alone, by plain SGD along ``sum_k mean_{i: y_i = k} |z_i - mu_k|^2 / D``
  -> :func:`alignment_loss`
- then extractor and personal head, by cross entropy -> :class:`LocalAlignment`
- ``T = sum_b |grad L_b|^2`` of the trained model, the report -> :func:`fisher_trace` over :func:`equal_batches`
- client synchronisation: weights in proportion to T -> :mod:`fdg_plugins.methods.fedas`

Shapes: class means mu ``[Y, D]``, held ``[Y]``: classes of which the site has images; T a scalar.

Participation: a site keeps its trained model and its class means by its identity, also over rounds without it. A new
site aligns to the class means of the received extractor and starts from the received head. The server learns and sends
nothing. The held-out domain is judged by the global model, whose head is the weighted mean of the sites' heads.

Buffers: averaged as under FedAvg, with the weights by T; the site's own model has its own. Running statistics move in
the alignment too.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, NamedTuple

import torch
from pydantic import Field

from fdg_plugins.aggregators.contributions import Contribution
from fdg_plugins.aggregators.weightings import ONLY_ROUND, RoundOf, Weighting
from fdg_plugins.core.fisher import fisher_weights, squared_length
from fdg_plugins.core.insight import ClassSums, feature_penalty
from fdg_plugins.errors import ContributionError, SettingsError
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives.erm import LocalRisk
from fdg_plugins.objectives.exchange import Exchange, PayloadValidator, Shapes, SiteReport, Tensors, readable
from fdg_plugins.objectives.objective import (
    ComputeGradients,
    FeatureBatch,
    LocalObjective,
    Objective,
    PersonalModel,
    Point,
    Shared,
    SiteRound,
    Trained,
    device_of,
    evaluating,
    to_report,
)
from fdg_plugins.plugins.fields import NotNegative
from fdg_plugins.plugins.method import Difference, Differences, Equation, Leaving, Method, Reference, SettingSource
from fdg_plugins.tasks import DEFAULT_TASK, Task

Batch = tuple[torch.Tensor, torch.Tensor]  # images [B, C, H, W] and labels [B]

REPORT_FISHER_TRACE = "fisher_trace"
MODEL, MEANS, HELD = "model/", "class_means", "classes_held"


@dataclass(frozen=True)
class FedASObjective(Objective):
    """Alignment of the extractor to the site's own class means, then cross entropy with a personal head.

    Args:
        align_epochs: epochs of the alignment, before the protocol's ``local_epochs``; 1 in the authors' code. With
            zero, and before a site has kept a model, training is FedAvg's, bit for bit.
        align_lr: learning rate of the alignment, at least 0; 0.01 in the authors' code.
        fisher_batch: images of a batch whose gradient is squared, from 1 to 64; 16 in the authors' code, the batch of
            its training. Images left over after the last whole batch do not count. With 1, T is the trace of the
            empirical Fisher information, at one backward pass per image.
    """

    name: ClassVar[str] = "as"
    acts: ClassVar[tuple[Point, ...]] = ("objective", "step", "personal")
    report: ClassVar[str | None] = REPORT_FISHER_TRACE
    needs_labelled_images: ClassVar[bool] = True
    needs_shared: ClassVar[Shared] = "head"
    needs_trained: ClassVar[tuple[str, ...]] = ("extractor",)
    personalises: ClassVar[bool] = True
    changes_effective_steps: ClassVar[bool] = True
    neutral: ClassVar[Mapping[str, Any] | None] = {"align_epochs": 0}

    align_epochs: Annotated[int, Field(ge=0, le=100)] = 1
    align_lr: NotNegative = 0.01
    fisher_batch: Annotated[int, Field(ge=1, le=64)] = 16

    @property
    def more_epochs(self) -> int:
        return int(self.align_epochs)

    def local(self, received: Tensors, model: ExtractorClassifier, site: SiteRound = SiteRound()) -> LocalObjective:
        self.refuse_payload(received)
        kept, device = read_kept(model, site), device_of(model)
        if kept is None:
            return LocalAlignment(self, {}, _Notes(), task=site.task)
        head = {name: kept.model[name].to(device) for name in model.head_names if name in kept.model}
        return LocalAlignment(self, head, _Notes(means=kept.means.to(device)), task=site.task)

    def personal(self, model: ExtractorClassifier, received: Tensors, site: SiteRound = SiteRound()) -> PersonalModel:
        self.refuse_payload(received)
        kept = read_kept(model, site)
        if kept is not None:
            model.load_state_dict({**model.state_dict(), **kept.model})
        return PersonalModel(model)

    def exchange(self, model: ExtractorClassifier, num_classes: int, num_sites: int = 1) -> Exchange:
        return TraceReports()


# --- a site's training ---


class ClassMeans(NamedTuple):
    """Mean features ``[Y, D]``, float32, zero for a class without images, and which classes have some, ``[Y]``."""

    means: torch.Tensor
    held: torch.Tensor

    def to(self, device: torch.device) -> "ClassMeans":
        """Return both on a device."""
        return ClassMeans(self.means.to(device), self.held.to(device))


@dataclass
class _Notes:
    """What a round notes: the epoch, the class means to align to, and of the trained model its means, T and state."""

    epoch: int = 0
    means: ClassMeans | None = None
    kept: dict[str, torch.Tensor] = field(default_factory=dict)
    trace: torch.Tensor | None = None


@dataclass(frozen=True)
class LocalAlignment(LocalRisk):
    """The two phases of one round.

    Args:
        settings: epochs and rate of the alignment, batch of the Fisher trace.
        head: that the site trained last, by name in the state dict, on the model's device; empty before that.
        notes: what the round notes.
    """

    settings: FedASObjective
    head: Tensors
    notes: _Notes

    def observe_received(self, model: ExtractorClassifier, seen: Iterable[FeatureBatch], num_classes: int) -> None:
        if self.settings.align_epochs and self.notes.means is None:
            total = ClassSums(num_classes, model.feature_size, device_of(model))
            for batch in seen:
                total.add(*batch.samples(batch.features))
            self.notes.means = class_means_of(total)

    def begin(self, model: ExtractorClassifier) -> None:
        model.load_state_dict({**model.state_dict(), **self.head})

    def prepare(self, model: ExtractorClassifier) -> None:
        self.notes.epoch += 1

    @property
    def aligns(self) -> bool:
        """Whether the extractor is aligned in this epoch."""
        return self.notes.epoch <= self.settings.align_epochs

    def loss(self, model: ExtractorClassifier, images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the alignment of images and labels ``[B]`` in its epochs, then their cross entropy, a scalar."""
        if not self.aligns or self.notes.means is None:
            return super().loss(model, images, targets)
        return alignment_loss(model.features(images), targets, self.notes.means)

    def step(
        self, model: ExtractorClassifier, compute_gradients: ComputeGradients, optimizer: torch.optim.Optimizer
    ) -> torch.Tensor:
        loss = compute_gradients()
        if not self.aligns:
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
        self.notes.trace = trace.reshape(1).float()
        self.notes.kept = to_report(
            {
                **{f"{MODEL}{name}": value.detach().clone() for name, value in _float_entries(model).items()},
                MEANS: means.means,
                HELD: means.held,
            }
        )

    def report(self, trained: Trained) -> dict[str, torch.Tensor]:
        """Return T, float32 ``[1]``."""
        return {} if self.notes.trace is None else to_report({REPORT_FISHER_TRACE: self.notes.trace})

    def memory(self, trained: Trained) -> dict[str, torch.Tensor]:
        usable = readable(value for value in self.notes.kept.values() if value.is_floating_point())
        return self.notes.kept if usable else {}


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


def fisher_trace(model: ExtractorClassifier, batches: Iterable[Batch], task: Task = DEFAULT_TASK) -> torch.Tensor:
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
        total = total + squared_length(gradient for gradient in gradients if gradient is not None)
    return total


# --- what a site keeps ---


class Kept(NamedTuple):
    """What a site kept: the floating-point entries of its trained model, by name, and its class means."""

    model: dict[str, torch.Tensor]
    means: ClassMeans


def read_kept(model: ExtractorClassifier, site: SiteRound) -> Kept | None:
    """Return what the site kept, None before it has trained; raise ``SettingsError`` if that does not fit ``model``."""
    if not site.memory:
        return None
    validator = PayloadValidator(f"site {site.site}: its memory of objective 'as'", SettingsError)
    shapes: Shapes = {f"{MODEL}{name}": tuple(value.shape) for name, value in _float_entries(model).items()}
    found = validator.fields(site.memory, (*shapes, MEANS, HELD))
    num_classes = model.last_layer.out_features
    return Kept(
        {name.removeprefix(MODEL): validator.numbers(name, found[name], shape) for name, shape in shapes.items()},
        ClassMeans(
            validator.numbers(MEANS, found[MEANS], (num_classes, model.feature_size)),
            validator.flags(HELD, found[HELD], num_classes),
        ),
    )


def _float_entries(model: ExtractorClassifier) -> dict[str, torch.Tensor]:
    return {name: value for name, value in model.state_dict().items() if value.is_floating_point()}


# --- the server ---


class TraceReports(Exchange):
    """The server side of FedAS: a site's Fisher trace, checked, as the weighting reads it.

    Traces are not compared: those of honest sites differ a thousandfold. What a lie gains is limited with the weights.
    """

    name: ClassVar[str] = FedASObjective.name
    report: ClassVar[str] = REPORT_FISHER_TRACE

    def read_report(self, validator: PayloadValidator, report: SiteReport) -> float:
        sent = validator.fields(report.content, (REPORT_FISHER_TRACE,))
        trace = float(validator.numbers(REPORT_FISHER_TRACE, sent[REPORT_FISHER_TRACE], (1,)))
        if trace < 0:
            validator.refuse(f"{REPORT_FISHER_TRACE!r} is {trace:g}, expected at least 0")
        return trace


class FisherWeighting(Weighting):
    """Weights in proportion to the trace of the Fisher information of the sites' models. Works with any direction."""

    shares = REPORT_FISHER_TRACE
    needs_reports = True
    example_reports = (0.5, 2.0, 0.0)

    def __call__(self, contributions: Sequence[Contribution], round_of: RoundOf = ONLY_ROUND) -> torch.Tensor:
        """Return the weights of the round's sites, float64 ``[U]``; raise ``ContributionError`` as :meth:`check`."""
        for contribution in contributions:
            self.check(contribution)
        samples = [contribution.num_samples or 0 for contribution in contributions]
        return fisher_weights([trace_of(contribution) for contribution in contributions], samples)

    def check(self, contribution: Contribution) -> None:
        trace_of(contribution)
        if contribution.num_samples is None:
            raise ContributionError(
                f"site {contribution.site}: did not say its number of samples, which gives its weight if all Fisher "
                "traces are zero."
            )


def trace_of(contribution: Contribution) -> float:
    """Return the checked trace of a contribution; raise ``ContributionError``, naming the site, if there is none."""
    trace = contribution.reports.get(REPORT_FISHER_TRACE)
    if not isinstance(trace, float) or not 0 <= trace < math.inf:
        raise ContributionError(
            f"site {contribution.site}: there is no usable Fisher trace of its model, from which its weight follows."
        )
    return trace


METHOD = Method(
    key="fedas",
    title="FedAS",
    part="as",
    line="the received extractor is first drawn to a site's own class means; sites weigh by their models' Fisher trace",
    reference=Reference(
        authors="Yang, Huang, Ye",
        title="FedAS: Bridging Inconsistency in Personalized Federated Learning",
        venue="CVPR",
        year=2024,
    ),
    classes=(FisherWeighting, FedASObjective),
    letters=(
        "z features [D]; μ_k mean features of class k at the site, by the extractor that it trained last; B_k the "
        "batch's images of class k; L_b mean cross entropy of batch b of the site's training images; w its trained "
        "model; Tᵤ Fisher trace of site u; η rate of the alignment; CE mean cross entropy of a batch"
    ),
    equations=(
        Equation(
            formula="Σ_k 1/|B_k| Σ_{i ∈ B_k} ‖zᵢ − μ_k‖² / D",
            meaning="what the extractor minimises in the first epochs, the head having no part in it",
        ),
        Equation(formula="CE", meaning="what extractor and the site's own head minimise then"),
        Equation(formula="Tᵤ = Σ_b ‖∇_w L_b‖²", meaning="of the trained model, in evaluation mode"),
        Equation(formula="Tᵤ / Σᵥ Tᵥ", meaning="the weight of site u"),
    ),
    settings=(
        SettingSource(
            name="align_epochs", paper="not established", code="1", remark="0: no alignment; beside local_epochs"
        ),
        SettingSource(name="align_lr", symbol="η", paper="not established", code="0.01", remark="of plain SGD"),
        SettingSource(
            name="fisher_batch",
            paper="not established",
            code="the training batch, 16",
            remark="images whose mean gradient is squared, 1 to 64",
        ),
    ),
    differences=Differences(
        compared="authors' code, PFLlib",
        rows=(
            Difference(
                point="the model that is aligned",
                paper="the received one, at each site",
                code="one object, by the sites of the round in turn",
                ours="the received one, at each site",
            ),
            Difference(
                point="class means of a new site", code="by the initial extractor", ours="by the received extractor"
            ),
            Difference(
                point="T",
                paper="trace of the Fisher information",
                code=(
                    "mean gradients of whole batches, squared and summed, an incomplete last one dropped; also of "
                    "sites not drawn, for the log"
                ),
                ours="the same, of the sites that train; fewer images than a batch are one",
            ),
            Difference(point="all T zero", code="divides by zero", ours="weights by samples"),
            Difference(
                point="an unseen domain",
                paper="not defined",
                code="not defined",
                ours="the global model, whose head is the weighted mean of the heads",
            ),
        ),
    ),
    leaves=(
        Leaving(
            what="sum of the squared gradients of the trained model over batches of training images",
            shape="1 number",
            reveals=(
                "how far the site's model is from fitting its images; grows with their number and with wrong labels"
            ),
            report="fisher_trace",
        ),
        Leaving(
            what="loss, accuracy, count on validation, of the site's own model",
            shape="3 numbers",
            when="every round in which the site trains or judges a model, and once after the last",
            reveals="how well a model fitted to the site does on its data",
        ),
    ),
)
