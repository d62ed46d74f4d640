# SPDX-License-Identifier: Apache-2.0
"""The bytes of what a FedDIM site reports, counted in a report of OfficeHome's 65 classes; nothing is timed."""

import torch

from cases.measure import Goal, Row
from cases.rounds import state_bytes
from fdg_plugins.methods.feddim import FedDIMObjective
from fdg_plugins.models import build_model
from fdg_plugins.objectives import see

CLASSES = 65  # OfficeHome
PIXELS = 32  # the size of the images has no part in that of the report


def rows(quick: bool = False) -> list[Row]:
    """Return the report against the insight ``[Y, D, Y]`` and against the network; ``quick``: ResNet-18's."""
    network = "resnet18" if quick else "resnet50"
    model = build_model(network, CLASSES, seed=0)
    batches = [(torch.zeros(CLASSES, 3, PIXELS, PIXELS), torch.arange(CLASSES))]  # a sample of each class
    report = state_bytes(FedDIMObjective().report_trained(model, see(model, batches), CLASSES))
    insight = CLASSES * model.last_layer.in_features * CLASSES * 4  # float32
    what = f"FedDIM report, OfficeHome, {network}"
    return [
        Row(
            f"{what}: class means and counts / [Y, D, Y]",
            report,
            insight,
            unit="B",
            goal=Goal("ratio", 1 / 60, "ratio ≤ 1/60"),
        ),
        Row(
            f"{what}: class means and counts / state dict",
            report,
            state_bytes(model.state_dict()),
            unit="B",
            goal=Goal("ratio", 0.01, "ratio ≤ 0.01"),
        ),
    ]
