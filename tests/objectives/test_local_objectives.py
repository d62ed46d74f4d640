# SPDX-License-Identifier: Apache-2.0
"""What every objective promises a site: without strength or anything received it is the cross entropy, to the bit."""

import pytest
import torch

from fdg_plugins.methods.feddim import LocalInsight
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives import Objective, make_objective, see
from tests.objectives.local_steps import CLASSES, ReportRound, make_batches


def received(objective: Objective, model: ExtractorClassifier, seed: int = 7) -> dict[str, torch.Tensor]:
    """What the server sends after a round of one site with other data, whose weights moved."""
    batches = make_batches(model, seed=seed)
    exchange = objective.exchange(model, CLASSES)
    if exchange is None:
        return {}
    report = objective.report_received(model, see(model, batches), CLASSES) | objective.report_trained(
        model, see(model, batches), CLASSES
    )
    of_round = ReportRound(exchange, model.state_dict())
    of_round.accept("other", report, {name: 0.1 * value for name, value in model.named_parameters()})
    of_round.finish(["other"])
    return exchange.broadcast()


def test_gradient_alignment_is_computed_in_float32_even_under_autocast(
    linear_model: ExtractorClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    objective = make_objective({"name": "iir", "strength": 1.0})
    local = objective.local(received(objective, linear_model), linear_model)
    images, labels = make_batches(linear_model)[0]
    features = linear_model.features(images).detach()
    monkeypatch.setattr(linear_model, "features", lambda _: features)
    exact = local.loss(linear_model, images, labels)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(local.loss(linear_model, images, labels), exact)


@pytest.mark.parametrize("target", ["insight", "feature", "logit"])
def test_every_penalty_of_class_means_is_computed_in_float32_even_under_autocast(
    target: str, linear_model: ExtractorClassifier
) -> None:
    objective = make_objective({"name": "dim", "target": target})
    local = objective.local(received(objective, linear_model), linear_model)
    assert isinstance(local, LocalInsight)
    images, labels = make_batches(linear_model)[0]
    features, weight = linear_model.penultimate(images).detach(), linear_model.last_layer.weight
    exact = local.penalty(features, labels, weight)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(local.penalty(features, labels, weight), exact)
