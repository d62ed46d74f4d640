# SPDX-License-Identifier: Apache-2.0
"""One rule for all randomness: a generator is derived from the run's seed and from what it is for.

Nothing in this package draws from a global generator without having seeded it for exactly that
draw, so a result depends neither on the order in which sites are served nor on what else a process
did before.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def derive_seed(seed: int, *scope: str | int) -> int:
    """Return a seed in [0, 2**63) for the purpose that ``scope`` names, e.g. ``(site, round, "shuffle")``.

    Equal arguments give equal seeds on every machine; any change in them gives an unrelated seed.
    """
    text = "\x1f".join([str(int(seed)), *(f"{type(part).__name__}:{part}" for part in scope)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def torch_generator(seed: int, *scope: str | int) -> torch.Generator:
    """Return a CPU generator of torch for the purpose that ``scope`` names."""
    return torch.Generator().manual_seed(derive_seed(seed, *scope))


def numpy_generator(seed: int, *scope: str | int) -> np.random.Generator:
    """Return a generator of numpy for the purpose that ``scope`` names."""
    return np.random.default_rng(derive_seed(seed, *scope))


@contextmanager
def seeded(seed: int, *scope: str | int) -> Iterator[None]:
    """Seed torch's global CPU generator inside the block, for code that takes no generator, and restore it after."""
    with torch.random.fork_rng(devices=[]):
        # Only the CPU generator is forked, so only the CPU generator may be seeded: torch.manual_seed
        # would seed the accelerators too, for ever.
        torch.default_generator.manual_seed(derive_seed(seed, *scope))
        yield
