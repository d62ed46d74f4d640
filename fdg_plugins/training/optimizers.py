# SPDX-License-Identifier: Apache-2.0
"""The optimizer for local training: torch's SGD, Adam or AdamW; SGD's momentum by name; and fine-tuning with it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice

import torch

from fdg_plugins.core.steps import batches_per_epoch
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives.erm import LocalRisk
from fdg_plugins.objectives.network import fixed_names
from fdg_plugins.objectives.objective import FineTuning
from fdg_plugins.settings.protocol import SGD, Protocol
from fdg_plugins.training.loop import Batches, DevicePolicy, ShouldStop, train_locally

Epochs = Callable[[int], Iterator[Batches]]

BUFFER = "momentum_buffer"  # torch's name of it in the state of a parameter

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
        sgd = torch.optim.SGD(
            parameters,
            lr=learning_rate,
            momentum=protocol.momentum,
            weight_decay=protocol.weight_decay,
            fused=fused,
        )
        if fused and protocol.momentum:
            sgd.register_step_pre_hook(lambda optimizer, *_: _begin_momentum(optimizer))
        return sgd
    return ADAPTIVE[protocol.optimizer](parameters, lr=learning_rate, weight_decay=protocol.weight_decay, fused=fused)


def _begin_momentum(optimizer: torch.optim.Optimizer) -> None:
    """Let the momentum of parameters begin at zero whose first gradient comes after others have stepped.

    torch's fused kernel takes the buffers of all parameters that have a gradient, or of none; at the first step, the
    momentum is the gradient either way.
    """
    moved = [one for group in optimizer.param_groups for one in group["params"] if one.grad is not None]
    new = [one for one in moved if optimizer.state[one].get(BUFFER) is None]
    for parameter in new if len(new) < len(moved) else ():
        optimizer.state[parameter][BUFFER] = torch.zeros_like(parameter, requires_grad=False)


def restore_momentum(
    optimizer: torch.optim.Optimizer,
    parameters: Mapping[str, torch.nn.Parameter],
    kept: Mapping[str, torch.Tensor],
) -> None:
    """Let SGD's momentum go on from ``kept``, by the names of ``parameters``; one that is missing starts at zero."""
    for name, parameter in parameters.items() if kept else ():
        if parameter.requires_grad:
            # All at once, as torch's fused kernel needs them, and in the memory format of the parameter.
            buffer = torch.zeros_like(parameter, requires_grad=False)
            optimizer.state[parameter][BUFFER] = buffer.copy_(kept[name]) if name in kept else buffer


def momentum_of(
    optimizer: torch.optim.Optimizer, parameters: Mapping[str, torch.nn.Parameter]
) -> dict[str, torch.Tensor]:
    """Return SGD's momentum by the names of ``parameters``, on the CPU; nothing if any of it is not finite.

    A parameter that has had no gradient has none.
    """
    found = {name: optimizer.state[one].get(BUFFER) for name, one in parameters.items() if one in optimizer.state}
    kept = {name: value.detach().cpu().clone() for name, value in found.items() if value is not None}
    return kept if all(bool(value.isfinite().all()) for value in kept.values()) else {}


def fine_tune(
    model: ExtractorClassifier,
    tuning: FineTuning,
    epochs: Epochs,
    learning_rate: float,
    protocol: Protocol,
    policy: DevicePolicy,
    should_stop: ShouldStop,
    num_train: int,
) -> None:
    """Train in place, by the loss of the task, what ``tuning`` names and the protocol's ``trainable`` does not fix.

    ``model``: a copy of the received one, which gives the site its own model. It is evaluated and discarded.

    ``epochs``: returns that many passes over the training split. ``learning_rate``: of the round. ``num_train``: number
    of training samples.
    """
    fixed = fixed_names(model, protocol)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in tuning.parameters and name not in fixed)
    tuned = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not tuned:
        return
    if tuning.learning_rate is None:
        optimizer = make_optimizer(tuned, protocol, learning_rate, policy.device)
    else:
        optimizer = torch.optim.SGD(tuned, lr=tuning.learning_rate)
    passes = _passes(tuning, epochs, batches_per_epoch(num_train, protocol.batch_size))
    train_locally(model, LocalRisk(task=protocol.learned), passes, optimizer, policy, should_stop)


def _passes(tuning: FineTuning, epochs: Epochs, num_batches: int) -> Iterator[Batches]:
    """Yield the batches of each pass, the last one ending with the last step."""
    if tuning.steps is None:
        yield from epochs(tuning.epochs)
        return
    whole, rest = divmod(tuning.steps, num_batches)
    for number, batches in enumerate(epochs(whole + bool(rest))):
        yield islice(batches, rest) if number == whole else batches
