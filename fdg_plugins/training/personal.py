# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes a copy of the received model on a site's training split, which gives the site its own model.

The copy is evaluated and discarded: nothing of it is sent or kept.
"""

from collections.abc import Callable, Iterator
from itertools import islice

import torch

from fdg_plugins.core.steps import batches_per_epoch
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives import fixed_names
from fdg_plugins.objectives.erm import LocalRisk
from fdg_plugins.objectives.objective import FineTuning
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.tasks import Task
from fdg_plugins.training.loop import Batches, DevicePolicy, ShouldStop, train_locally
from fdg_plugins.training.optimizers import make_optimizer

Epochs = Callable[[int], Iterator[Batches]]


def fine_tune(
    model: ExtractorClassifier,
    tuning: FineTuning,
    epochs: Epochs,
    learning_rate: float,
    protocol: Protocol,
    task: Task,
    policy: DevicePolicy,
    should_stop: ShouldStop,
    num_train: int,
) -> None:
    """Train, by the task's loss and in place, what ``tuning`` names and the protocol's ``trainable`` does not fix.

    ``epochs``: returns that many passes over the training split. ``learning_rate``: of the round. ``num_train``: number
    of training samples.
    """
    fixed = fixed_names(model, protocol)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in tuning.parameters and name not in fixed)
    tuned = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not tuned:
        return
    if tuning.learning_rate is None:
        optimizer = make_optimizer(tuned, protocol, learning_rate, policy.device)
    else:
        optimizer = torch.optim.SGD(tuned, lr=tuning.learning_rate)
    passes = _passes(tuning, epochs, batches_per_epoch(num_train, protocol.batch_size))
    train_locally(model, LocalRisk(task=task), passes, optimizer, policy, should_stop, lambda epoch, loss: None)


def _passes(tuning: FineTuning, epochs: Epochs, num_batches: int) -> Iterator[Batches]:
    """Yield the batches of each pass, the last one ending with the last step."""
    if tuning.steps is None:
        yield from epochs(tuning.epochs)
        return
    whole, rest = divmod(tuning.steps, num_batches)
    for number, batches in enumerate(epochs(whole + bool(rest))):
        yield islice(batches, rest) if number == whole else batches
