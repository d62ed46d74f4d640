# SPDX-License-Identifier: Apache-2.0
"""A site's local training by code that torch compiles there (its option ``compile``) against the same uncompiled.

Needs a C++ compiler. The first pass, which compiles, is a row of its own and no part of the other.
"""

import torch
import torch.compiler.config

from cases.local_step import CLASSES, our_training
from cases.measure import Row, interleave, lap
from cases.training import random_batch
from fdg_plugins.models import build_model
from fdg_plugins.training.precision import BACKEND


def rows(quick: bool = False) -> list[Row]:
    """Return the rows of ResNet-18, 8 batches of 32 images of 64 px; ``quick``: the convnet, 2 of 4 of 16 px."""
    network, samples, pixels, count, repetitions = ("convnet", 4, 16, 2, 1) if quick else ("resnet18", 32, 64, 8, 7)
    batches = [random_batch(samples, pixels, CLASSES)] * count
    torch.compiler.reset()  # what this process compiled before neither helps nor counts towards torch's limit
    plain, compiled = (build_model(network, CLASSES, seed=0) for _ in range(2))
    compiled.compile_for_training(BACKEND)
    plainly, by_compiled_code = our_training(plain, batches), our_training(compiled, batches)
    # What an earlier run compiled does not help. torch adds the method when it loads the module, so mypy knows of none.
    with torch.compiler.config.patch(force_disable_caches=True):  # type: ignore[attr-defined]
        turns = [lambda: lap("compiled", by_compiled_code), lambda: lap("plain", plainly)]
        first = interleave(turns, repetitions=1, warm_ups=0)
        seconds = interleave(turns, repetitions)
    what = f"local training, {network}, {count} batches of {samples}, {pixels} px: compiled / not compiled"
    return [
        Row(what, seconds["compiled"], seconds["plain"]),
        Row(
            f"its first pass, which compiles, {what.removeprefix('local training, ')}",
            first["compiled"],
            first["plain"],
        ),
    ]
