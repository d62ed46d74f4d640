# SPDX-License-Identifier: Apache-2.0
"""FedPAC: features of a class are drawn to the class's mean over all sites, and each site has a mixture of all heads.

- epochs of the head alone, then of the extractor alone, drawn to the prototypes -> :class:`LocalAlignment`
- class means of the received extractor and their uncertainty -> :meth:`FedPACObjective.report_received`; class means of
  the trained extractor -> :meth:`FedPACObjective.report_trained`
- prototypes, and for each site its mixture of heads -> :class:`PrototypeExchange`,
  :mod:`fdg_plugins.core.head_combination`

Shapes: class means ``[K, D]`` of the K classes that a site holds, counts ``[Y]``, prototypes c ``[Y, D]``.

Participation: the mixtures are over the sites of the round. The server keeps the last mixture of every site; an absent
site keeps the head that it trained. A class that no site of the round holds keeps its prototype. A new site starts from
the global head, the weighted mean of the sites' heads, with which the held-out domain is evaluated too.
"""

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import torch
from pydantic import Field

from fdg_plugins.core.head_combination import head_mixtures, limited_uncertainties, uncertainty, weighted_means
from fdg_plugins.core.insight import ClassSums, feature_penalty
from fdg_plugins.core.linear import combine
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives.exchange import (
    CLASS_COUNTS,
    Exchange,
    PayloadValidator,
    Shapes,
    SiteReport,
    Tensors,
    check_counts,
    largest_length,
    readable,
)
from fdg_plugins.objectives.objective import (
    ComputeGradients,
    FeatureBatch,
    LocalObjective,
    Objective,
    PersonalModel,
    SiteRound,
    Trained,
    device_of,
    to_report,
)
from fdg_plugins.plugins import method
from fdg_plugins.plugins.fields import NotNegative
from fdg_plugins.tasks import Task

BEFORE, AFTER = "means_before", "means_after"
SQUARE = "mean_square"
PROTOTYPES, PRESENT = "prototypes", "present"
HEAD = "head/"
ROUNDING = 1e-5  # relative, of a mean square of float32 numbers


@dataclass(frozen=True)
class FedPACObjective(Objective):
    """Cross entropy of the head alone, then, for the extractor alone, with features drawn to the global class means."""

    name = "pac"
    acts = ("objective", "step", "personal")
    report = "class_prototypes"
    needs_labelled_images = True
    needs_shared = "head"
    needs_trained = ("extractor",)
    personalises = True
    changes_effective_steps = True

    strength: NotNegative = 1.0
    head_epochs: Annotated[int, Field(ge=1, le=100)] = 1

    @property
    def more_epochs(self) -> int:
        return int(self.head_epochs)

    def local(self, received: Tensors, model: ExtractorClassifier, site: SiteRound = SiteRound()) -> LocalObjective:
        payload = read_payload(self.payload_validator(), received, model) if received else None
        state, device = model.state_dict(), device_of(model)
        received_head = {name: state[name].detach().clone() for name in model.head_names}
        if payload is None:
            return LocalAlignment(self, site.memory, received_head, site.task)
        head = payload.head or site.memory
        prototypes, present = payload.prototypes.to(device), payload.present.to(device)
        return LocalAlignment(self, head, received_head, site.task, prototypes, present)

    def personal(self, model: ExtractorClassifier, received: Tensors, site: SiteRound = SiteRound()) -> PersonalModel:
        model.load_state_dict({**model.state_dict(), **site.memory})
        return PersonalModel(model)

    def report_received(
        self, model: ExtractorClassifier, seen: Iterable[FeatureBatch], num_classes: int
    ) -> dict[str, torch.Tensor]:
        means, counts, square = _statistics(seen, num_classes, model)
        return to_report({BEFORE: means, CLASS_COUNTS: counts, SQUARE: square.reshape(1)})

    def report_trained(
        self, model: ExtractorClassifier, seen: Iterable[FeatureBatch], num_classes: int
    ) -> dict[str, torch.Tensor]:
        return to_report({AFTER: _statistics(seen, num_classes, model)[0]})

    def exchange(self, model: ExtractorClassifier, num_classes: int, num_sites: int = 1) -> Exchange:
        return PrototypeExchange(num_classes, model.feature_size, head_shapes(model))


