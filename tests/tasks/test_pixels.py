# SPDX-License-Identifier: Apache-2.0
"""A task of another kind, one class per pixel, goes through training, methods, judging and record as it is."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fdg_plugins.controllers.expectations import expected_of
from fdg_plugins.core.alignment import classifier_gradient
from fdg_plugins.errors import CensusError, ContributionError, SettingsError
from fdg_plugins.messages import CensusReply, Evaluation
from fdg_plugins.methods.fedavg import FedAvgAggregator
from fdg_plugins.methods.fediir import classifier_parameters
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives import SiteRound, make_objective, see
from fdg_plugins.plans.compatibility import check_settings
from fdg_plugins.plans.plans import Plan, Plans
from fdg_plugins.record.census import take_census
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.tasks import TASKS, ScoreKind, Sum, Task
from fdg_plugins.tasks.task import Stratified
from fdg_plugins.training.loop import DevicePolicy, evaluate, train_locally
from fdg_plugins.training.results import evaluation_of

CPU = DevicePolicy(torch.device("cpu"))
SIZE, CLASSES = 6, 2
OVERLAP = ScoreKind("overlap", "Overlap")
Batch = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Pixels(Task):
    """Logits ``[B, H, W, Y]``, channels last; masks ``[B, H, W]``; judged by the fraction of right pixels of images."""

    one_class_per_image: ClassVar[bool] = False

    name: str = "pixels"
    score: ScoreKind = OVERLAP

    def loss(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return cross_entropy(*self.samples_of(logits, targets))

    def summed_loss(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return self.loss(logits, targets) * len(targets)

    def sums(self, logits: torch.Tensor, targets: torch.Tensor) -> Mapping[str, Sum]:
        right = (logits.argmax(dim=-1) == targets).double().mean(dim=(1, 2))
        return {"overlap": Sum(right.sum(), len(targets)), "vessel": Sum((targets == 1).sum(), targets.numel())}

    def kinds(self, num_classes: int) -> tuple[ScoreKind, ...]:
        return (self.score, ScoreKind("vessel", "Vessel"))

    def samples_of(self, features: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return features.flatten(0, -2), targets.flatten()

    def samples_per_image(self, image_size: int, dims: int = 2) -> int:
        return image_size**dims

    def strata(self, classes: Sequence[str]) -> tuple[str, ...]:
        return ("all",)

    def stratum(self, image: Stratified) -> int:
        return 0

    def class_counts(self, images: Iterable[Any], num_classes: int) -> tuple[int, ...]:
        return (len(list(images)),) * num_classes


TASK = Pixels()


class Dense(nn.Module):
    """A convolution whose map is returned channels last, ``[B, H, W, 4]``."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(1, 4, 3, padding=1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.convolution(images)).permute(0, 2, 3, 1)


@pytest.fixture
def pixels() -> Iterator[Task]:
    TASKS.add(TASK)
    yield TASK
    TASKS.remove("pixels")


def network() -> ExtractorClassifier:
    torch.manual_seed(3)
    return ExtractorClassifier(Dense(), nn.Linear(4, CLASSES))


def images(count: int = 10, batch: int = 4) -> list[Batch]:
    """Return images whose bright pixels are of class 1."""
    made = torch.rand(count, 1, SIZE, SIZE, generator=torch.Generator().manual_seed(1))
    return [(part, (part[:, 0] > 0.5).long()) for part in made.split(batch)]


def census_of(domain: str, count: int = 10) -> CensusReply:
    return CensusReply(
        domain=domain,
        dataset="eyes",
        stand_in=False,
        classes=("background", "vessel"),
        class_counts=(count, count),
        num_train=count - 2,
        num_validation=2,
        num_test=count,
        split="seeded",
        split_hash="0",
        device="cpu",
        versions={},
    )


