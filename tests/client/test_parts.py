# SPDX-License-Identifier: Apache-2.0
"""FedDIM's and FedIIR's half for own scripts reports and penalises what this package's own sites do, to the bit."""

import pytest
import torch
from nvflare.app_common.abstract.fl_model import FLModel
from torch.nn.functional import cross_entropy

from fdg_plugins.client import ClassInsight, GradientAlignment
from fdg_plugins.errors import SettingsError
from fdg_plugins.messages import META_RECEIVED
from fdg_plugins.methods.feddim import FedDIMObjective, Target
from fdg_plugins.methods.fediir import FedIIRObjective
from fdg_plugins.models import build_model
from fdg_plugins.models.registry import ExtractorClassifier
from fdg_plugins.objectives import see
from fdg_plugins.testing.inputs import same_bits

Batches = list[tuple[torch.Tensor, torch.Tensor]]
CLASSES = 4


@pytest.fixture
def model() -> ExtractorClassifier:
    return build_model("convnet", CLASSES, seed=3)


@pytest.fixture
def batches() -> Batches:
    """Images of all classes but the second."""
    generator = torch.Generator().manual_seed(0)
    labels = [torch.tensor([0, 2, 3, 0]), torch.tensor([3, 2, 2])]
    return [(torch.randn(len(one), 3, 16, 16, generator=generator), one) for one in labels]


def message(tensors: dict[str, torch.Tensor] | None = None) -> FLModel:
    return FLModel(params={}, meta={} if tensors is None else {META_RECEIVED: tensors})


def assert_same_loss(model: ExtractorClassifier, found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected)
    gradients = [torch.autograd.grad(loss, list(model.parameters())) for loss in (found, expected)]
    torch.testing.assert_close(*gradients)


def test_class_means_are_those_of_this_packages_own_sites(model: ExtractorClassifier, batches: Batches) -> None:
    part = ClassInsight(model, "classifier")
    model.train()
    before = [module.training for module in model.modules()]
    found = part.report(batches)
    assert [module.training for module in model.modules()] == before
    assert same_bits(found, FedDIMObjective().report_trained(model, see(model, batches), CLASSES))
    assert found["class_counts"].tolist() == [2, 0, 3, 2]


@pytest.mark.parametrize("target", ["insight", "feature", "logit"])
def test_feddim_loss_is_our_own_sites(model: ExtractorClassifier, batches: Batches, target: Target) -> None:
    objective = FedDIMObjective(strength=0.3, target=target)
    exchange = objective.exchange(model, CLASSES)
    exchange.begin_round(model.state_dict())
    report = objective.report_trained(model, see(model, batches), CLASSES)
    update = {"classifier.weight": torch.zeros_like(model.last_layer.weight)}
    exchange.finish({"photo": exchange.read("photo", report, update)})
    images, labels = batches[0]
    with torch.no_grad():
        model.last_layer.weight += 0.1  # away from the model whose insight it is
    part = ClassInsight(model, "classifier", target)
    part.begin(message(exchange.broadcast()))
    loss = cross_entropy(model(images), labels) + 0.3 * part.penalty(labels)
    expected = objective.local(exchange.broadcast(), model).loss(model, images, labels)
    assert float(expected.detach()) > float(cross_entropy(model(images), labels))
    assert_same_loss(model, loss, expected)


def test_the_reported_gradient_is_that_of_this_packages_own_sites(model: ExtractorClassifier, batches: Batches) -> None:
    part = GradientAlignment(model, "classifier")
    model.train()
    part.begin(message(), batches)
    with torch.no_grad():
        model.last_layer.weight.zero_()  # training does not change what is reported: the model as received
    found = part.report()
    fresh = build_model("convnet", CLASSES, seed=3)
    assert same_bits(found, FedIIRObjective().report_received(fresh, see(fresh, batches), CLASSES))
    assert all(parameter.grad is None for parameter in model.parameters())


def test_fediir_loss_is_that_of_our_own_sites(model: ExtractorClassifier, batches: Batches) -> None:
    objective = FedIIRObjective(strength=1.0)
    mean = {
        f"gradient/classifier.{name}": torch.full_like(value, 0.2).detach()
        for name, value in model.classifier.named_parameters()
    }
    part = GradientAlignment(model, "classifier")
    part.begin(message(mean), batches)
    images, labels = batches[0]
    plain = cross_entropy(model(images), labels)
    loss = plain + 0.5 * part.penalty(plain)
    expected = objective.local(mean, model).loss(model, images, labels)
    assert float(expected.detach()) > float(plain.detach())
    assert_same_loss(model, loss, expected)


def test_without_the_servers_tensors_there_is_no_penalty(model: ExtractorClassifier, batches: Batches) -> None:
    images, labels = batches[0]
    insight, alignment = ClassInsight(model, "classifier"), GradientAlignment(model, "classifier")
    insight.begin(message())
    alignment.begin(message(), batches)
    loss = cross_entropy(model(images), labels)
    assert (float(insight.penalty(labels)), float(alignment.penalty(loss))) == (0.0, 0.0)


def test_what_does_not_fit_the_network_or_is_no_data_is_refused(model: ExtractorClassifier, batches: Batches) -> None:
    insight, alignment = ClassInsight(model, "classifier"), GradientAlignment(model, "classifier")
    for act in (
        lambda: insight.begin(message({"insight": torch.ones(2), "present": torch.ones(4) > 0})),
        lambda: alignment.begin(message({"fc": torch.ones(2)}), batches),
        lambda: alignment.begin(message(), iter(())),
        lambda: insight.report([]),
        lambda: insight.features,
    ):
        with pytest.raises(SettingsError):
            act()
    for make in (lambda: GradientAlignment(model, "fc"), lambda: ClassInsight(model, "extractor")):
        with pytest.raises(SettingsError) as refused:
            make()
        assert refused.value.field == "head"
