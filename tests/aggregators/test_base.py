# SPDX-License-Identifier: Apache-2.0
"""What the base class sees to: messages, refusals, settings, metrics, and what is measured of the step really made."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from nvflare.apis.dxo import DataKind, from_shareable
from nvflare.apis.fl_constant import ReservedKey
from nvflare.apis.fl_context import FLContext, FLContextManager
from nvflare.apis.shareable import Shareable
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.abstract.model import make_model_learnable
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.app_event_type import AppEventType
from nvflare.app_common.utils.fl_model_utils import FLModelUtils
from nvflare.app_common.workflows.base_fedavg import BaseFedAvg

from fdg_plugins.aggregators import (
    AGGREGATORS,
    Contribution,
    UpdateAggregator,
    make_aggregator,
    make_weighting,
    take_step,
)
from fdg_plugins.aggregators.contributions import Direction
from fdg_plugins.errors import PartError, SettingsError
from fdg_plugins.messages import META_CHECKED_REPORTS, META_REPORT, META_SAMPLES, META_SITE
from fdg_plugins.methods.fedavg import FedAvgAggregator
from fdg_plugins.methods.fedga import FedGAAggregator
from fdg_plugins.methods.fedomg import FedOMGAggregator
from fdg_plugins.record.round_record import AggregationRecord
from fdg_plugins.testing.inputs import (
    SITES,
    TRAINABLE,
    UNEQUAL_CLASSES,
    flat,
    message,
    random_update,
    random_updates,
    run_round,
)
from tests.aggregators.trained_sites import contribution

Params = dict[str, Any]


def server_context(global_model: Params | None = None) -> FLContext:
    """Return a server's context, as ScatterAndGather fills it."""
    context = FLContextManager(identity_name="server", job_id="job").new_context()
    context.set_prop(AppConstants.CURRENT_ROUND, 0, private=True, sticky=True)
    if global_model is not None:
        learnable = make_model_learnable(weights=global_model, meta_props={})
        context.set_prop(AppConstants.GLOBAL_MODEL, learnable, private=True, sticky=True)
    return context


def arrived(site: str, params: Params, **meta: Any) -> Shareable:
    """Return what FLARE's server hands to ``accept``: a DXO and the peer's properties."""
    told = message(site, params)
    told.meta = {META_SAMPLES: 10, META_REPORT: told.meta[META_REPORT], **meta}
    sent = FLModelUtils.to_shareable(told)
    sent.set_peer_props({ReservedKey.IDENTITY_NAME: site})
    sent.add_cookie(AppConstants.CONTRIBUTION_ROUND, 0)
    return sent


def step_of(aggregator: UpdateAggregator, context: FLContext) -> Params:
    """Return the parameters of the round's step, as ScatterAndGather gets them."""
    dxo = from_shareable(aggregator.aggregate(context))
    assert dxo.data_kind == DataKind.WEIGHT_DIFF
    data: Params = dxo.data
    return data


@pytest.mark.parametrize(
    ("dtype", "values", "largest"),
    [(np.int32, (-3, -7, -4), -3), (np.uint16, (2, 9, 5), 9), (bool, (False, True, False), True)],
)
def test_an_integer_buffer_moves_by_the_largest_update_in_its_own_dtype(
    dtype: Any, values: tuple[Any, ...], largest: Any
) -> None:
    aggregator, context = FedAvgAggregator(server_lr=0.1), server_context()
    for site, value in zip(("photo", "sketch", "art"), values, strict=True):
        assert aggregator.accept(arrived(site, {"w": np.ones(2), "n": np.array(value, dtype)}), context)
    found = step_of(aggregator, context)["n"]
    assert (found.dtype, found) == (dtype, largest)


def test_forged_name_does_not() -> None:
    aggregator, context = FedAvgAggregator(), server_context()
    forged = {META_SITE: "sketch", "site_name": "sketch", "contributor_name": "sketch"}
    assert aggregator.accept(arrived("photo", random_update(1), **forged), context)
    assert aggregator.accept(arrived("sketch", random_update(2)), context)
    assert not aggregator.accept(arrived("photo", random_update(3), **{META_SITE: "cartoon"}), context)
    assert aggregator.aggregate_model().meta[META_REPORT]["sites"] == ["photo", "sketch"]


