# SPDX-License-Identifier: Apache-2.0
"""Weightings by name: p on the simplex from a round's contributions."""

from typing import Any

import pytest
import torch

from fdg_plugins.aggregators import Contribution, make_weighting
from fdg_plugins.errors import ContributionError, SettingsError
from fdg_plugins.messages import Evaluation, TrainReport

SCORE = Evaluation.model_validate({"split": "train", "loss": 1.5, "accuracy": 0.5, "count": 8})
TRAINING = TrainReport(
    domain="photo", training_split=(SCORE, SCORE), steps=4, effective_steps=4, learning_rate=0.1, seconds=1
)


def contribution(site: str, num_samples: int | None) -> Contribution:
    return Contribution(site, {"w": torch.ones(2)}, num_samples, training=TRAINING)


def test_sample_weights_are_shares_of_the_rounds_samples() -> None:
    assert make_weighting("samples")([contribution("a", 30), contribution("b", 10)]).tolist() == [0.75, 0.25]


def test_a_site_without_its_number_of_samples_is_refused_by_name() -> None:
    with pytest.raises(ContributionError, match="site b: did not say its number of samples"):
        make_weighting("samples")([contribution("a", 30), contribution("b", None)])


def test_an_unknown_weighting_is_refused_with_what_there_is() -> None:
    cases: list[tuple[Any, str]] = [
        ("median", "weighting is 'median', expected one of arfl, as, ga, samples, uniform"),
        ("", "weighting is '', expected one of"),
        ({}, "weighting is None, expected one of"),
        ({"name": "median"}, "weighting is 'median', expected one of"),
        ({"name": ["uniform"]}, r"weighting is \['uniform'\], expected one of"),
        ({"name": "uniform", "power": 2}, r"weighting 'uniform' has no setting 'power'"),
        (None, "weighting is None, expected a name or a mapping"),
        (0.5, "weighting is 0.5, expected a name or a mapping"),
    ]
    for spec, message in cases:
        with pytest.raises(SettingsError, match=message):
            make_weighting(spec)
