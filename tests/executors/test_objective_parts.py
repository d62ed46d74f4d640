# SPDX-License-Identifier: Apache-2.0
"""What an author's objective raises at a site is told by its name, in one sentence."""

import pytest
import torch

from fdg_plugins.errors import FDGError, PartError, Stopped
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives import LocalObjective
from fdg_plugins.privacy.reasons import texts_of
from fdg_plugins.training.loop import DevicePolicy, train_locally
from tests.executors.test_training import CPU, never, small_model, toy_batches


class Failing(LocalObjective):
    def __init__(self, error: Exception) -> None:
        self.error = error

    def loss(self, model: ExtractorClassifier, images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        raise self.error


def train(error: Exception) -> None:
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    policy = DevicePolicy(CPU)
    train_locally(model, Failing(error), [toy_batches([4])], optimizer, policy, never, lambda epoch, loss: None)


def test_what_training_raises_names_the_objective_and_the_server_learns_the_kind_alone() -> None:
    error = NameError("name 'imgs' is not defined")
    with pytest.raises(PartError) as caught:
        train(error)
    assert caught.value.__cause__ is error
    assert "name 'imgs' is not defined" in str(caught.value)
    assert texts_of(caught.value) == (str(caught.value), "objective Failing raised NameError.")


@pytest.mark.parametrize("error", [Stopped(), FDGError("no."), ZeroDivisionError("division by zero")])
def test_an_abort_and_errors_that_a_site_can_tell_are_left_as_they_are(error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        train(error)
    assert caught.value is error
