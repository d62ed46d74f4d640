# SPDX-License-Identifier: Apache-2.0
"""Methods on pixels: FedIIR and FedDIM against their definitions in float64; every objective on MONAI's U-Net."""

from dataclasses import replace
from functools import partial
from typing import Any, get_args

import pytest
import torch
from torch import nn

from fdg_plugins.aggregators.compatibility import check_fit
from fdg_plugins.controllers.reception import expectations
from fdg_plugins.core.insight import GlobalInsight
from fdg_plugins.data import DATASETS
from fdg_plugins.data.catalogue import VESSELS
from fdg_plugins.errors import CensusError, SettingsError
from fdg_plugins.methods.fedavg import FedAvgAggregator
from fdg_plugins.methods.feddim import Target, local_insight
from fdg_plugins.methods.fediir import LocalAlignment
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives import make_objective, see
from fdg_plugins.record.census import take_census
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.tasks import SEGMENTATION
from tests.controllers.federation_stubs import census_reply
from tests.objectives.test_dim import read_as
from tests.random_tensors import normal_double

CLASSES, FEATURES = 3, 4
Batch = tuple[torch.Tensor, torch.Tensor]


class Dense(nn.Module):
    """A convolution whose map is returned channels last."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(1, FEATURES, 3, padding=1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.convolution(images)).movedim(1, -1)


@pytest.fixture
def model() -> ExtractorClassifier:
    torch.manual_seed(3)
    return ExtractorClassifier(Dense(), nn.Linear(FEATURES, CLASSES)).double()


@pytest.fixture
def batches() -> list[Batch]:
    """Two batches of 3 and 2 images of 6 x 5 pixels, most of class 0; the first has no pixel of class 2."""
    generator = torch.Generator().manual_seed(5)
    images = torch.randn(5, 1, 6, 5, generator=generator, dtype=torch.float64)
    masks = (torch.rand(5, 6, 5, generator=generator) > 0.8).long()
    masks[3:] += (torch.rand(2, 6, 5, generator=generator) > 0.9).long()
    return list(zip(images.split([3, 2]), masks.split([3, 2]), strict=True))


def whole_gradient(model: ExtractorClassifier, images: torch.Tensor, masks: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the gradient of the loss by the head, which can be differentiated."""
    head = dict(model.classifier.named_parameters(prefix="classifier"))
    loss = SEGMENTATION.loss(model(images), masks)
    return dict(zip(head, torch.autograd.grad(loss, list(head.values()), create_graph=True), strict=True))


def test_fediir_reports_the_gradient_of_the_whole_loss(model: ExtractorClassifier, batches: list[Batch]) -> None:
    images, masks = (torch.cat(parts) for parts in zip(*batches, strict=True))
    expected = whole_gradient(model, images, masks)
    for own in (batches, [(images, masks)], list(zip(images.split(1), masks.split(1), strict=True))):
        report = make_objective("iir").report_received(model, see(model, own, SEGMENTATION), CLASSES)
        for name, value in expected.items():
            torch.testing.assert_close(report[f"gradient/{name}"].double(), value.detach(), rtol=0, atol=1e-6)


def test_fediir_penalty_is_the_distance_of_the_gradients(model: ExtractorClassifier, batches: list[Batch]) -> None:
    images, masks = batches[1]
    gradient = whole_gradient(model, images, masks)
    mean = {name: torch.full_like(value, 0.1) for name, value in gradient.items()}
    distance = torch.stack([(value - mean[name]).square().sum() for name, value in gradient.items()]).sum()
    expected = SEGMENTATION.loss(model(images), masks) + 0.7 * distance
    value = LocalAlignment(0.7, mean, task=SEGMENTATION).loss(model, images, masks)
    assert float(value.detach()) == pytest.approx(float(expected.detach()), rel=1e-5)
    slopes = [torch.autograd.grad(one, model.last_layer.weight)[0] for one in (value, expected)]
    torch.testing.assert_close(*slopes, rtol=1e-3, atol=1e-5)


def test_feddim_reports_the_means_of_the_pixels_of_each_class(model: ExtractorClassifier, batches: list[Batch]) -> None:
    images, labels = torch.cat([images for images, _ in batches]), torch.cat([masks.flatten() for _, masks in batches])
    features = model.features(images).reshape(-1, FEATURES)
    report = make_objective("dim").report_trained(model, see(model, batches, SEGMENTATION), CLASSES)
    assert report["class_counts"].tolist() == labels.bincount().tolist()
    means = torch.stack([features[labels == label].mean(dim=0) for label in range(CLASSES)])
    torch.testing.assert_close(report["class_means"].double(), means, rtol=0, atol=1e-6)


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("target", get_args(Target))
def test_feddim_penalty_by_class(model: ExtractorClassifier, batches: list[Batch], target: Any, at: int) -> None:
    images, masks = batches[at]
    labels, shape = (
        masks.flatten(),
        {"insight": (FEATURES, CLASSES), "feature": (FEATURES,), "logit": (CLASSES,)}[target],
    )
    centres, weight = normal_double(1, CLASSES, *shape), model.last_layer.weight
    own = read_as(target, model.features(images).reshape(-1, FEATURES), weight)
    squares = (own - centres[labels]).flatten(1).square().sum(dim=1)
    by_class = [squares[labels == label].mean() for label in labels.unique()]
    assert len(by_class) == 2 + at
    present = torch.ones(CLASSES, dtype=torch.bool)
    loss = local_insight(1.0, target, GlobalInsight(centres, present), SEGMENTATION).loss(model, images, masks)
    plain = SEGMENTATION.loss(model(images).float(), masks)
    torch.testing.assert_close((loss - plain).double(), torch.stack(by_class).mean(), rtol=1e-6, atol=0)


census_of = partial(census_reply, dataset="vessels", class_counts=(10, 10))


def test_the_server_counts_pixels_as_samples_and_the_census_images_by_each_class() -> None:
    protocol = Protocol(dataset="vessels", target="drive", task="segmentation", image_size=16, momentum=0.0)
    expected = expectations(protocol, {"eye": census_of("stare")}, 0)["eye"]
    assert (expected.facts.num_train, expected.facts.class_counts) == (8 * 256, (2560, 2560))
    replies = {"a": census_of("drive"), "b": census_of("stare")}
    assert take_census(replies, {}, "stare", SEGMENTATION).sources == ("a",)
    with pytest.raises(CensusError):  # with one class per image, there would be 20 images
        take_census(replies, {}, "stare")
    with pytest.raises(CensusError):
        take_census({**replies, "a": census_of("drive", class_counts=(10, 11))}, {}, "stare", SEGMENTATION)


@pytest.mark.parametrize(
    ("name", "dataset"), [*((one, "vessels") for one in ("rsc", "sr")), *((one, "volumes") for one in ("harmo", "am"))]
)
def test_what_needs_one_class_per_image_or_the_spectrum_of_a_volume_is_refused(name: str, dataset: str) -> None:
    DATASETS.add(replace(VESSELS, name="volumes", channels=1, dims=3))
    protocol = Protocol(dataset=dataset, target="drive", task="segmentation", objective={"name": name})
    with pytest.raises(SettingsError):
        check_fit(protocol, FedAvgAggregator())
    with pytest.raises(SettingsError):
        check_fit(Protocol(target="photo", task="multilabel", objective={"name": "dim"}), FedAvgAggregator())
