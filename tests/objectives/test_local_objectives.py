# SPDX-License-Identifier: Apache-2.0
"""What every objective promises a site: without strength or anything received it is the cross entropy, to the bit."""

from typing import Any

import pytest
import torch

from fdg_plugins.methods.feddim import LocalInsight
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives import Objective, make_objective, see
from tests.objectives.objective_batches import CLASSES, make_batches
from tests.objectives.report_round import ReportRound

TARGETS = ["insight", "feature", "logit"]
SPECS: list[dict[str, Any]] = [
    {"name": "erm"},
    *[{"name": "dim", "target": target} for target in TARGETS],
    {"name": "iir"},
    {"name": "iir", "variant": "released", "probe": "previous_round"},
]
SHARING = SPECS[1:]


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


@pytest.mark.parametrize("spec", SHARING, ids=str)
def test_autocast_leaves_the_penalty_in_float32(spec: dict[str, Any], linear_model: ExtractorClassifier) -> None:
    objective = make_objective({**spec, "strength": 1.0})
    local = objective.local(received(objective, linear_model), linear_model)
    images, labels = make_batches(linear_model)[0]
    exact = local.loss(linear_model, images, labels)
    with torch.autocast("cpu", torch.bfloat16):
        loss = local.loss(linear_model, images, labels)
    loss.backward()
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(exact.item(), rel=0.05)
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in linear_model.parameters())


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


def test_a_stop_during_a_report_passes_through_and_puts_the_modes_back(linear_model: ExtractorClassifier) -> None:
    def stopping() -> Any:
        yield make_batches(linear_model)[0]
        raise InterruptedError

    for name, method in (("dim", "report_trained"), ("iir", "report_received")):
        with pytest.raises(InterruptedError):
            getattr(make_objective(name), method)(linear_model, see(linear_model, stopping()), CLASSES)
        assert all(module.training for module in linear_model.modules())
