# SPDX-License-Identifier: Apache-2.0
"""What is measured of a step follows from the step really made, whoever wrote the aggregator and whatever it says."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType

from fdg_plugins.aggregators import Contribution, UpdateAggregator
from fdg_plugins.aggregators import base as base_module
from fdg_plugins.aggregators.contributions import Direction
from fdg_plugins.core import gram as gram_module
from fdg_plugins.core.stored import whole
from fdg_plugins.messages import META_REPORT
from fdg_plugins.methods.fedavg import FedAvgAggregator
from fdg_plugins.methods.fedomg import FedOMGAggregator
from fdg_plugins.record.round_record import AggregationRecord
from fdg_plugins.testing.inputs import SITES, TRAINABLE, UNEQUAL_CLASSES, flat, random_updates, run_round

OTHER = {name: torch.full_like(random_updates()["art"][name], 0.5) for name in TRAINABLE}


class OwnStep(FedOMGAggregator):
    """One that makes another step of each parameter, beside its parent's direction."""

    def step_of(
        self, name: str, weights: torch.Tensor, coefficients: torch.Tensor, contributions: Sequence[Contribution]
    ) -> torch.Tensor:
        return OTHER[name]


class Silent(FedAvgAggregator):
    """One that aggregates as it likes, and reports nothing."""

    def aggregate_model(self) -> FLModel:
        params = {**super().aggregate_model().params, **OTHER}
        return FLModel(params_type=ParamsType.DIFF, params=params)


class Halved(FedOMGAggregator):
    """One that asks its parent for the direction of other updates, and boasts."""

    def direction(self, weights: torch.Tensor, contributions: Sequence[Contribution]) -> Direction:
        half = [
            replace(
                one, update={**one.update, **{name: 0.5 * whole(value) for name, value in self._trainable(one).items()}}
            )
            for one in contributions
        ]
        found = super().direction(weights, half)
        return found._replace(report={**found.report, "direction_norm": -1.0, "update_norms": [0.0] * len(half)})


def test_an_aggregator_of_somebody_elses_is_measured_by_its_step() -> None:
    cases: list[type[UpdateAggregator]] = [OwnStep, Silent, Halved]
    for kind in cases:
        updates = random_updates()
        result = run_round(kind(server_lr=0.5), updates)
        record, step = AggregationRecord.from_report(result.meta[META_REPORT]), flat(result.params)
        for site, update in updates.items():
            own = flat(update)
            assert record.update_norms[site] == pytest.approx(float(own.norm()))
            cosine = float(own @ step / own.norm() / step.norm())
            assert record.cosines_with_direction[site] == pytest.approx(cosine, rel=1e-9)
        assert record.direction_norm == pytest.approx(float(step.norm()) / 0.5)


def test_the_gram_matrix_of_fedomg_is_used_again_and_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def counted(compute: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def call(updates: Sequence[Any]) -> torch.Tensor:
            calls.append(len(updates))
            return compute(updates)

        return call

    for module in (base_module, gram_module):
        monkeypatch.setattr(module, "gram_matrix", counted(module.gram_matrix))
    run_round(FedOMGAggregator(), random_updates())
    assert calls == [3]
    run_round(FedAvgAggregator(), random_updates())
    assert calls == [3, 4]


def test_updates_are_measured_as_they_were_shortened() -> None:
    aggregator = FedAvgAggregator(weighting="uniform")
    aggregator.facts = UNEQUAL_CLASSES._replace(clip_to_median=1.0)
    updates = random_updates()
    report = run_round(aggregator, updates).meta[META_REPORT]
    lengths = [float(flat(updates[site]).norm()) for site in sorted(SITES)]
    expected = [min(length, sorted(lengths)[1]) for length in lengths]
    assert report["update_norms"] == pytest.approx(expected, rel=1e-6)
    assert report["clip_factors"] == pytest.approx([one / other for one, other in zip(expected, lengths, strict=True)])
