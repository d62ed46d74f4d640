# SPDX-License-Identifier: Apache-2.0
"""The contract of an aggregator: collect contributions, weight the sites, take a step; buffers follow their own rule.

One round: ``begin_round``, one ``accept_model`` per site, ``aggregate_model``. A method defines
:meth:`UpdateAggregator.direction` and, if it needs to, ``check`` (refuse a contribution), ``step_of`` (the step of one
parameter); its constructor checks what the settings' annotations do not say.

Equation: ``theta+ = theta + server_lr * sum_u c_u g_u``, with the coefficients c of the direction and the updates g.

Shapes: weights p and coefficients c ``[U]``, float64, in the sorted order of the sites; a step has the names and
shapes of the model's state dict.

Participation: an aggregator combines what it accepted in the round, from the sites of the round only, at most one
update per site. Without any, the step is empty and the model stays as it is.

Buffers: float buffers are averaged with p and not scaled by ``server_lr``; integer buffers move by the largest update.
"""

import math
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import torch
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.abstract.model import ModelLearnableKey
from nvflare.app_common.aggregators.model_aggregator import ModelAggregator
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.app_event_type import AppEventType

from fdg_plugins.aggregators.contributions import (
    Contribution,
    Direction,
    RunFacts,
    mean_metrics,
    read_contribution,
    read_model,
)
from fdg_plugins.aggregators.weightings import WEIGHTING, RoundOf, Weighting, folded, is_brought, make_weighting
from fdg_plugins.core.gram import gram_matrix, measure_step
from fdg_plugins.core.layout import ModelLayout, ParameterKind
from fdg_plugins.core.linear import combine, inner_product
from fdg_plugins.core.outliers import clip_factors
from fdg_plugins.core.stored import Values, whole
from fdg_plugins.core.weighting import limited_weights, uniform_weights
from fdg_plugins.errors import (
    ContributionError,
    SettingsError,
    calling,
    check_settings_known,
    one_line,
    read_like,
    told,
)
from fdg_plugins.flare.broken_uploads import register_server_tensors
from fdg_plugins.flare.context import allowed_at_server
from fdg_plugins.messages import META_REPORT
from fdg_plugins.plugins.classes import ClassesOf, parameters_of, read_spec
from fdg_plugins.plugins.fields import Positive, check_parameters
from fdg_plugins.plugins.files import check_allowed

AGGREGATOR_STATE = 1


