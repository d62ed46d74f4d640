# SPDX-License-Identifier: Apache-2.0
"""A site before its second round: what the server sends it then, and what it has kept, after a first round of one site.

Networks with BatchNorm, of images ``[B, 3, 16, 16]`` with one class each, and of images ``[B, 1, 16, 16]`` with a class
for each pixel.
"""

from typing import Any, NamedTuple

import torch
from torch import nn

from fdg_plugins.models import ExtractorClassifier, build_model
from fdg_plugins.objectives import Objective, SiteRound, Trained, see
from fdg_plugins.tasks import DEFAULT_TASK, Task
from tests.objectives.local_steps import copy_of, train_steps
from tests.objectives.objective_batches import CLASSES, Batch, make_batches
from tests.objectives.report_round import ReportRound

PLAIN_SGD = ("mosam",)
RATE = 0.05


class Sent(NamedTuple):
    """What a site has at the start of its second round: the tensors of the server, and its own memory."""

    received: dict[str, torch.Tensor]
    memory: dict[str, torch.Tensor]


NOTHING = Sent({}, {})


class Dense(nn.Module):
    """A convolution and BatchNorm whose map is returned channels last."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Tanh())

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the features ``[B, H, W, 4]``."""
        return self.layers(images).movedim(1, -1)


def network(objective: Objective, task: Task = DEFAULT_TASK) -> ExtractorClassifier:
    """Return the network with BatchNorm that ``objective`` trains, in training mode."""
    if task.one_class_per_image:
        return objective.adapt(build_model("convnet", CLASSES, seed=1), (3, 16, 16), 1).train()
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(1)
        model = ExtractorClassifier(Dense(), nn.Linear(4, CLASSES))
    return objective.adapt(model, (1, 16, 16), 1).train()


def batches_of(
    model: ExtractorClassifier, task: Task = DEFAULT_TASK, sizes: tuple[int, ...] = (4, 4), seed: int = 0
) -> list[Batch]:
    """Return batches of random images with the targets of ``task``; every class is in each."""
    made = make_batches(model, sizes, seed)
    if task.one_class_per_image:
        return made
    return [
        (images, (labels[:, None, None] + torch.arange(16)) % CLASSES + 0 * images[:, 0].long())
        for images, labels in made
    ]


def site_round(objective: Objective, sent: Sent, number: int = 1, task: Task = DEFAULT_TASK) -> SiteRound:
    """Return what ``objective`` knows of the site and its round."""
    return SiteRound("photo", number, 0, RATE, momentum_of(objective), sent.memory, task)


def momentum_of(objective: Objective) -> float:
    """Return the momentum of the sites' SGD; 0 where the method needs that."""
    return 0.0 if objective.name in PLAIN_SGD else 0.9


def train(
    objective: Objective,
    model: ExtractorClassifier,
    sent: Sent,
    number: int = 1,
    seed: int = 0,
    task: Task = DEFAULT_TASK,
) -> tuple[Trained, Any]:
    """Train ``model`` in place for two epochs; return what it was, and the local objective."""
    before = copy_of(model)
    local = objective.local(sent.received, model, site_round(objective, sent, number, task))
    batches = batches_of(model, task, seed=seed)
    local.observe_received(model, see(model, batches, task), CLASSES)
    done = train_steps(model, local, [batches, batches], lr=RATE, momentum=momentum_of(objective))
    local.observe_trained(model, see(model, batches, task), CLASSES)
    update = {name: value - before[name] for name, value in copy_of(model).items()}
    return Trained(update, done.steps, float(done.steps)), local


def after_a_round(objective: Objective, task: Task = DEFAULT_TASK) -> Sent:
    """Return what the first round of one site leaves, with other data."""
    model = network(objective, task)
    state, batches = copy_of(model), batches_of(model, task, seed=7)
    report = objective.report_received(model, see(model, batches, task), CLASSES)
    trained, local = train(objective, model, NOTHING, 0, seed=7, task=task)
    report |= objective.report_trained(model, see(model, batches, task), CLASSES) | local.report(trained)
    exchange = objective.exchange(model, CLASSES)
    if exchange is None:
        return Sent({}, local.memory(trained))
    of_round = ReportRound(exchange, state)
    of_round.accept("photo", report, trained.update)
    of_round.finish(["photo"])
    return Sent(exchange.broadcast(), local.memory(trained))