def _statistics(
    seen: Iterable[FeatureBatch], num_classes: int, model: ExtractorClassifier
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return means ``[K, D]`` of the classes held, counts ``[Y]``, mean squared length, summed in float64."""
    device = device_of(model)
    total = ClassSums(num_classes, model.feature_size, device)
    square = torch.zeros((), dtype=torch.float64, device=device)
    for batch in seen:
        features, labels = batch.samples(batch.features)
        total.add(features, labels)
        square = square + features.double().square().sum()
    means, counts = total.means_of_held()
    return means, counts, (square / counts.sum()).float()


# --- a site's training ---


@dataclass
class LocalAlignment(LocalObjective):
    """The two phases of one round; ``epoch``: that has begun, from 1.

    ``head``: with which the training starts, by name in the state dict; empty: the ``received`` one. ``prototypes``:
    c ``[Y, D]`` and ``present [Y]``, on the model's device; None before there are any.
    """

    settings: FedPACObjective
    head: Tensors
    received: Tensors
    task: Task
    prototypes: torch.Tensor | None = None
    present: torch.Tensor | None = None
    epoch: int = 0

    def begin(self, model: ExtractorClassifier) -> None:
        model.load_state_dict({**model.state_dict(), **self.head})

    def prepare(self, model: ExtractorClassifier) -> None:
        self.epoch += 1

    @property
    def _trains_head(self) -> bool:
        return self.epoch <= self.settings.head_epochs

    def loss(self, model: ExtractorClassifier, images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        # In the head's phase the features have no graph: the pass backwards, most of a step, would serve nothing.
        with torch.no_grad() if self._trains_head else nullcontext():
            features = model.features(images)
        loss = self.task.loss(model.classifier(features).float(), targets)
        if self._trains_head or self.settings.strength == 0 or self.prototypes is None or self.present is None:
            return loss
        distance = feature_penalty(features, targets, self.prototypes, self.present)
        return loss + self.settings.strength / features.shape[1] * distance

    def step(
        self, model: ExtractorClassifier, compute_gradients: ComputeGradients, optimizer: torch.optim.Optimizer
    ) -> torch.Tensor:
        loss = compute_gradients()
        head = set(model.head_names)
        for name, parameter in model.named_parameters():
            if (name in head) != self._trains_head:
                parameter.grad = None
        optimizer.step()
        return loss

    def memory(self, trained: Trained) -> dict[str, torch.Tensor]:
        kept = {name: value.cpu() + trained.update[name] for name, value in self.received.items()}
        return to_report(kept) if readable(kept.values()) else {}


def head_shapes(model: ExtractorClassifier) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the head's entries, by name in the state dict."""
    state = model.state_dict()
    return {name: tuple(state[name].shape) for name in model.head_names}


class Payload(NamedTuple):
    """What the server sends: prototypes ``[Y, D]``, present ``[Y]``, and the site's mixture of heads or nothing."""

    prototypes: torch.Tensor
    present: torch.Tensor
    head: dict[str, torch.Tensor]


def read_payload(validator: PayloadValidator, tensors: Any, model: ExtractorClassifier) -> Payload:
    """Return the payload in ``tensors``; refuse what does not fit the model."""
    shapes = {f"{HEAD}{name}": shape for name, shape in head_shapes(model).items()}
    has_head = isinstance(tensors, Mapping) and any(name in tensors for name in shapes)
    found = validator.fields(tensors, (PROTOTYPES, PRESENT, *(shapes if has_head else ())))
    num_classes = model.last_layer.out_features
    head = {name: validator.numbers(name, found[name], shape) for name, shape in shapes.items()} if has_head else {}
    return Payload(
        validator.numbers(PROTOTYPES, found[PROTOTYPES], (num_classes, model.feature_size)),
        validator.flags(PRESENT, found[PRESENT], num_classes),
        {name.removeprefix(HEAD): value for name, value in head.items()},
    )


# --- the server ---


class SiteClasses(NamedTuple):
    """A checked report: class means ``[Y, D]`` by the received and the trained extractor, h and V of the former."""

    received: torch.Tensor
    h: torch.Tensor
    uncertainty: float
    means: torch.Tensor
    counts: torch.Tensor
    head: dict[str, torch.Tensor]


class PrototypeExchange(Exchange):
    """The server side of FedPAC: receives class means, and sends prototypes and to each site its mixture of heads.

    ``shapes``: of the head's entries, by name in the state dict.
    """

    def __init__(self, num_classes: int, feature_size: int, shapes: Shapes) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.feature_size = feature_size
        self.shapes = {name: tuple(shape) for name, shape in shapes.items()}
        self._head: dict[str, torch.Tensor] = {name: torch.zeros(shape) for name, shape in self.shapes.items()}

    def read_model(self, state: Tensors) -> None:
        self._head = {name: state[name].detach().cpu().to(torch.float32, copy=True) for name in self.shapes}

    def broadcast(self, site: str = "") -> dict[str, torch.Tensor]:
        names = {PROTOTYPES: PROTOTYPES, PRESENT: PRESENT}
        names |= {_head_key(site, name): f"{HEAD}{name}" for name in self.shapes}
        return {names[name]: value for name, value in self.learned.items() if name in names}

    def read_report(self, validator: PayloadValidator, report: SiteReport) -> SiteClasses:
        sent = validator.fields(report.content, (BEFORE, AFTER, CLASS_COUNTS, SQUARE))
        counts = validator.counts(CLASS_COUNTS, sent[CLASS_COUNTS], self.num_classes)
        check_counts(validator, counts, report.facts)
        before, after = (validator.class_means(name, sent[name], counts, self.feature_size) for name in (BEFORE, AFTER))
        square = float(validator.numbers(SQUARE, sent[SQUARE], (1,)))
        h = weighted_means(before, counts)
        least = float((h * before.double()).sum())  # sum_k pi_k |mu_k|^2, by Jensen
        if square < least * (1 - ROUNDING):
            validator.refuse(f"{SQUARE!r} is {square:g}, expected at least {least:g}, that of the class means alone")
        return SiteClasses(
            before,
            h,
            uncertainty(before, counts, square),
            after,
            counts,
            {
                name: value + validator.update_of(name, report.update, self.shapes[name], f"no update of {name!r} came")
                for name, value in self._head.items()
            },
        )

    def sizes(self, report: SiteClasses) -> dict[str, float]:
        """Those of class means do not depend on how many classes the site holds, as those of h do."""
        head = sum(float(value.double().square().sum()) for value in report.head.values())
        return {AFTER: largest_length(report.means), BEFORE: largest_length(report.received), "head": head**0.5}

    def learn(self, reports: Mapping[str, SiteClasses]) -> dict[str, torch.Tensor]:
        found = list(reports.values())
        h = torch.stack([one.h for one in found])
        samples = [int(one.counts.sum()) for one in found]
        mixtures = head_mixtures(h, limited_uncertainties([one.uncertainty for one in found], samples))
        learned = {**self.learned, **self._prototypes(found)}
        for site, weights in zip(reports, mixtures, strict=True):
            for name in self.shapes:
                learned[_head_key(site, name)] = combine(weights, [one.head[name] for one in found])
        return learned

    def _prototypes(self, found: list[SiteClasses]) -> dict[str, torch.Tensor]:
        """Return c ``[Y, D]``, by the counts of the round's sites, and present ``[Y]``; c stays where no site has k."""
        counts = torch.stack([one.counts for one in found]).double()  # [U, Y]
        means = torch.stack([one.means for one in found]).double()  # [U, Y, D]
        total = counts.sum(dim=0)
        mean = (counts[..., None] * means).sum(dim=0) / total.clamp(min=1)[:, None]
        before = self.learned.get(PROTOTYPES, torch.zeros(self.num_classes, self.feature_size))
        known = self.learned.get(PRESENT, torch.zeros(self.num_classes, dtype=torch.bool))
        here = total > 0
        return {PROTOTYPES: torch.where(here[:, None], mean.float(), before), PRESENT: here | known}


def _head_key(site: str, name: str) -> str:
    return f"heads/{site}/{name}"


METHOD = method.Method(
    key="fedpac",
    title="FedPAC",
    rank=23,
    line=("features of a class are drawn to its mean over all sites, and each site has a mixture of all heads"),
    reference=method.Reference(
        "Xu, Tong, Huang",
        "Personalized Federated Learning with Feature Alignment and Classifier Collaboration",
        "ICLR",
        2023,
    ),
    classes=(FedPACObjective,),
    letters=(
        "z features [D]; c_k prototype of class k; λ strength; μᵤₖ, nᵤₖ mean features and number of site "
        "u's samples of class k; πᵤₖ, nᵤ their share and sum; hᵤ weighted means [Y, D]; Vᵤ uncertainty; "
        "αᵢ weights of site i's mixture; CE mean cross entropy of a batch"
    ),
    equations=(
        method.Equation("CE", "what the head minimises in the first epochs, the extractor being fixed"),
        method.Equation("CE + λ/D mean ‖z − c_y‖²", "what the extractor minimises then, the head being fixed"),
        method.Equation("c_k = Σᵤ nᵤₖ μᵤₖ / Σᵤ nᵤₖ", "prototype, of the features after the training"),
        method.Equation("hᵤ[k] = πᵤₖ μᵤₖ\nVᵤ = (E‖z‖² − ‖hᵤ‖²) / nᵤ", "of the features of the received extractor"),
        method.Equation(
            "min αᵢ′ (diag(V) + Dᵢ) αᵢ,   Dᵢ[j, l] = ⟨hᵢ − hⱼ, hᵢ − hₗ⟩",
            "over the simplex; site i's next head is Σⱼ αᵢⱼ headⱼ",
        ),
    ),
    settings=(
        method.SettingSource(
            "strength", symbol="λ", paper="1", code="1", remark="0: no alignment, head and extractor alternate"
        ),
        method.SettingSource(
            "head_epochs", paper="1", code="1", remark="epochs of the head alone, beside the protocol's local_epochs"
        ),
    ),
    differences=method.Differences(
        compared="authors' code, PFLlib",
        rows=(
            method.Difference(
                "optimiser of the head",
                code="authors: a separate rate, 0.1; PFLlib: that of the extractor",
                ours="that of the extractor, also its momentum",
            ),
            method.Difference("prototypes", code="authors: weighted; PFLlib: not", ours="weighted"),
            method.Difference(
                "quadratic program", code="cvxpy; eigenvalues below zero clipped", ours="active sets, exact"
            ),
            method.Difference(
                "a site's own model",
                paper="received extractor, mixture of heads",
                code="the same",
                ours="received extractor, the head that the site trained last",
            ),
            method.Difference(
                "an unseen domain",
                paper="not defined",
                code="not defined",
                ours="the mean of the heads, which is the head of the global model",
            ),
        ),
    ),
    leaves=(
        method.Leaving(
            "mean feature vector of each class, of the received and of the trained extractor",
            "2 × classes held × features",
            "a mean of few samples is close to a sample's own features; of one sample it is them. All sites "
            "receive the mean of a class that one site of a round holds alone",
            report="class_prototypes",
        ),
        method.Leaving(
            "number of samples of each class in training",
            "classes",
            "class shares, which the census told before",
            report="class_prototypes",
        ),
        method.Leaving(
            "mean squared length of the features",
            "1 number",
            "how much the features of the classes vary",
            report="class_prototypes",
        ),
        method.OWN_MODEL,
    ),
)
