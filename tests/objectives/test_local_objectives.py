# SPDX-License-Identifier: Apache-2.0
"""What every objective promises a site: without strength or anything received it is the cross entropy, to the bit."""

import copy
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from fdg_plugins.errors import SettingsError
from fdg_plugins.methods.feddim import LocalInsight
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives import Objective, make_objective, see
from tests.objectives.local_steps import same
from tests.objectives.objective_batches import CLASSES, Batch, Train, make_batches
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


def by_hand(model: ExtractorClassifier, batches: list[Batch]) -> dict[str, torch.Tensor]:
    """FedAvg's local training, written out."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    model.train()
    for images, labels in [*batches, *batches]:
        optimizer.zero_grad(set_to_none=True)
        cross_entropy(model(images).float(), labels).backward()
        optimizer.step()
    return dict(model.state_dict())


@pytest.mark.parametrize("spec", SHARING, ids=str)
def test_with_strength_zero_training_is_that_of_fedavg_to_the_bit_whatever_is_received(
    spec: dict[str, Any], model: ExtractorClassifier, batches: list[Batch], train: Train
) -> None:
    objective = make_objective({**spec, "strength": 0})
    sent = received(objective, model)
    expected = by_hand(copy.deepcopy(model), batches)
    assert sent
    assert same(train(model, objective.local(sent, model), batches), expected)


@pytest.mark.parametrize("spec", SHARING, ids=str)
def test_with_strength_and_something_received_training_differs(
    spec: dict[str, Any], model: ExtractorClassifier, batches: list[Batch], train: Train
) -> None:
    objective = make_objective({**spec, "strength": 0.1})
    local = objective.local(received(objective, model), model)
    expected = by_hand(copy.deepcopy(model), batches)
    trained = train(model, local, batches)
    assert not same(trained, expected)
    assert all(bool(value.isfinite().all()) for value in trained.values())


@pytest.mark.parametrize("spec", SHARING, ids=str)
def test_the_strength_moves_the_loss_by_a_multiple_of_it(
    spec: dict[str, Any], model: ExtractorClassifier, batches: list[Batch]
) -> None:
    model.eval()
    images, labels = batches[0]
    sent = received(make_objective(spec), model)
    losses = [
        make_objective({**spec, "strength": strength}).local(sent, model).loss(model, images, labels).item()
        for strength in (0.0, 5e3, 1e4)
    ]
    assert losses[2] > losses[0]
    assert losses[2] - losses[1] == pytest.approx(losses[1] - losses[0], rel=1e-3)


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


def test_cross_entropy_reports_and_exchanges_nothing(linear_model: ExtractorClassifier) -> None:
    objective = make_objective("erm")

    def unread() -> Any:
        raise AssertionError("nobody should look at the data")
        yield

    assert objective.exchange(linear_model, CLASSES) is None
    assert objective.report_received(linear_model, see(linear_model, unread()), CLASSES) == {}
    assert objective.report_trained(linear_model, see(linear_model, unread()), CLASSES) == {}
    with pytest.raises(SettingsError, match="sent for objective 'erm': sent 'insight', expected only nothing"):
        objective.local({"insight": torch.zeros(1)}, linear_model)


@pytest.mark.parametrize("spec", SHARING, ids=str)
def test_arrays_are_as_good_as_tensors_at_a_site(spec: dict[str, Any], linear_model: ExtractorClassifier) -> None:
    objective = make_objective(spec)
    sent = received(objective, linear_model)
    arrays: Any = {name: value.numpy() for name, value in sent.items()}
    batch = make_batches(linear_model)[0]
    linear_model.eval()
    losses = [objective.local(what, linear_model).loss(linear_model, *batch) for what in (sent, arrays)]
    assert torch.equal(*losses)
