# SPDX-License-Identifier: Apache-2.0
"""The optimizer of a local training, by the protocol's name for it: SGD, Adam or AdamW, as torch has them."""

from collections.abc import Callable, Iterable

import torch

from fdg_plugins.settings.protocol import SGD, Protocol

ADAPTIVE: dict[str, Callable[..., torch.optim.Optimizer]] = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}


def make_optimizer(
    parameters: Iterable[torch.nn.Parameter], protocol: Protocol, learning_rate: float, device: torch.device | None
) -> torch.optim.Optimizer:
    """Return a new optimizer of ``parameters``; it remembers nothing of earlier rounds.

    ``device``: where all of them are, for the fastest kernels there; None for torch's default ones.

    Adam's weight decay is added to the gradient, AdamW's is not; both have torch's betas and epsilon.
    """
    # One pass over the parameters, in half of the time on a CPU. On a GPU torch chooses.
    fused = True if device is not None and device.type == "cpu" else None
    if protocol.optimizer == SGD:
        return torch.optim.SGD(
            parameters,
            lr=learning_rate,
            momentum=protocol.momentum,
            weight_decay=protocol.weight_decay,
            fused=fused,
        )
    return ADAPTIVE[protocol.optimizer](parameters, lr=learning_rate, weight_decay=protocol.weight_decay, fused=fused)
