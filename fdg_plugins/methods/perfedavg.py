# SPDX-License-Identifier: Apache-2.0
r"""Per-FedAvg: the sites look for a common model from which one step on a site's own data leads to a good one.

Algorithm -> here:

- a local step along the gradient after adaptation, first order or with the Hessian's product
  -> :mod:`fdg_plugins.core.meta_gradient`, :class:`LocalMetaLearning`
- the parts of a batch on which its gradients are taken -> :class:`BatchPart`
- a site's own model: the received one after steps of adaptation -> :meth:`PerFedAvgObjective.personal`

Shapes: a batch ``[B, ...]`` is cut into two parts of ``B / 2``, or three of ``B / 3`` for the form with the Hessian.

Participation: as under FedAvg. Nothing is kept. The held-out domain is judged by the received model, because adaptation
needs labels.

Buffers: averaged as under FedAvg; in a step, those of the first part's pass.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field

from fdg_plugins.core.meta_gradient import meta_gradients
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives.erm import LocalRisk
from fdg_plugins.objectives.exchange import Tensors
from fdg_plugins.objectives.objective import (
    ComputeGradients,
    FineTuning,
    LocalObjective,
    Objective,
    PersonalModel,
    Point,
    SiteRound,
)
from fdg_plugins.plugins.fields import NotNegative, Positive
from fdg_plugins.plugins.method import Difference, Differences, Equation, Leaving, Method, Reference, SettingSource

SMALLEST_PART = 2  # batch normalisation cannot train on one sample

Form = Literal["first_order", "hessian_product"]


@dataclass(frozen=True)
class PerFedAvgObjective(Objective):
    """The task's loss after one step of adaptation.

    Args:
        adaptation: alpha over the learning rate, at least 0. 1 in public code. Zero is FedAvg, bit for bit.
        form: ``"first_order"``, or ``"hessian_product"``, which takes four gradients per step in place of two.
        difference: the length by which parameters move for the product with the Hessian; not established, ours.
        adaptation_steps: steps of length alpha that a site takes on its training split to have its own model.
    """

    name: ClassVar[str] = "peravg"
    acts: ClassVar[tuple[Point, ...]] = ("objective", "step", "personal")
    neutral: ClassVar[Mapping[str, Any] | None] = {"adaptation": 0}
    personalises: ClassVar[bool] = True

    adaptation: NotNegative = 1.0
    form: Form = "first_order"
    difference: Positive = 0.01
    adaptation_steps: Annotated[int, Field(ge=1, le=10000)] = 1

    def local(self, received: Tensors, model: ExtractorClassifier, site: SiteRound = SiteRound()) -> LocalObjective:
        self.refuse_payload(received)
        with_hessian = self.form == "hessian_product"
        return LocalMetaLearning(
            alpha=self.adaptation * site.learning_rate,
            difference=self.difference if with_hessian else None,
            part=BatchPart(3 if with_hessian else 2),
            task=site.task,
        )

    def personal(self, model: ExtractorClassifier, received: Tensors, site: SiteRound = SiteRound()) -> PersonalModel:
        if self.adaptation == 0:
            return PersonalModel(model)
        trained = tuple(name for name, parameter in model.named_parameters() if parameter.requires_grad)
        alpha = self.adaptation * site.learning_rate
        return PersonalModel(model, FineTuning(trained, steps=int(self.adaptation_steps), learning_rate=alpha))


@dataclass
class BatchPart:
    """The part of a batch that a pass reads: one of ``count`` equal parts by ``number``, or all of it (None)."""

    count: int
    number: int | None = None

    def of(self, values: torch.Tensor) -> torch.Tensor:
        """Return the part of ``values [B, ...]``; all of them if the parts would be too small."""
        if self.number is None or len(values) < SMALLEST_PART * self.count:
            return values
        return torch.tensor_split(values, self.count)[self.number]


@dataclass(frozen=True)
class LocalMetaLearning(LocalRisk):
    """The task's loss, with steps along its gradient after a step of length ``alpha``."""

    alpha: float
    difference: float | None = None
    part: BatchPart = field(default_factory=lambda: BatchPart(2))

    def step(
        self, model: ExtractorClassifier, compute_gradients: ComputeGradients, optimizer: torch.optim.Optimizer
    ) -> torch.Tensor:

        def compute_part(number: int | None) -> torch.Tensor:
            self.part.number = number
            return compute_gradients()

        try:
            loss = meta_gradients(model, compute_part, self.alpha, self.difference)
        finally:
            self.part.number = None
        optimizer.step()
        return loss

    def loss(self, model: ExtractorClassifier, images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return self.task.loss(model(self.part.of(images)).float(), self.part.of(targets))


METHOD = Method(
    key="perfedavg",
    title="Per-FedAvg",
    part="peravg",
    line="a common model from which one step on a site's own data leads to a good one",
    reference=Reference(
        authors="Fallah, Mokhtari, Ozdaglar",
        title=("Personalized Federated Learning with Theoretical Guarantees: A Model-Agnostic Meta-Learning Approach"),
        venue="NeurIPS",
        year=2020,
    ),
    classes=(PerFedAvgObjective,),
    letters=(
        "w parameters; L₁, L₂, L₃ losses of the parts of a batch; η learning rate; a adaptation; α = a η; H₃ Hessian "
        "of L₃ at w; δ difference"
    ),
    equations=(
        Equation(formula="w′ = w − α grad L₁(w)", meaning="step of adaptation, plain SGD"),
        Equation(formula="w⁺ = w − η v,   v = grad L₂(w′)", meaning="first-order form of a site's step"),
        Equation(
            formula="w⁺ = w − η (v − α H₃ v)",
            meaning="form with the Hessian; H₃ v by a central difference over the length δ",
        ),
        Equation(formula="w − α grad L(w)", meaning="a site's own model, from the received one; judged and discarded"),
    ),
    settings=(
        SettingSource(
            name="adaptation",
            symbol="a",
            paper="not established",
            code="PFLlib, FedOMG: 1, α is the learning rate",
            remark="0 is FedAvg, bit for bit",
        ),
        SettingSource(name="form", paper="both", code="PFLlib: first_order", remark="first_order or hessian_product"),
        SettingSource(
            name="difference",
            symbol="δ",
            paper="not established",
            remark="used by hessian_product, which needs float32 (precision): in bfloat16 it is mostly rounding; the "
            "default is ours",
        ),
        SettingSource(name="adaptation_steps", paper="1", remark="steps to a site's own model"),
    ),
    differences=Differences(
        compared="PFLlib",
        rows=(
            Difference(
                point="batches of a step",
                paper="two or three, drawn independently",
                code="two of the protocol's size",
                ours="two or three parts of one batch of the protocol's size",
            ),
            Difference(
                point="momentum of the step",
                paper="none",
                code="none",
                ours="the protocol's, 0.9 by default: a step is up to ten times as long",
            ),
            Difference(
                point="training per round", paper="once", code="twice: the server calls it a second time", ours="once"
            ),
            Difference(
                point="under FedOMG",
                paper="FedOMG's Table 1, without details",
                code="not released",
                ours="FedOMG's step on all parameters",
            ),
        ),
    ),
    leaves=(
        Leaving(
            what="loss, accuracy, count on validation, of the site's own model",
            shape="3 numbers",
            when="every round in which the site trains or judges a model, and once after the last",
            reveals="how well a model fitted to the site does on its data",
        ),
    ),
)
