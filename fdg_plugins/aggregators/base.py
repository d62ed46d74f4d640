# SPDX-License-Identifier: Apache-2.0
"""The aggregator contract: collect contributions, weigh the sites, take a step; buffers by their own rule."""

import inspect
import math
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import torch
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.abstract.model import ModelLearnableKey
from nvflare.app_common.aggregators.model_aggregator import ModelAggregator
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.utils.fl_model_utils import FLModelUtils

from fdg_plugins.aggregators.contributions import Contribution, read_contribution
from fdg_plugins.aggregators.weightings import RoundOf, Weighting, make_weighting
from fdg_plugins.core.layout import ModelLayout, ParameterKind
from fdg_plugins.core.linear import combine, inner_product
from fdg_plugins.core.outliers import clip_factors
from fdg_plugins.core.stored import Values, whole
from fdg_plugins.errors import ContributionError, SettingsError
from fdg_plugins.flare.peers import authenticated_site
from fdg_plugins.messages import LONGEST_QUOTE, META_REPORT, META_SITE, one_line
from fdg_plugins.values import is_number, shorten, too_large

STATE_VERSION = 1


class Direction(NamedTuple):
    """A direction as coefficients ``[U]`` of the updates, and what the method reports of it."""

    coefficients: torch.Tensor
    report: dict[str, Any]


class RunFacts(NamedTuple):
    """What a workflow of this package knows of a run.

    ``class_counts``: how many images each source has of each class ``[Y]``, as the sites counted them. ``last_layer``:
    the names of the parameters, weight and bias, whose rows are the classes. ``clip_to_median``: to how many medians of
    the round updates are shortened (None: never).
    """

    class_counts: Mapping[str, Sequence[int]] = {}
    last_layer: tuple[str, ...] = ()
    clip_to_median: float | None = None


