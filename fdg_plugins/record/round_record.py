# SPDX-License-Identifier: Apache-2.0
"""The parts of a run's record that say what was trained: the method, and each round.

Units and counts are those of :mod:`fdg_plugins.record.run_record`.
"""

from collections.abc import Mapping
from typing import Annotated, Any

import pydantic

from fdg_plugins.errors import FDGError
from fdg_plugins.messages import Checked, Evaluation, TrainingLoss

# In a record, an evaluation also has each score by name, such as ``accuracy``, in addition to its sum and count. The
# lambda has no return type, so that the schema stays that of an evaluation.
Judgement = Annotated[Evaluation, pydantic.WrapSerializer(lambda found, write: {**write(found), **found.values()})]
OwnValue = bool | int | float | str | None


class Recorded(Checked):
    """Base of the record's parts, which grow during the run."""

    model_config = pydantic.ConfigDict(frozen=False, extra="forbid", ser_json_inf_nan="null")


class Method(Recorded):
    """The aggregator's class name, its settings, and the local objective with all its settings."""

    aggregator: str
    settings: dict[str, Any]
    objective: dict[str, Any] = pydantic.Field(default_factory=lambda: {"name": "erm"})


class LocalRecord(Recorded):
    """One site's local training in one round; ``local`` evaluates the trained model on the site's validation split.

    ``epoch_losses`` and ``local`` are None if the site withholds them. ``keeps_state``: whether the site kept anything
    from which its next training goes on.
    """

    epoch_losses: tuple[TrainingLoss, ...] | None
    local: Judgement | None
    steps: int
    learning_rate: float
    num_samples: int
    seconds: float
    keeps_state: bool = False


class AggregationRecord(Recorded):
    """How the server combined the updates, by site; None if the method has no such value.

    ``gradient_divergence``: the mean distance of two updates. ``gap_variance``: of the gaps that came.

    ``idle``: the sites whose updates, or whose domains' mean updates, were too short to be matched. ``cancelled``: in
    records of 0.2.0, whether the matched ones cancelled.
    ``grouping_loss``: how far the matching of group means is above the optimum over all sites, relative to it.
    ``own``: what a plug-in's weighting or direction reports beyond this, by its names.
    """

    weights: dict[str, float]
    coefficients: dict[str, float]
    gamma: dict[str, float] | None = None
    gaps: dict[str, float | None] | None = None
    effective_steps: dict[str, float] | None = None
    training_losses: dict[str, float] | None = None
    update_norms: dict[str, float]
    cosines_with_mean: dict[str, float]
    cosines_with_direction: dict[str, float]
    mean_norm: float
    direction_norm: float
    gradient_divergence: float | None = None
    gap_variance: float | None = None
    objective: float | None = None
    duality_gap: float | None = None
    grouping_loss: float | None = None
    idle: tuple[str, ...] = ()
    cancelled: bool = False
    clip_factors: dict[str, float] | None = None
    own: dict[str, OwnValue | dict[str, OwnValue]] | None = None

    @classmethod
    def from_report(cls, report: Mapping[str, Any]) -> "AggregationRecord":
        """Return the record of an aggregator's report; raise ``FDGError`` in one sentence if it cannot be recorded.

        Lists ``[U]``, in the order of the report's ``sites``, become mappings by site.
        """
        named: dict[str, Any] = {}
        own: dict[str, Any] = {}
        for name, value in report.items():
            if isinstance(value, list) and len(value) == len(report["sites"]):
                value = dict(zip(report["sites"], value, strict=True))
            if name != "sites":
                (named if name in cls.model_fields and name != "own" else own)[name] = value
        return cls.read({**named, "own": own or None}, "the aggregator's report", FDGError)


class RoundRecord(Recorded):
    """One round. ``drawn`` are the sources that were asked to train, ``sites`` those whose update was usable.

    ``statistics`` are the sites on whose images the model that was sent had its normalization statistics measured;
    empty: they were averaged. ``failures`` maps each site without a usable answer to the reason; ``refused_reports``
    each site whose report was refused. ``not_finite``: the sites where the model that was sent gave no finite loss or
    update. ``bytes_down`` counts the tensors sent to each site that was asked, ``bytes_up`` all that arrived in time,
    refused ones among them; the tasks after the last round count in neither. ``bytes_in_files`` is the size of the
    updates that FLARE wrote to files as they arrived. ``classifier_disagreement``: the mean squared distance of a
    site's classifier gradient from their mean, under a method that reports them. ``aggregation`` is None if the model
    was left unchanged; ``reason`` then says why. ``undone``: sites could not train on the resulting model, so the step
    was undone in a later round. In a centralised run, a round is the steps before an evaluation, and ``aggregation``
    and ``reason`` are None.
    """

    round: int
    drawn: tuple[str, ...]
    sites: tuple[str, ...]
    statistics: tuple[str, ...] = ()
    failures: dict[str, str]
    refused_reports: dict[str, str] = pydantic.Field(default_factory=dict)
    not_finite: tuple[str, ...] = ()
    local: dict[str, LocalRecord]
    aggregation: AggregationRecord | None = None
    classifier_disagreement: float | None = None
    reason: str | None = None
    undone: bool = False
    seconds: float
    aggregation_seconds: float
    bytes_down: int
    bytes_up: int
    bytes_in_files: int = 0

    @property
    def is_idle(self) -> bool:
        """Whether the round left the model unchanged, or was undone."""
        return self.reason is not None or self.undone
