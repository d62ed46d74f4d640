# SPDX-License-Identifier: Apache-2.0
"""A site's local training in bfloat16 with channels last, as ``precision: auto`` chooses it, against float32.

What channels last alone does is a row of its own. The ratio decides for which processors ``auto`` means bfloat16
(``fdg_plugins.training.loop``).
"""

import torch

from cases.local_step import CLASSES, our_training
from cases.measure import Row, interleave, lap
from cases.training import random_batch
from fdg_plugins.models import NETWORKS, build_model
from fdg_plugins.training.loop import DevicePolicy

CPU = torch.device("cpu")
WAYS = {
    "float32": DevicePolicy(CPU),
    "float32, channels last": DevicePolicy(CPU, channels_last=True),
    "bfloat16, channels last": DevicePolicy(CPU, bfloat16=True, channels_last=True),
}


def rows(quick: bool = False) -> list[Row]:
    """Return the rows of ResNet-18, 32 images of 64 and 128 px a batch, and of other networks at their sizes.

    ``quick``: the convnet, 4 images of 16 px.
    """
    if quick:
        return _rows("convnet", samples=4, pixels=16, count=2, repetitions=1)
    return [
        *_rows("resnet18", samples=32, pixels=64, count=8, repetitions=7),
        *_rows("resnet18", samples=32, pixels=128, count=4, repetitions=5),
        *_rows("groupnorm_convnet", samples=64, pixels=28, count=8, repetitions=7),
        *_rows("efficientnet_lite0", samples=32, pixels=96, count=4, repetitions=5),
    ]


def _rows(network: str, *, samples: int, pixels: int, count: int, repetitions: int) -> list[Row]:
    images, labels = random_batch(samples, pixels, CLASSES)
    batches = [(images[:, : NETWORKS.get(network).channels], labels)] * count
    passes = {
        way: our_training(policy.place(build_model(network, CLASSES, seed=0)), batches, policy)
        for way, policy in WAYS.items()
    }
    turns = [lambda way=way, train=train: lap(way, train) for way, train in passes.items()]
    seconds = interleave(turns, repetitions)
    what = f"local training, {network}, {count} batches of {samples}, {pixels} px"
    reference, *others = WAYS
    return [Row(f"{what}: {way} / {reference}", seconds[way], seconds[reference]) for way in others]
