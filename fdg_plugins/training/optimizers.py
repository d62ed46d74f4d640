# SPDX-License-Identifier: Apache-2.0
"""The optimizer for local training, chosen by the protocol: torch's SGD, Adam or AdamW."""

from collections.abc import Callable, Iterable

import torch

from fdg_plugins.settings.protocol import SGD, Protocol

ADAPTIVE: dict[str, Callable[..., torch.optim.Optimizer]] = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}


def make_optimizer(
    parameters: Iterable[torch.nn.Parameter], protocol: Protocol, learning_rate: float, device: torch.device | None
) -> torch.optim.Optimizer:
    """Return a new optimizer for ``parameters``, without state from earlier rounds.

    ``device``: the device of all parameters, to select its fastest kernels; None selects torch's default kernels.

    Adam adds weight decay to the gradient; AdamW decouples it. Both use torch's default betas and epsilon.
    """
    # The fused kernel makes one pass over the parameters and halves the time on a CPU. On a GPU, torch chooses.
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