def test_the_global_model_in_the_context_gives_the_layout() -> None:
    global_model = {name: value.numpy() for name, value in random_update(0).items()}
    aggregator, context = FedAvgAggregator(), server_context(global_model)
    assert not aggregator.accept(arrived("photo", {"other.weight": np.ones(2, np.float32)}), context)
    doubles = {name: value.astype(np.float64) for name, value in global_model.items()}
    doubles["bn.num_batches_tracked"] = np.array(3, np.int32)
    assert aggregator.accept(arrived("sketch", doubles), context)
    found = {name: value.dtype for name, value in step_of(aggregator, context).items()}
    assert found == {name: value.dtype for name, value in global_model.items()}


@pytest.mark.parametrize("weighting", ["median", "", None, 0.5, {}, {"name": ["uniform"]}, {"name": "ga", "power": 2}])
def test_a_weighting_that_there_is_not_is_refused(weighting: Any) -> None:
    for act in (make_weighting, FedAvgAggregator, lambda one: FedAvgAggregator().configured({"weighting": one})):
        with pytest.raises(SettingsError):
            act(weighting)


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"learning_rate": 1.0}, "learning_rate"),
        ({"configured": 1.0}, "configured"),
        ({"server_lr": "fast"}, "server_lr"),
        ({"server_lr": "0"}, "server_lr"),
        ({"server_lr": "nan"}, "server_lr"),
        ({"step_size": "many"}, "step_size"),
        ({"normalizer": "least"}, "normalizer"),
        ({"weighting": "{broken"}, None),
        ({"weighting": "samples", "step_size": 0.5}, "step_size"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(changed: dict[str, Any], field: str | None) -> None:
    with pytest.raises(SettingsError) as caught:
        FedAvgAggregator(weighting="ga").configured(changed)
    assert caught.value.field == field


@pytest.mark.parametrize("given", ["ga", {"name": "ga", "step_size": 0.3, "normalizer": "max_abs"}])
@pytest.mark.parametrize("value", [0.125, "0.125"])
def test_a_setting_of_the_weighting_is_changed_by_its_name_and_the_others_stay(given: Any, value: Any) -> None:
    for name in AGGREGATORS:
        if "weighting" in AGGREGATORS[name]().settings():
            made = make_aggregator({"name": name, "weighting": given})
            changed = made.configured({"step_size": value})
            others = given if isinstance(given, dict) else {"name": given}
            assert changed.settings() == {**made.settings(), "weighting": {**others, "step_size": 0.125}}
            assert vars(changed.rule())["step_size"] == 0.125
            assert made.weighting == given


def answer(site: str, metrics: Any, samples: int | None = None, gap: float | None = None) -> FLModel:
    made = contribution(site, {"w": torch.ones(2)}, samples, said=False)
    made.meta[META_CHECKED_REPORTS] = {} if gap is None else {"gap": gap}
    made.metrics = metrics
    return made


def metrics_of(*answers: FLModel) -> dict[str, float] | None:
    aggregator = FedAvgAggregator(weighting="uniform")
    for one in answers:
        aggregator.accept_model(one)
    found: dict[str, float] | None = aggregator.aggregate_model().metrics
    return found


@pytest.mark.parametrize("samples", [{"art": 10, "photo": 30}, {"art": None, "photo": 3}])
def test_metrics_are_weighted_as_flares_own_aggregation_weights_them(samples: Mapping[str, int | None]) -> None:
    sent = {"art": {"accuracy": 0.5, "loss": 2.0}, "photo": {"accuracy": 0.9, "found": True}}
    answers = [answer(site, metrics, samples[site]) for site, metrics in sent.items()]
    expected = BaseFedAvg.aggregate_fn(answers).metrics
    assert metrics_of(*answers) == pytest.approx(expected)
    assert metrics_of(*reversed(answers)) == metrics_of(*answers)


def test_a_metric_that_is_no_finite_number_costs_a_site_neither_update_nor_other_metrics() -> None:
    junk = {"nan": math.nan, "text": "1", "nested": {"a": 1}, "vector": torch.ones(2), "huge": 10**400, 7: 1.0}
    sent = answer("art", {**junk, "accuracy": np.float32(0.5)}), answer("photo", {"accuracy": 1.0})
    assert metrics_of(*sent) == {"accuracy": 0.75}


def test_in_flares_fedavg_the_step_of_feddg_ga_shrinks_with_the_announced_number_of_rounds() -> None:
    """FLARE's FedAvg announces the number of rounds in the context of its first round only."""
    aggregator = FedGAAggregator(step_size=0.1)
    aggregator.fl_ctx = FLContext()
    gains = []
    for number in range(4):
        context = FLContext()
        if number == 0:
            context.set_prop(AppConstants.NUM_ROUNDS, 4, private=True, sticky=False)
        aggregator.handle_event(AppEventType.ROUND_STARTED, context)
        aggregator.fl_ctx.set_prop(AppConstants.CURRENT_ROUND, number, private=True, sticky=False)
        before = aggregator.state()["weighting"]["weights"].get("art", 0.5)
        for site, gap in (("art", 1.0), ("photo", 0.0)):
            aggregator.accept_model(answer(site, None, 1, gap))
        gains.append(aggregator.aggregate_model().meta[META_REPORT]["weights"][0] - before)
    assert gains == pytest.approx([0.1, 0.075, 0.05, 0.025])


def test_without_a_contribution_there_is_no_step() -> None:
    for act in (take_step, FedAvgAggregator.aggregate_model):
        assert act(FedAvgAggregator()).params == {}


OTHER = {name: torch.full_like(random_updates()["art"][name], 0.5) for name in TRAINABLE}


class Mistaken(FedAvgAggregator):
    """An aggregator whose ``direction``, or else whose ``step_of``, returns what does not fit the updates."""

    def __init__(self, mistake: str) -> None:
        self.made = mistake
        super().__init__()

    def direction(self, weights: torch.Tensor, contributions: Sequence[Contribution]) -> Any:
        return {"shape": Direction(weights[:1], {}), "type": weights}.get(self.made, Direction(weights, {}))

    def step_of(
        self, name: str, weights: torch.Tensor, coefficients: torch.Tensor, contributions: Sequence[Contribution]
    ) -> torch.Tensor:
        return weights[:1]


@pytest.mark.parametrize("mistake", ["shape", "type", "step"])
def test_a_mistake_of_an_aggregator_names_it(mistake: str) -> None:
    with pytest.raises(PartError) as caught:
        run_round(Mistaken(mistake), random_updates())
    assert caught.value.public.startswith("aggregator Mistaken raised ")


def test_a_parameter_that_is_no_attribute_or_has_no_default_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError):
        Mistaken("step").settings()
    monkeypatch.setattr(type(AGGREGATORS), "known", lambda *_: Mistaken)
    with pytest.raises(SettingsError):
        AGGREGATORS.make("mistaken")


