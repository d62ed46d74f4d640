# SPDX-License-Identifier: Apache-2.0
"""Small models and batches for local objectives: with and without BatchNorm, with one linear layer and with two."""

from collections.abc import Iterator

import pytest
import torch

from fdg_plugins.models import ExtractorClassifier, build_model
from fdg_plugins.objectives import LocalObjective
from tests.objectives.objective_batches import CLASSES, Batch, Train, make_batches

MODELS = [(name, head) for name in ("convnet", "groupnorm_convnet") for head in ("linear", "two_layer")]


@pytest.fixture(params=MODELS, ids=[" ".join(pair) for pair in MODELS])
def model(request: pytest.FixtureRequest) -> ExtractorClassifier:
    """One of four models, in training mode."""
    name, head = request.param
    return build_model(name, CLASSES, seed=1, head=head).train()


@pytest.fixture
def linear_model() -> ExtractorClassifier:
    """BatchNorm and one linear layer, in training mode."""
    return build_model("convnet", CLASSES, seed=1).train()


@pytest.fixture
def batches(model: ExtractorClassifier) -> list[Batch]:
    """Three batches for ``model``."""
    return make_batches(model)


@pytest.fixture
def train() -> Train:
    """Train in place as a site does, two epochs with momentum; return a copy of the state dict."""

    def run(model: ExtractorClassifier, objective: LocalObjective, batches: list[Batch]) -> dict[str, torch.Tensor]:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
        model.train()
        for images, labels in _epochs(model, objective, batches):

            def compute_gradients(images: torch.Tensor = images, labels: torch.Tensor = labels) -> torch.Tensor:
                optimizer.zero_grad(set_to_none=True)
                loss = objective.loss(model, images, labels)
                loss.backward()
                return loss.detach()

            objective.step(model, compute_gradients, optimizer)
        return {name: value.clone() for name, value in model.state_dict().items()}

    return run


def _epochs(model: ExtractorClassifier, objective: LocalObjective, batches: list[Batch]) -> Iterator[Batch]:
    for _ in range(2):
        objective.prepare(model)
        yield from batches
