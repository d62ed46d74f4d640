# SPDX-License-Identifier: Apache-2.0
"""A site's step under methods that change it, against one of cross entropy: what a method costs beyond its passes."""

from collections.abc import Callable
from functools import partial

from cases.measure import Goal, Row, interleave, lap
from cases.training import random_batch, training_step
from fdg_plugins.models import build_model
from fdg_plugins.objectives import make_objective

CLASSES = 7  # PACS
PLAIN = "erm"
METHODS = {  # by objective: the method, and the largest ratio wanted
    "prox": ("FedProx", 1.25),  # one pass forwards and one backwards, as cross entropy
    "sam": ("FedSAM", 2.25),  # two of each
    "pac": ("FedPAC, an epoch of the head", 0.6),  # one forwards
}


def rows(quick: bool = False) -> list[Row]:
    """Return the rows of ResNet-18, batch 32, 64 px; ``quick``: batch 4, 32 px."""
    samples, pixels, repetitions = (4, 32, 1) if quick else (32, 64, 15)
    steps = {name: method_step(name, samples, pixels) for name in (PLAIN, *METHODS)}
    seconds = interleave([partial(lap, name, step) for name, step in steps.items()], repetitions, warm_ups=2)
    return [
        Row(
            f"step of ResNet-18, batch {samples}, {pixels} px: {method} / cross entropy",
            seconds[name],
            seconds[PLAIN],
            goal=Goal("ratio", limit, f"ratio ≤ {limit:g}"),
        )
        for name, (method, limit) in METHODS.items()
    ]


def method_step(name: str, samples: int, pixels: int) -> Callable[[], object]:
    """Return one step with the objective ``name``, on a network and a batch that are the same each time."""
    model = build_model("resnet18", CLASSES, seed=0)
    return training_step(model, make_objective(name).local({}, model), *random_batch(samples, pixels, CLASSES))
