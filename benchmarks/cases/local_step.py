# SPDX-License-Identifier: Apache-2.0
"""A site's loop of local training and its evaluation, as FedAvg and FedDG-GA have them, against plain PyTorch loops."""

from collections.abc import Callable

import torch

from cases.measure import Goal, Row, interleave, lap
from cases.plain_loop import Batches, evaluate_plainly, train_plainly
from cases.training import LEARNING_RATE, MOMENTUM, random_batch
from fdg_plugins.models import ExtractorClassifier, build_model
from fdg_plugins.objectives.erm import LocalRisk
from fdg_plugins.training.loop import DevicePolicy, evaluate, train_locally

CLASSES = 7  # PACS
CPU = DevicePolicy(torch.device("cpu"))


def rows(quick: bool = False) -> list[Row]:
    """Return the rows of ResNet-18, 8 batches of 32 images of 64 px; ``quick``: 2 of 4 images of 32 px."""
    samples, pixels, count, repetitions = (4, 32, 2, 1) if quick else (32, 64, 8, 7)
    batches = [random_batch(samples, pixels, CLASSES)] * count
    ours, plain = (build_model("resnet18", CLASSES, seed=0) for _ in range(2))
    seconds = interleave(
        [
            lambda: lap("ours", our_training(ours, batches)),
            lambda: lap("plain", plain_training(plain, batches)),
            lambda: lap("our evaluation", lambda: evaluate(ours, batches, CPU)),
            lambda: lap("plain evaluation", lambda: evaluate_plainly(plain, batches)),
        ],
        repetitions,
    )
    what, goal = f"ResNet-18, {count} batches of {samples}, {pixels} px", Goal("ratio", 1.03, "ratio ≤ 1.03")
    return [
        Row(f"local training, {what}: a site / plain loop", seconds["ours"], seconds["plain"], goal=goal),
        Row(
            f"evaluation, {what}: a site / plain loop",
            seconds["our evaluation"],
            seconds["plain evaluation"],
            goal=goal,
        ),
    ]


def our_training(model: ExtractorClassifier, batches: Batches, policy: DevicePolicy = CPU) -> Callable[[], object]:
    """Return one pass of a site's own loop over ``batches``."""
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    return lambda: train_locally(model, LocalRisk(), [batches], optimizer, policy)


def plain_training(model: ExtractorClassifier, batches: Batches) -> Callable[[], object]:
    """Return one pass of the plain loop over ``batches``."""
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    return lambda: train_plainly(model, batches, optimizer)
