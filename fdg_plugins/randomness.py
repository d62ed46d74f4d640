# SPDX-License-Identifier: Apache-2.0
"""One rule for all randomness: a generator is derived from the run's seed and the purpose of the draw.

This package never draws from a global generator without seeding it for exactly that draw. Results therefore depend
neither on the order in which sites are served nor on what the process did before.

>>> derive_seed(0, "photo", 3, "shuffle") == derive_seed(0, "photo", 3, "shuffle")
True
>>> derive_seed(0, "photo", 3, "shuffle") == derive_seed(0, "photo", 4, "shuffle")
False
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def derive_seed(seed: int, *scope: str | int) -> int:
    """Return a seed in [0, 2**63) for the purpose that ``scope`` names, e.g. ``(site, round, "shuffle")``.

    Equal arguments give equal seeds on every machine; different arguments give unrelated seeds.
    """
    text = "\x1f".join([str(int(seed)), *(f"{type(part).__name__}:{part}" for part in scope)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def torch_generator(seed: int, *scope: str | int) -> torch.Generator:
    """Return a torch CPU generator for the purpose that ``scope`` names."""
    return torch.Generator().manual_seed(derive_seed(seed, *scope))


def numpy_generator(seed: int, *scope: str | int) -> np.random.Generator:
    """Return a NumPy generator for the purpose that ``scope`` names."""
    return np.random.default_rng(derive_seed(seed, *scope))


def on_device(drawn: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return what was drawn on the CPU on ``device``, without waiting for an accelerator."""
    if device.type == "cpu":
        return drawn
    return drawn.pin_memory().to(device, non_blocking=True)  # from other memory, a copy waits for all queued work


@contextmanager
def seeded(seed: int, *scope: str | int, device: torch.device | None = None) -> Iterator[None]:
    """Seed torch's global CPU generator within the block, for code that accepts no generator; restore it afterwards.

    ``device``: a device whose global generator is seeded and restored too, if it is an accelerator's.
    """
    cuda = [device] if device is not None and device.type == "cuda" else []
    with torch.random.fork_rng(devices=cuda):
        # Only forked generators may be seeded: torch.manual_seed would also seed the other accelerators, permanently.
        torch.default_generator.manual_seed(derive_seed(seed, *scope))
        for one in cuda:
            with torch.cuda.device(one):
                torch.cuda.manual_seed(derive_seed(seed, *scope))
        yield
