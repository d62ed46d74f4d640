# SPDX-License-Identifier: Apache-2.0
"""Small models and batches for local objectives: with and without BatchNorm, with one linear layer and with two."""

import pytest

from fdg_plugins.models import ExtractorClassifier, build_model
from tests.objectives.local_steps import CLASSES, Batch, make_batches

MODELS = [(name, head) for name in ("convnet", "groupnorm_convnet") for head in ("linear", "two_layer")]


@pytest.fixture(params=MODELS, ids=[" ".join(pair) for pair in MODELS])
def model(request: pytest.FixtureRequest) -> ExtractorClassifier:
    """One of four models, in training mode."""
    name, head = request.param
    return build_model(name, CLASSES, seed=1, head=head).train()


@pytest.fixture
def linear_model() -> ExtractorClassifier:
    return build_model("convnet", CLASSES, seed=1).train()


@pytest.fixture
def batches(model: ExtractorClassifier) -> list[Batch]:
    return make_batches(model)
