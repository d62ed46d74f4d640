# SPDX-License-Identifier: Apache-2.0
"""FedBABU: the sites train the extractor under a head that never changes; a site fine-tunes a copy to have its own.

- the head keeps its initial value at server and sites -> the protocol's ``travels`` ``body``
  (:mod:`fdg_plugins.core.travel`); a site minimises its loss over the rest
- at evaluation a site fine-tunes a copy of the model and discards it -> :meth:`FedBABUObjective.personal`

Participation, buffers: as under FedAvg; nothing is kept. The held-out domain is evaluated by the extractor and the
initial head, without fine-tuning.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives.erm import LocalRisk
from fdg_plugins.objectives.exchange import Tensors
from fdg_plugins.objectives.objective import FineTuning, LocalObjective, Objective, PersonalModel, SiteRound
from fdg_plugins.plugins import method

Part = Literal["all", "head", "body"]


@dataclass(frozen=True)
class FedBABUObjective(Objective):
    """The task's loss; a site's own model is the received one after fine-tuning."""

    name = "babu"
    acts = ("personal",)
    neutral = {}
    personalises = True

    fine_tune_epochs: Annotated[int, Field(ge=0, le=1000)] = 5
    fine_tune: Part = "all"

    def local(self, received: Tensors, model: ExtractorClassifier, site: SiteRound = SiteRound()) -> LocalObjective:
        return LocalRisk(task=site.task)

    def personal(self, model: ExtractorClassifier, received: Tensors, site: SiteRound = SiteRound()) -> PersonalModel:
        if self.fine_tune_epochs == 0:
            return PersonalModel(model)
        return PersonalModel(model, FineTuning(parameters_of(model, self.fine_tune), int(self.fine_tune_epochs)))


def parameters_of(model: ExtractorClassifier, part: Part) -> tuple[str, ...]:
    """Return the names of the parameters of a part of the model, without those outside the head that are frozen.

    The method freezes the head in training to fine-tune it.
    """
    head = set(model.head_names)
    names = (name for name, parameter in model.named_parameters() if name in head or parameter.requires_grad)
    return tuple(name for name in names if part == "all" or (name in head) == (part == "head"))


METHOD = method.Method(
    key="fedbabu",
    title="FedBABU",
    rank=19,
    line=("the extractor alone is trained and travels, under the initial head; sites evaluate a fine-tuned copy too"),
    reference=method.Reference(
        "Oh, Kim, Yun", "FedBABU: Toward Enhanced Representation for Federated Image Classification", "ICLR", 2022
    ),
    classes=(FedBABUObjective,),
    defaults=(
        method.Default(protocol={"travels": "body"}, source="FedBABU: the head is never trained in the federation"),
    ),
    letters="φ extractor; h head; h⁰ its initial value; CE mean cross entropy of a batch; E fine_tune_epochs",
    equations=(
        method.Equation("min_φ CE(h⁰(φ(x)), y)", "what a site minimises, with h⁰ at all sites and in all rounds"),
        method.Equation(
            "(φᵤ, hᵤ) = SGD_E(φ, h⁰)",
            "a site's own model: E epochs on its training split from the received one, evaluated and discarded",
        ),
    ),
    settings=(
        method.SettingSource(
            "fine_tune_epochs",
            symbol="E",
            code="5; PFLlib, FedOMG 10",
            remark="passes over a site's training split; 0: the received model itself",
        ),
        method.SettingSource("fine_tune", paper="all, head or body", code="all", remark="all, head or body"),
        method.SettingSource(
            "travels", paper="body", code="body", remark="all is FedAvg with fine-tuning at evaluation"
        ),
    ),
    differences=method.Differences(
        rows=(
            method.Difference(
                "when sites fine-tune",
                paper="at evaluation",
                code="at evaluation; PFLlib: the site's live model, after the last round",
                ours="whenever a model is evaluated, on a copy",
            ),
            method.Difference(
                "under FedOMG",
                paper="FedOMG's Table 1, without details",
                code="not released",
                ours="FedOMG's step on the extractor",
            ),
        )
    ),
    leaves=(method.OWN_MODEL,),
    combined={"fedomg": "reported in FedOMG's paper (Table 1)"},
)
