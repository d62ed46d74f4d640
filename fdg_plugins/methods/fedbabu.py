# SPDX-License-Identifier: Apache-2.0
r"""FedBABU: the sites train the extractor under a head that never changes; a site fine-tunes a copy to have its own.

Algorithm -> here:

- the head keeps its initial value at server and sites -> the protocol's ``travels`` ``body``
  (:mod:`fdg_plugins.core.travel`)
- a site minimises its loss over the extractor: :class:`~fdg_plugins.objectives.erm.LocalRisk` on what is not frozen
- at evaluation a site fine-tunes a copy of the model and discards it -> :meth:`FedBABUObjective.personal`

Participation: as under FedAvg. Nothing is kept, so absent and new sites need no rule. The held-out domain is judged by
the extractor and the initial head, without fine-tuning.

Buffers: averaged as under FedAvg; those of the fine-tuned copy are discarded with it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives.erm import LocalRisk
from fdg_plugins.objectives.exchange import Tensors
from fdg_plugins.objectives.objective import FineTuning, LocalObjective, Objective, PersonalModel, Point, SiteRound
from fdg_plugins.plugins.method import (
    Default,
    Difference,
    Differences,
    Equation,
    Leaving,
    Method,
    Reference,
    SettingSource,
)

Part = Literal["all", "head", "body"]


@dataclass(frozen=True)
class FedBABUObjective(Objective):
    """The task's loss; a site's own model is the received one after fine-tuning.

    Args:
        fine_tune_epochs: passes over a site's training split; with 0 its own model is the received one.
        fine_tune: the parameters that are fine-tuned: ``"all"``, as in the authors' code, ``"head"`` or ``"body"``.

    That the head is fixed in training is the protocol's ``travels`` ``body``; with ``all`` this is FedAvg's training.
    """

    name: ClassVar[str] = "babu"
    acts: ClassVar[tuple[Point, ...]] = ("personal",)
    neutral: ClassVar[Mapping[str, Any] | None] = {}
    personalises: ClassVar[bool] = True

    fine_tune_epochs: Annotated[int, Field(ge=0, le=1000)] = 5
    fine_tune: Part = "all"

    def local(self, received: Tensors, model: ExtractorClassifier, site: SiteRound = SiteRound()) -> LocalObjective:
        self.refuse_payload(received)
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


METHOD = Method(
    key="fedbabu",
    title="FedBABU",
    part="babu",
    line="the extractor alone is trained and travels, under the initial head; each site judges a fine-tuned copy too",
    reference=Reference(
        authors="Oh, Kim, Yun",
        title="FedBABU: Toward Enhanced Representation for Federated Image Classification",
        venue="ICLR",
        year=2022,
    ),
    classes=(FedBABUObjective,),
    defaults=(Default(protocol={"travels": "body"}, source="FedBABU: the head is never trained in the federation"),),
    letters="φ extractor; h head; h⁰ its initial value; CE mean cross entropy of a batch; E fine_tune_epochs",
    equations=(
        Equation(
            formula="min_φ CE(h⁰(φ(x)), y)", meaning="what a site minimises, with h⁰ at all sites and in all rounds"
        ),
        Equation(
            formula="(φᵤ, hᵤ) = SGD_E(φ, h⁰)",
            meaning="a site's own model: E epochs on its training split from the received one, judged and discarded",
        ),
    ),
    settings=(
        SettingSource(
            name="fine_tune_epochs",
            symbol="E",
            paper="not established",
            code="5; PFLlib, FedOMG 10",
            remark="0: the received model itself",
        ),
        SettingSource(name="fine_tune", paper="all, head or body", code="all", remark="all, head or body"),
        SettingSource(name="travels", paper="body", code="body", remark="all is FedAvg with fine-tuning at evaluation"),
    ),
    differences=Differences(
        rows=(
            Difference(
                point="when sites fine-tune",
                paper="at evaluation",
                code="at evaluation; PFLlib: the site's live model, after the last round",
                ours="whenever a model is judged, on a copy",
            ),
            Difference(
                point="under FedOMG",
                paper="FedOMG's Table 1, without details",
                code="not released",
                ours="FedOMG's step on the extractor",
            ),
        )
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
