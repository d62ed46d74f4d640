# SPDX-License-Identifier: Apache-2.0
"""Per-FedAvg: the sites look for a common model from which one step on a site's own data leads to a good one.

- a local step along the gradient after adaptation, first order or with the Hessian's product
  -> :mod:`fdg_plugins.core.moved_gradients`, :class:`LocalMetaLearning`, on parts of a batch
- a site's own model: the received one after steps of adaptation -> :meth:`PerFedAvgObjective.personal`

Shapes: a batch ``[B, ...]`` is cut into two parts of ``B / 2``, or three of ``B / 3`` for the form with the Hessian.

Participation: as under FedAvg; nothing is kept. The held-out domain is evaluated by the received model, because
adaptation needs labels.

Buffers: averaged as under FedAvg; in a step, those of the first part's pass.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from pydantic import Field

from fdg_plugins.core.moved_gradients import meta_gradients
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives.exchange import Tensors
from fdg_plugins.objectives.objective import (
    ComputeGradients,
    FineTuning,
    LocalObjective,
    Objective,
    PersonalModel,
    SiteRound,
)
from fdg_plugins.plugins import method
from fdg_plugins.plugins.fields import NotNegative, Positive
from fdg_plugins.tasks import Task

SMALLEST_PART = 2  # batch normalisation cannot train on one sample

Form = Literal["first_order", "hessian_product"]


@dataclass(frozen=True)
class PerFedAvgObjective(Objective):
    """The task's loss after one step of adaptation."""

    name = "peravg"
    acts = ("objective", "step", "personal")
    neutral = {"adaptation": 0}
    personalises = True

    adaptation: NotNegative = 1.0
    form: Form = "first_order"
    difference: Positive = 0.01
    adaptation_steps: Annotated[int, Field(ge=1, le=10000)] = 1

    def local(self, received: Tensors, model: ExtractorClassifier, site: SiteRound = SiteRound()) -> LocalObjective:
        with_hessian = self.form == "hessian_product"
        alpha = self.adaptation * site.learning_rate
        return LocalMetaLearning(site.task, alpha, self.difference if with_hessian else None, 3 if with_hessian else 2)

    def personal(self, model: ExtractorClassifier, received: Tensors, site: SiteRound = SiteRound()) -> PersonalModel:
        if self.adaptation == 0:
            return PersonalModel(model)
        trained = tuple(name for name, parameter in model.named_parameters() if parameter.requires_grad)
        alpha = self.adaptation * site.learning_rate
        return PersonalModel(model, FineTuning(trained, steps=int(self.adaptation_steps), learning_rate=alpha))


@dataclass
class LocalMetaLearning(LocalObjective):
    """The task's loss, with steps along its gradient after a step of length ``alpha``.

    ``parts``: of a batch; a pass reads the one by ``number``, or the whole batch (None).
    """

    task: Task
    alpha: float
    difference: float | None
    parts: int
    number: int | None = None

    def step(
        self, model: ExtractorClassifier, compute_gradients: ComputeGradients, optimizer: torch.optim.Optimizer
    ) -> torch.Tensor:

        def compute_part(number: int | None) -> torch.Tensor:
            self.number = number
            return compute_gradients()

        try:
            loss = meta_gradients(model, compute_part, self.alpha, self.difference)
        finally:
            self.number = None
        optimizer.step()
        return loss

    def loss(self, model: ExtractorClassifier, images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return self.task.loss(model(self._part(images)).float(), self._part(targets))

    def _part(self, values: torch.Tensor) -> torch.Tensor:
        """Return the part of ``values [B, ...]``; all of them if the parts would be too small."""
        if self.number is None or len(values) < SMALLEST_PART * self.parts:
            return values
        return torch.tensor_split(values, self.parts)[self.number]


METHOD = method.Method(
    key="perfedavg",
    title="Per-FedAvg",
    rank=22,
    line="a common model from which one step on a site's own data leads to a good one",
    reference=method.Reference(
        "Fallah, Mokhtari, Ozdaglar",
        "Personalized Federated Learning with Theoretical Guarantees: A Model-Agnostic Meta-Learning Approach",
        "NeurIPS",
        2020,
    ),
    classes=(PerFedAvgObjective,),
    letters=(
        "w parameters; L₁, L₂, L₃ losses of the parts of a batch; η learning rate; a adaptation; α = a η; "
        "H₃ Hessian of L₃ at w; δ difference"
    ),
    equations=(
        method.Equation("w′ = w − α grad L₁(w)", "step of adaptation, plain SGD"),
        method.Equation("w⁺ = w − η v,   v = grad L₂(w′)", "first-order form of a site's step"),
        method.Equation(
            "w⁺ = w − η (v − α H₃ v)", "form with the Hessian; H₃ v by a central difference over the length δ"
        ),
        method.Equation("w − α grad L(w)", "a site's own model, from the received one; evaluated and discarded"),
    ),
    settings=(
        method.SettingSource(
            "adaptation",
            symbol="a",
            code="PFLlib, FedOMG: 1, α is the learning rate",
            remark="α over the learning rate; 0 is FedAvg, bit for bit",
        ),
        method.SettingSource("form", paper="both", code="PFLlib: first_order", remark="first_order or hessian_product"),
        method.SettingSource(
            "difference",
            symbol="δ",
            paper="not established",
            remark=(
                "used by hessian_product, which needs float32 (precision): in bfloat16 it is mostly rounding; the "
                "default is ours"
            ),
        ),
        method.SettingSource("adaptation_steps", paper="1", remark="steps to a site's own model"),
    ),
    differences=method.Differences(
        compared="PFLlib",
        rows=(
            method.Difference(
                "batches of a step",
                paper="two or three, drawn independently",
                code="two of the protocol's size",
                ours="two or three parts of one batch of the protocol's size",
            ),
            method.Difference(
                "momentum of the step",
                paper="none",
                code="none",
                ours="the protocol's, 0.9 by default: a step is up to ten times as long",
            ),
            method.Difference(
                "training per round", paper="once", code="twice: the server calls it a second time", ours="once"
            ),
            method.Difference(
                "under FedOMG",
                paper="FedOMG's Table 1, without details",
                code="not released",
                ours="FedOMG's step on all parameters",
            ),
        ),
    ),
    leaves=(method.OWN_MODEL,),
    combined={"fedomg": "reported in FedOMG's paper (Table 1)"},
)