class Boastful(FedOMGAggregator):
    """One that makes another step of each parameter, beside its parent's direction, and boasts."""

    def direction(self, weights: torch.Tensor, contributions: Sequence[Contribution]) -> Direction:
        found = super().direction(weights, contributions)
        boast = {"direction_norm": -1.0, "update_norms": [0.0] * len(contributions)}
        return found._replace(report={**found.report, **boast})

    def step_of(
        self, name: str, weights: torch.Tensor, coefficients: torch.Tensor, contributions: Sequence[Contribution]
    ) -> torch.Tensor:
        return OTHER[name]


class Silent(FedAvgAggregator):
    """One that aggregates as it likes, and reports nothing."""

    def aggregate_model(self) -> FLModel:
        params = {**super().aggregate_model().params, **OTHER}
        return FLModel(params_type=ParamsType.DIFF, params=params)


@pytest.mark.parametrize("kind", [Boastful, Silent])
def test_an_aggregator_of_somebody_elses_is_measured_by_its_step(kind: type[UpdateAggregator]) -> None:
    updates = random_updates()
    result = run_round(kind(server_lr=0.5), updates)
    record, step = AggregationRecord.from_report(result.meta[META_REPORT]), flat(result.params)
    for site, update in updates.items():
        own = flat(update)
        assert record.update_norms[site] == pytest.approx(float(own.norm()))
        cosine = float(own @ step / own.norm() / step.norm())
        assert record.cosines_with_direction[site] == pytest.approx(cosine, rel=1e-9)
    assert record.direction_norm == pytest.approx(float(step.norm()) / 0.5)


def test_updates_are_measured_as_they_were_shortened() -> None:
    aggregator = FedAvgAggregator(weighting="uniform")
    aggregator.facts = UNEQUAL_CLASSES._replace(clip_to_median=1.0)
    updates = random_updates()
    report = run_round(aggregator, updates).meta[META_REPORT]
    lengths = [float(flat(updates[site]).norm()) for site in sorted(SITES)]
    expected = [min(length, sorted(lengths)[1]) for length in lengths]
    assert report["update_norms"] == pytest.approx(expected, rel=1e-6)
    assert report["clip_factors"] == pytest.approx([one / other for one, other in zip(expected, lengths, strict=True)])