class UpdateAggregator(ModelAggregator):
    """Base class of the aggregators; a subclass turns weights and updates into a direction.

    Contributions are stored by site name and combined in the sorted order of the names, in float64. The result
    therefore is bit-identical for any order of arrival.

    Args:
        weighting: reference weights p: ``"samples"``, ``"uniform"``, or ``{"name": ..., settings}``.
        server_lr: eta_g > 0, the factor of the step along the direction. One for plain averaging.
    """

    role: ClassVar[str] = "aggregator"
    takes_rule: ClassVar[bool] = False  # whether the setting ``over`` names the rule whose mean update it starts from
    whole_updates: ClassVar[bool] = True  # whether the step is one combination of whole updates
    needs_head: ClassVar[bool] = False  # whether the whole head must be shared
    reads_parts: ClassVar[bool] = False  # whether updates may stay in files
    reads_effective_steps: bool = False  # whether the direction uses the sites' effective steps
    reads_census: str | None = None  # what the aggregator cannot do without of the census, in words

    # Declarations for the contract suite (``fdg_plugins.testing``); nothing else reads them.
    neutral: ClassVar[Mapping[str, Any] | None] = None
    """Settings that give FedAvg, bit for bit, if all sites have equal steps and classes; None: none do."""
    scales_with_updates: ClassVar[bool] = True
    """Whether scaling all updates by a positive factor scales the step by the same factor."""

    def __init__(self, weighting: str | dict[str, Any] = "samples", server_lr: Positive = 1.0) -> None:
        super().__init__()
        self.weighting = weighting
        self.server_lr = server_lr
        self.facts = RunFacts()  # what is known about the federation; set before the first round
        self.contributions: dict[str, Contribution] = {}  # of the round, by site in sorted order
        self._layout: ModelLayout | None = None
        self._sites: frozenset[str] | None = None
        self._round_of: RoundOf | None = None
        self._gram: tuple[list[int], torch.Tensor] | None = None  # identities of contributions, and their Gram matrix
        self._rule: Weighting | None = None if is_brought(weighting) else make_weighting(weighting)
        self._announced_rounds = 0  # by a workflow of FLARE's own
        check_parameters(self)

    # --- what a method defines ---

    @abstractmethod
    def direction(self, weights: torch.Tensor, contributions: Sequence[Contribution]) -> Direction:
        """Return the direction of a round.

        Args:
            weights: p, float64 ``[U]``; on the simplex, or all zero.
            contributions: one per site of the round, in the sorted order of the sites.
        """

    def check(self, contribution: Contribution) -> None:
        """Raise ``ContributionError`` for a contribution that the method cannot use; only that one is refused."""

    def step_of(
        self, name: str, weights: torch.Tensor, coefficients: torch.Tensor, contributions: Sequence[Contribution]
    ) -> torch.Tensor:
        """Return the step of one trainable parameter, with the parameter's shape.

        By default the whole parameter moves along the direction; a method may treat its rows separately.

        Args:
            name: of the parameter.
            weights: p ``[U]``.
            coefficients: of the direction ``[U]``, multiplied by ``server_lr``.
            contributions: in the order of the coefficients.
        """
        return combine(coefficients, [contribution.update[name] for contribution in contributions])

    def gram(self, contributions: Sequence[Contribution]) -> torch.Tensor:
        """Return the Gram matrix of the updates over the trainable parameters, float64 ``[U, U]``.

        It is kept until the next round begins, so that measuring the step does not compute it again.
        """
        found = gram_matrix([self._trainable(contribution) for contribution in contributions])
        self._gram = [id(one) for one in contributions], found
        return found

    # --- settings ---

    def settings(self) -> dict[str, Any]:
        """Return the settings by name: the parameters of the constructor, which it has kept as attributes."""
        names = parameters_of(type(self))
        if lacking := [name for name in names if not hasattr(self, name)]:
            raise SettingsError(
                f"{type(self).__name__} keeps no attribute {lacking[0]!r}, a parameter of its constructor."
            )
        return {name: getattr(self, name) for name in names}

    def configured(self, settings: Mapping[str, Any]) -> Self:
        """Return an aggregator with other settings, or of its weighting, by name; text is converted to their type.

        Raises ``SettingsError`` for an unknown name or a value out of range.
        """
        settings = folded(settings, in_force := self.settings())
        check_settings_known(type(self).__name__, settings, list(in_force))
        return type(self)(**in_force | {name: read_like(value, in_force[name]) for name, value in settings.items()})

    def rule(self) -> Weighting:
        """Return the weighting, which is looked up now if a plug-in brings it, and not by the constructor.

        FLARE builds the components of a job before the workflow has asked whether the operator allows a plug-in, and
        its own workflows never ask. Raises ``SettingsError`` as :func:`~fdg_plugins.aggregators.make_weighting`.
        """
        if self._rule is None:
            if self.fl_ctx is not None:
                check_allowed(WEIGHTING, read_spec(WEIGHTING, self.weighting)[0], allowed_at_server(self.fl_ctx))
            self._rule = make_weighting(self.weighting)
        return self._rule

    # --- one round ---

    def begin_round(
        self,
        layout: ModelLayout,
        sites: Iterable[str],
        round_number: int = 0,
        total_rounds: int = 1,
        gone: Iterable[str] = (),
    ) -> None:
        """Discard the previous round; from now on accept only updates of ``layout`` from ``sites``.

        Rounds count from 0, as in FLARE. ``gone``: the sites that take no further part in the run.
        """
        self.reset_stats()
        self._gram, self._layout = None, layout
        self._sites = frozenset(sites)
        self._round_of = RoundOf(round_number, total_rounds, tuple(sorted(self._sites)), frozenset(gone))

    def state(self) -> dict[str, Any]:
        """Return what must survive the round, as a JSON value."""
        return {"version": AGGREGATOR_STATE, "weighting": self.rule().state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state` returned."""
        self.rule().restore(state["weighting"])

    def accept_model(self, model: FLModel) -> None:
        """Check and store one site's update; raise ``ContributionError`` with the reason if it cannot be used."""
        layout = self._layout or self._layout_in_context()
        contribution = read_contribution(model, layout, in_files=self.reads_parts)
        site = contribution.site
        if self._sites is not None and site not in self._sites:
            contribution.refuse("sent an update but does not train in this round")
        if site in self.contributions:
            contribution.refuse("sent a second update in the same round")
        self.rule().check(contribution)
        self.check(contribution)
        self._layout = layout or ModelLayout.of(contribution.update)
        self.contributions = dict(sorted({**self.contributions, site: contribution}.items()))

    def aggregate_model(self) -> FLModel:
        """Return the step of the round as an update of the global model, with the report in its meta data.

        Its metrics are the means of the sites'. Without an accepted contribution the update is empty, and the model
        stays as it is. The contributions are dropped. Raises ``PartError``, which names it, if weighting or direction
        raise an unforeseen error.
        """
        if not self.contributions:
            self.warning("No usable contribution in this round: the global model stays as it is.")
            return FLModel(params_type=ParamsType.DIFF, params={}, meta={META_REPORT: {"sites": []}})
        contributions, rule = list(self.contributions.values()), self.rule()
        with calling("weighting", rule):
            weights = rule(contributions, self._round_of or self._round_in_context())
            weights = limited_weights(weights, [contribution.num_samples for contribution in contributions])
            weighting_report = rule.report(contributions)
        with calling("aggregator", self):
            direction = self.direction(weights, contributions)
            _check_shape("coefficients", direction.coefficients, weights.shape)
        step = self._step(weights, direction.coefficients, contributions)
        report = {
            "sites": [contribution.site for contribution in contributions],
            "weights": weights.tolist(),
            "coefficients": direction.coefficients.tolist(),
            **weighting_report,
            **direction.report,
        }
        arrays = all(contribution.arrays for contribution in contributions)
        params = {name: value.numpy() for name, value in step.items()} if arrays else step
        metrics = mean_metrics(contributions)
        self.reset_stats()
        return FLModel(params_type=ParamsType.DIFF, params=params, metrics=metrics, meta={META_REPORT: report})

    def reset_stats(self) -> None:
        """Discard the contributions of the round."""
        self.contributions, self._layout = {}, None

    def _step(
        self, weights: torch.Tensor, coefficients: torch.Tensor, contributions: Sequence[Contribution]
    ) -> dict[str, torch.Tensor]:
        step = {}
        for name, entry in (self._layout or ModelLayout()).items():
            values = [contribution.update[name] for contribution in contributions]
            if entry.kind is ParameterKind.TRAINABLE:
                with calling("aggregator", self):
                    step[name] = self.step_of(name, weights, coefficients * self.server_lr, contributions)
                    _check_shape(f"step of {name}", step[name], entry.shape)
            elif entry.kind is ParameterKind.FLOAT_BUFFER:
                step[name] = combine(weights, values)
            else:
                # torch cannot compute a maximum of the wider unsigned integers
                counters = torch.stack([whole(value).to(torch.int64) for value in values])
                step[name] = counters.amax(dim=0).to(entry.dtype)
        return step

    def _trainable(self, contribution: Contribution) -> dict[str, Values]:
        """Return the trainable parameters of an update, which are the part that is matched, clipped and measured."""
        names = (self._layout or ModelLayout()).names(ParameterKind.TRAINABLE)
        return {name: contribution.update[name] for name in names}

    def _clip(self) -> dict[str, Any]:
        """Shorten long updates to ``clip_to_median`` medians of the round; return the factors ``[U]`` for the report.

        Every direction is a combination of the updates, so this limits how far an undetected dishonest site can pull
        the model. Buffers are not scaled. Without ``clip_to_median``, nothing changes and the result is empty.
        """
        if self.facts.clip_to_median is None or not self.contributions:
            return {}
        parts = {site: self._trainable(one) for site, one in self.contributions.items()}
        lengths = [math.sqrt(inner_product(part, part)) for part in parts.values()]
        factors = clip_factors(lengths, self.facts.clip_to_median)
        for (site, part), factor in zip(parts.items(), factors, strict=True):
            if factor != 1.0:
                one, scaled = self.contributions[site], {name: whole(value) * factor for name, value in part.items()}
                self.contributions[site] = replace(one, update={**one.update, **scaled})
        return {"clip_factors": factors}

    # --- FLARE's own workflows ---

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Prepare for broken uploads; note the number of rounds, which FLARE's FedAvg announces in its first only."""
        super().handle_event(event_type, fl_ctx)
        if event_type == EventType.START_RUN:
            register_server_tensors()
        if event_type == AppEventType.ROUND_STARTED:
            self._announced_rounds = fl_ctx.get_prop(AppConstants.NUM_ROUNDS, self._announced_rounds)

    def accept(self, shareable: Shareable, fl_ctx: FLContext) -> bool:
        """Accept the contribution in ``shareable``; if it cannot be used, log the reason and return False."""
        self.fl_ctx = fl_ctx
        try:
            self.accept_model(read_model(shareable, fl_ctx))
        except Exception as error:  # noqa: BLE001 - with any, FLARE would end the task for all other sites
            known = isinstance(error, ContributionError)
            self.warning(f"Contribution refused: {error if known else one_line(told(error))}")
            return False
        return True

    def _round_in_context(self) -> RoundOf:
        number = self.fl_ctx.get_prop(AppConstants.CURRENT_ROUND, 0) if self.fl_ctx else 0
        return RoundOf(number, max(self._announced_rounds, number + 1))

    def _layout_in_context(self) -> ModelLayout | None:
        model = self.fl_ctx.get_prop(AppConstants.GLOBAL_MODEL) if self.fl_ctx else None
        weights = model.get(ModelLearnableKey.WEIGHTS) if isinstance(model, Mapping) else None
        return ModelLayout.of(weights) if weights else None


def _check_shape(what: str, value: torch.Tensor, expected: Sequence[int]) -> None:
    if tuple(value.shape) != tuple(expected):
        raise ValueError(f"{what}: shape is {[*value.shape]}, expected {[*expected]}")


def take_step(aggregator: UpdateAggregator) -> FLModel:
    """Return the step of the round; its report includes the measurements of ``core.gram.measure_step``.

    The measurements are computed here, because an aggregator may override any method: from the updates as accepted (and
    shortened, if the run asks for it) and from the step itself. The mean uses the weights that the aggregator reports,
    or uniform weights if it reports none.
    """
    clipping = aggregator._clip()
    contributions = list(aggregator.contributions.values())
    updates = [aggregator._trainable(contribution) for contribution in contributions]
    result = aggregator.aggregate_model()
    if not contributions:
        return result
    step = {name: torch.as_tensor(result.params[name]) for name in updates[0]}
    sites = [contribution.site for contribution in contributions]
    report: dict[str, Any] = {"sites": sites, "weights": {}, "coefficients": {}, **(result.meta.get(META_REPORT) or {})}
    own = report["weights"]
    weights = torch.tensor(own, dtype=torch.float64) if len(own) == len(sites) else uniform_weights(len(sites))
    known, gram = aggregator._gram or ([], None)
    gram = gram if known == [id(one) for one in contributions] else None
    measured = measure_step(updates, step, weights, aggregator.server_lr, gram)
    result.meta = {**result.meta, META_REPORT: {**report, **clipping, **measured}}
    return result


AGGREGATORS: ClassesOf[UpdateAggregator] = ClassesOf("aggregator")


def make_aggregator(spec: str | Mapping[str, Any]) -> UpdateAggregator:
    """Return the aggregator that ``spec`` describes: a name, or ``{"name": ..., <its settings>}``.

    The workflow makes it, since FLARE would bury an error in its own traceback. Raises ``SettingsError`` for an unknown
    name or setting, or a value out of range, of the weighting too.

    >>> make_aggregator({"name": "fedomg", "kappa": 0.25}).kappa
    0.25
    """
    made = AGGREGATORS.make(spec)
    made.rule()  # looked up before the first round, so that a wrong setting of it is told now
    return made