class UpdateAggregator(ModelAggregator):
    """Base of this package's aggregators; a subclass says how weights and Gram matrix become a direction.

    Contributions are kept by site name and combined in the sorted order of the names, in float64: the
    result has the same bits for any order of arrival.

    Args:
        weighting: reference weights p: ``"samples"``, ``"uniform"``, or ``{"name": ..., settings}``.
        server_lr: eta_g > 0, the factor of the step along the direction. One for plain averaging.
    """

    excludes: ClassVar[Mapping[str, str]] = {}  # objectives that contradict the direction, and why
    reads_step_lengths: ClassVar[bool] = False  # whether it follows from how far steps go, which SGD's rate tells
    reads_parts: ClassVar[bool] = False  # whether updates may stay in files: ``core``'s functions alone read them

    def __init__(self, weighting: str | dict[str, Any] = "samples", server_lr: float = 1.0) -> None:
        super().__init__()
        self.weighting = weighting
        self.server_lr = server_lr
        self.facts = RunFacts()
        self._layout: ModelLayout | None = None
        self._sites: frozenset[str] | None = None
        self._round_of: RoundOf | None = None
        self.reset_stats()
        self._validate()

    # --- what a method defines ---

    @abstractmethod
    def direction(self, weights: torch.Tensor, contributions: Sequence[Contribution]) -> Direction:
        """Return the direction of a round from p ``[U]`` and the contributions in the sorted order of their sites."""

    def check(self, contribution: Contribution) -> None:
        """Raise ``ContributionError`` for a contribution that the method cannot use, so that it is refused alone."""

    def step_of(
        self, name: str, weights: torch.Tensor, coefficients: torch.Tensor, contributions: Sequence[Contribution]
    ) -> torch.Tensor:
        """Return the step of one trainable parameter: all of it along the direction; a method may part it by rows.

        ``coefficients`` ``[U]`` are those of the direction, ``server_lr`` included; ``weights`` ``[U]`` are p.
        """
        return combine(coefficients, [contribution.update[name] for contribution in contributions])

    # --- settings ---

    @classmethod
    def setting_names(cls) -> list[str]:
        """Return the names of the settings, which are those of the constructor."""
        return [name for name in inspect.signature(cls).parameters if name != "self"]

    def settings(self) -> dict[str, Any]:
        """Return the settings in force."""
        return {name: getattr(self, name) for name in self.setting_names()}

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Replace settings by name before the first round; text, as from the environment, is read as their type."""
        in_force = self.settings()
        for name in settings:
            if name not in in_force:
                raise SettingsError(f"{type(self).__name__} has no setting {shorten(name)}; it has {list(in_force)}.")
        wanted = {name: _like(name, value, in_force[name]) for name, value in settings.items()}
        try:
            self._set(wanted)
        except SettingsError:
            self._set(in_force)
            raise

    @property
    def needs_reports(self) -> bool:
        """Whether the weights follow from reports that the server's filters must have checked."""
        return self._weigh.needs_reports

    @property
    def needs_training_loss(self) -> bool:
        """Whether the weights follow from the loss of the model received on the sites' training images."""
        return self._weigh.needs_training_loss

    @property
    def shares(self) -> str | None:
        """What the sites share for the weighting, as their administrators allow or forbid it."""
        return self._weigh.shares

    def _set(self, settings: Mapping[str, Any]) -> None:
        for name, value in settings.items():
            setattr(self, name, value)
        self._validate()

    def _validate(self) -> None:
        self._weigh: Weighting = make_weighting(self.weighting)
        check_number("server_lr", self.server_lr, above=0.0)

    # --- one run ---

    def begin_run(self, facts: RunFacts) -> None:
        """Take what is known of the federation before the first round."""
        self.facts = facts

    # --- one round ---

    def begin_round(
        self, layout: ModelLayout, sites: Iterable[str], round_number: int = 0, total_rounds: int = 1
    ) -> None:
        """Drop what is left of the last round; accept only updates of ``layout`` from ``sites`` from now on.

        Rounds count from 0, as in FLARE.
        """
        self.reset_stats()
        self._layout = layout
        self._sites = frozenset(sites)
        self._round_of = RoundOf(round_number, total_rounds, tuple(sorted(self._sites)))

    def state(self) -> dict[str, Any]:
        """Return what must survive the round, as a value for JSON."""
        return {"version": STATE_VERSION, "weighting": self._weigh.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take back what :meth:`state` returned; raise ``SettingsError`` for another version."""
        if state.get("version") != STATE_VERSION:
            raise SettingsError(
                f"state of the aggregator has version {state.get('version')}, expected {STATE_VERSION}."
            )
        self._weigh.restore(state["weighting"])

    def accept_model(self, model: FLModel) -> None:
        """Take one site's update; raise ``ContributionError`` with the reason if it cannot be used."""
        contribution = read_contribution(model, self._layout or self._reference(), in_files=self.reads_parts)
        site = contribution.site
        if self._sites is not None and site not in self._sites:
            raise ContributionError(f"site {site}: sent an update but does not train in this round.")
        if site in self._contributions:
            raise ContributionError(f"site {site}: sent a second update in the same round.")
        self._weigh.check(contribution)
        self.check(contribution)
        if not self._contributions:
            self._round_layout = self._layout or self._reference() or ModelLayout.of(contribution.update)
        self._contributions[site] = contribution

    def aggregate_model(self) -> FLModel:
        """Return the step of the round as an update of the global model, its report in the meta; an empty one if no
        contribution was accepted, which leaves the model as it is."""
        if not self._contributions:
            self.warning("No usable contribution in this round: the global model stays as it is.")
            return FLModel(params_type=ParamsType.DIFF, params={}, meta={META_REPORT: {"sites": []}})
        contributions, clipping = self._clipped([self._contributions[site] for site in sorted(self._contributions)])
        weights = self._weigh(contributions, self._round_of or self._round_in_context())
        direction = self.direction(weights, contributions)
        step = self._step(weights, direction.coefficients, contributions)
        report = {
            "sites": [contribution.site for contribution in contributions],
            "weights": weights.tolist(),
            "coefficients": direction.coefficients.tolist(),
            **self._weigh.report(contributions),
            **direction.report,
            **clipping,
        }
        arrays = all(contribution.arrays for contribution in contributions)
        params = {name: value.numpy() for name, value in step.items()} if arrays else step
        self.reset_stats()
        return FLModel(params_type=ParamsType.DIFF, params=params, meta={META_REPORT: report})

    def _clipped(self, contributions: Sequence[Contribution]) -> tuple[Sequence[Contribution], dict[str, Any]]:
        """Return the contributions, long ones shortened to ``clip_to_median`` medians, and for the report the factors.

        Every direction is made of the updates, so that none can be dragged far by a site of which nobody knows that it
        lies. Buffers stay as they are.
        """
        if self.facts.clip_to_median is None:
            return contributions, {}
        lengths = [math.sqrt(inner_product(self.trainable(one), self.trainable(one))) for one in contributions]
        factors = clip_factors(lengths, self.facts.clip_to_median)
        shortened = [
            one if factor == 1.0 else self._scaled(one, factor)
            for one, factor in zip(contributions, factors, strict=True)
        ]
        return shortened, {"clip_factors": factors}

    def _scaled(self, contribution: Contribution, factor: float) -> Contribution:
        scaled = {name: whole(value) * factor for name, value in self.trainable(contribution).items()}
        return replace(contribution, update={**contribution.update, **scaled})

    def accepted(self) -> dict[str, Contribution]:
        """Return the contributions accepted in this round, by site; none once they were aggregated."""
        return dict(sorted(self._contributions.items()))

    def drop(self, site: str) -> None:
        """Leave out what a site contributed to this round; without effect if there is nothing."""
        self._contributions.pop(site, None)

    def accepted_updates(self) -> dict[str, dict[str, Values]]:
        """Return the updates accepted in this round, by site; none once they were aggregated."""
        return {site: contribution.update for site, contribution in sorted(self._contributions.items())}

    def reset_stats(self) -> None:
        """Forget the round's contributions."""
        self._contributions: dict[str, Contribution] = {}
        self._round_layout = ModelLayout()

    def _step(
        self, weights: torch.Tensor, coefficients: torch.Tensor, contributions: Sequence[Contribution]
    ) -> dict[str, torch.Tensor]:
        step = {}
        for name, entry in self._round_layout.items():
            values = [contribution.update[name] for contribution in contributions]
            if entry.kind is ParameterKind.TRAINABLE:
                step[name] = self.step_of(name, weights, coefficients * self.server_lr, contributions)
            elif entry.kind is ParameterKind.FLOAT_BUFFER:
                step[name] = combine(weights, values)
            else:
                # torch finds no maximum of the wider unsigned integers
                counters = torch.stack([whole(value).to(torch.int64) for value in values])
                step[name] = counters.amax(dim=0).to(entry.dtype)
        return step

    def trainable(self, contribution: Contribution) -> dict[str, Values]:
        """Return the part of an update that is matched: the trainable parameters."""
        return {name: contribution.update[name] for name in self._round_layout.names(ParameterKind.TRAINABLE)}

    # --- FLARE's Aggregator interface (ScatterAndGather) ---

    def accept(self, shareable: Shareable, fl_ctx: FLContext) -> bool:
        """Take the contribution in ``shareable``; return False, with the reason in the log, if it cannot be used."""
        self.fl_ctx = fl_ctx
        try:
            self.accept_model(_read_model(shareable, fl_ctx))
        except ContributionError as error:
            self.warning(f"Contribution refused: {error}")
            return False
        return True

    def _round_in_context(self) -> RoundOf:
        """Return the round that a stock workflow shows in its context."""
        number = self.fl_ctx.get_prop(AppConstants.CURRENT_ROUND, 0) if self.fl_ctx else 0
        total = self.fl_ctx.get_prop(AppConstants.NUM_ROUNDS, number + 1) if self.fl_ctx else 1
        return RoundOf(number, max(total, number + 1))

    def _reference(self) -> ModelLayout | None:
        """Return the layout of the global model that a stock workflow shows in its context, or that of the round."""
        model = self.fl_ctx.get_prop(AppConstants.GLOBAL_MODEL) if self.fl_ctx else None
        weights = model.get(ModelLearnableKey.WEIGHTS) if isinstance(model, Mapping) else None
        return ModelLayout.of(weights) if weights else self._round_layout or None


def check_number(name: str, value: Any, above: float | None = None, at_least: float | None = None) -> None:
    """Raise ``SettingsError`` unless ``value`` is in the range given and no larger than ``values.LARGEST``."""
    if not is_number(value) or (above is not None and value <= above) or (at_least is not None and value < at_least):
        limit = f"above {above}" if above is not None else f"of at least {at_least}"
        raise SettingsError(f"{name} is {shorten(value)}, expected a finite number {limit}{too_large(value)}.")


def cosines(products: torch.Tensor, lengths: torch.Tensor, length: float) -> list[float]:
    """Return the cosines from inner products ``[U]`` and lengths; zero where a length is zero."""
    scale = lengths * length
    return (
        torch.where(scale > 0, products / scale.clamp_min(torch.finfo(torch.float64).tiny), 0.0).clamp(-1, 1).tolist()
    )


def _like(name: str, value: Any, current: Any) -> Any:
    if not isinstance(value, str) or isinstance(current, str | dict):
        return value
    try:
        if isinstance(current, bool):
            return {"true": True, "1": True, "false": False, "0": False}[value.strip().lower()]
        return float(value)
    except (KeyError, ValueError) as error:
        raise SettingsError(f"{name} is {shorten(value)}, expected a {type(current).__name__}.") from error


def _read_model(shareable: Shareable, fl_ctx: FLContext) -> FLModel:
    """Return what a site sent, its name in the meta; refuse what is not an update for this round."""
    site = "without a name"
    try:
        site = authenticated_site(shareable, fl_ctx)
        _check_round(site, shareable, fl_ctx)
        model = FLModelUtils.from_shareable(shareable)
    except ContributionError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RuntimeError) as error:
        reason = one_line(str(error).rstrip("."), LONGEST_QUOTE)
        raise ContributionError(f"site {site}: sent something that is not an update: {reason}.") from error
    model.meta[META_SITE] = site
    return model


def _check_round(site: str, shareable: Shareable, fl_ctx: FLContext) -> None:
    sent_for = shareable.get_cookie(AppConstants.CONTRIBUTION_ROUND, None)
    current = fl_ctx.get_prop(AppConstants.CURRENT_ROUND) if fl_ctx else None
    if sent_for is not None and current is not None and sent_for != current:
        raise ContributionError(f"site {site}: sent an update for round {sent_for} in round {current}.")