@pytest.mark.parametrize("name", ["erm", "prox", "sam", "am", "iir", "dim"])
def test_methods_train_it_and_it_is_learned(name: str) -> None:
    model, objective, exchanged = network(), make_objective(name), {}
    exchange = objective.exchange(model, CLASSES)
    for number in range(2):
        if exchange is not None and number:
            report = objective.report_received(model, see(model, images(), TASK), CLASSES)
            report |= objective.report_trained(model, see(model, images(), TASK), CLASSES)
            exchange.begin_round(model.state_dict())
            update = {key: torch.zeros_like(value) for key, value in model.state_dict().items()}
            exchange.finish({"a": exchange.read("a", report, update)})
            exchanged = exchange.broadcast()
            assert exchanged
        local = objective.local(exchanged, model, SiteRound("a", number, task=TASK))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        before = evaluate(model, images(), CPU, lambda: False, TASK)
        train_locally(model, local, [images()] * 15, optimizer, CPU, lambda: False, lambda epoch, loss: None)
    after = evaluate(model, images(), CPU, lambda: False, TASK)
    assert after.value("overlap") > max(0.8, before.value("overlap") - 0.05)
    assert after.sums["vessel"] == (sum(int(masks.sum()) for _, masks in images()), 10 * SIZE**2)


def test_class_means_are_over_pixels() -> None:
    model = network()
    report = make_objective("dim").report_trained(model, see(model, images(), TASK), CLASSES)
    together, masks = (torch.cat(parts) for parts in zip(*images(), strict=True))
    features = model.features(together)
    for label in range(CLASSES):
        assert torch.allclose(report["class_means"][label], features[masks == label].mean(dim=0), atol=1e-6)
        assert report["class_counts"][label] == (masks == label).sum()


def test_the_reported_gradient_is_that_of_the_whole_loss_by_the_head() -> None:
    model = network()
    report = make_objective("iir").report_received(model, see(model, images(), TASK), CLASSES)
    together, masks = (torch.cat(parts) for parts in zip(*images(), strict=True))
    whole = classifier_gradient(TASK.loss(model(together), masks), classifier_parameters(model))
    for name, gradient in whole.items():
        assert torch.allclose(report[f"gradient/{name}"], gradient, atol=1e-6)


@pytest.mark.parametrize("name", ["rsc", "sr"])
def test_what_needs_one_class_per_image_is_refused(name: str, pixels: Task) -> None:
    plan = Plan(Protocol(task="pixels", objective={"name": name}), {})
    with pytest.raises(SettingsError) as caught:
        check_settings(FedAvgAggregator(), Plans(plan, plan))
    assert str(caught.value) == f"objective '{name}' needs one class per image, which the task 'pixels' does not have."


def test_the_server_counts_pixels_as_samples_and_checks_every_score(pixels: Task) -> None:
    expected = expected_of("eye", Protocol(task="pixels", image_size=16, momentum=0.0), census_of("drive"), 0)
    assert expected.facts.num_train == 8 * 256
    assert expected.facts.class_counts == (2560, 2560)
    score = evaluate(network(), images(2), CPU, lambda: False, TASK)
    sent = evaluation_of("validation", score)
    expected.check_score(Evaluation.model_validate(sent.model_dump()), "validation")
    lacking = sent.model_copy(update={"sums": {"overlap": sent.sums["overlap"]}})
    with pytest.raises(ContributionError, match=r"its scores are overlap, expected overlap, vessel\.$"):
        expected.check_score(lacking, "validation")


def test_the_census_lets_an_image_have_several_classes_and_no_class_more_images_than_there_are(pixels: Task) -> None:
    replies = {"a": census_of("drive"), "b": census_of("stare")}
    assert take_census(replies, {}, "stare", TASK).sources == ("a",)
    with pytest.raises(CensusError, match="counts 20 images by class, but 10 in all"):
        take_census(replies, {}, "stare")
    replies["a"] = replies["a"].model_copy(update={"class_counts": (10, 11)})
    with pytest.raises(CensusError, match="counts 11 images of one class, but 10 in all"):
        take_census(replies, {}, "stare", TASK)
