# SPDX-License-Identifier: Apache-2.0
"""A step of FedIIR, whose penalty is differentiated twice through the classifier, against one of cross entropy."""

import torch

from cases.measure import Goal, Row, interleave, lap
from cases.training import random_batch, training_step
from fdg_plugins.methods.fediir import GRADIENT, FedIIRObjective, classifier_parameters
from fdg_plugins.models import ExtractorClassifier, build_model
from fdg_plugins.objectives import LocalObjective
from fdg_plugins.objectives.erm import LocalRisk

CLASSES = 7  # PACS


def rows(quick: bool = False) -> list[Row]:
    """Return the row of ResNet-18 with a two-layer head, batch 32, 64 px; ``quick``: batch 4, 32 px."""
    samples, pixels, repetitions = (4, 32, 1) if quick else (32, 64, 15)
    batch = random_batch(samples, pixels, CLASSES)
    aligned, plain = two_layer_network(), two_layer_network()
    ours = training_step(aligned, alignment(aligned), *batch)
    reference = training_step(plain, LocalRisk(), *batch)
    seconds = interleave([lambda: lap("ours", ours), lambda: lap("reference", reference)], repetitions, warm_ups=2)
    return [
        Row(
            f"step of ResNet-18, two-layer head, batch {samples}, {pixels} px: FedIIR / cross entropy",
            seconds["ours"],
            seconds["reference"],
            goal=Goal("ratio", 1.25, "ratio ≤ 1.25"),
        )
    ]


def two_layer_network() -> ExtractorClassifier:
    """Return the network, the same each time."""
    return build_model("resnet18", CLASSES, seed=0, head="two_layer")


def alignment(model: ExtractorClassifier, strength: float = 1e-2) -> LocalObjective:
    """Return FedIIR's objective of a round for ``model``, the mean gradient received being zero."""
    received = {GRADIENT + name: torch.zeros_like(value) for name, value in classifier_parameters(model).items()}
    return FedIIRObjective(strength=strength).local(received, model)
