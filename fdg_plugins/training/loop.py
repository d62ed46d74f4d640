# SPDX-License-Identifier: Apache-2.0
"""Local training and evaluation of a model on one domain, without FLARE; and how a site computes on its device.

The precision ``auto`` means bfloat16 with channels last where the hardware multiplies in bfloat16: on a GPU of compute
capability 8.0 or newer, and on a CPU with AMX or AVX512_BF16. Anywhere else it means float32. Each site decides for
itself, so the sites of a run may differ; the census records what each of them uses. docs/benchmarks.md has what was
measured.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch

from fdg_plugins.errors import SettingsError, Stopped, calling
from fdg_plugins.messages import Precision
from fdg_plugins.settings.protocol import AUTO, Protocol
from fdg_plugins.tasks import DEFAULT_TASK, Accumulator, Score, Task

if TYPE_CHECKING:
    from fdg_plugins.models import ExtractorClassifier
    from fdg_plugins.objectives import LocalObjective

Batches = Iterable[tuple[torch.Tensor, torch.Tensor]]
ShouldStop = Callable[[], bool]
OnEpoch = Callable[[int, float], object]  # number and mean loss of an epoch

BACKEND = "inductor"
CPU_FEATURES = {"amx_tile": "AMX", "avx512_bf16": "AVX512_BF16"}


@dataclass(frozen=True)
class DevicePolicy:
    """A site's device and precision policy: device, autocast to bfloat16, channels-last memory format."""

    device: torch.device
    bfloat16: bool = False
    channels_last: bool = False

    @property
    def precision(self) -> Precision:
        """The precision of forward passes."""
        return "bfloat16" if self.bfloat16 else "float32"

    def place(self, model: "ExtractorClassifier") -> "ExtractorClassifier":
        """Return the model on the device, in the policy's memory format."""
        if self.device.type == "cpu" and not self.channels_last:
            return model  # as it is built
        dims = max(parameter.ndim for parameter in model.parameters())
        return model.to(self.device).to(memory_format=self._format(dims))

    def images(self, images: torch.Tensor) -> torch.Tensor:
        """Return images ``[B, C, H, W]``, or volumes ``[B, C, H, W, Z]``, on the device, in the policy's format."""
        return images.to(self.device, non_blocking=True, memory_format=self._format(images.ndim))

    def _format(self, ndim: int) -> torch.memory_format:
        if not self.channels_last:
            return torch.contiguous_format
        return torch.channels_last_3d if ndim == 5 else torch.channels_last

    def autocast(self) -> torch.autocast:
        """Return the autocast context for forward passes."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.bfloat16)


class Suited(NamedTuple):
    """The precision that suits a device, and why."""

    precision: Precision
    reason: str


def device_policy(protocol: Protocol, device: torch.device) -> DevicePolicy:
    """Return how a site computes on ``device`` under ``protocol``."""
    if protocol.precision != AUTO:
        return DevicePolicy(device, protocol.precision == "bfloat16", protocol.channels_last)
    narrow = suited_precision(device).precision == "bfloat16"
    return DevicePolicy(device, bfloat16=narrow, channels_last=narrow or protocol.channels_last)


def suited_precision(device: torch.device) -> Suited:
    """Return what ``auto`` means on ``device``, which this machine has."""
    if device.type == "cuda":
        with torch.cuda.device(device):
            has_it = torch.cuda.is_bf16_supported(including_emulation=False)
        return Suited("bfloat16", "its GPU has bfloat16") if has_it else Suited("float32", "its GPU lacks bfloat16")
    for feature, name in CPU_FEATURES.items():
        # torch's own checks have underscored names, and a version without one cannot use what it would find.
        if getattr(torch.cpu, f"_is_{feature}_supported", bool)():
            return Suited("bfloat16", f"its CPU has {name}")
    return Suited("float32", f"its CPU has neither {' nor '.join(CPU_FEATURES.values())}")


def why_slow(policy: DevicePolicy) -> str | None:
    """Return a sentence if ``policy`` has a site compute in bfloat16 on hardware that is slow in it, otherwise None."""
    suited = suited_precision(policy.device) if policy.bfloat16 else None
    if suited is None or suited.precision == "bfloat16":
        return None
    return f"precision bfloat16 is slow here, since {suited.reason}: float32 takes a fraction of the time"


def check_compiler(device: torch.device) -> None:
    """Raise ``SettingsError`` unless :data:`BACKEND` can compile for ``device`` here; the first call takes seconds."""
    try:
        torch.compile(lambda values: values + values, backend=BACKEND)(torch.ones(2, device=device))
    except RuntimeError as error:  # the base of dozens of classes with the same meaning for a user
        text = f"compile is true, but torch cannot compile for {device.type!r}"
        reason = str(error).partition("\n")[0]
        needs = "a C++ compiler such as g++" if device.type == "cpu" else "Triton and a C compiler such as gcc"
        raise SettingsError(
            f"{text} on this machine, for which it needs {needs}: {type(error).__name__}: {reason}",
            public=f"{text} on the site's machine.",
        ) from error


# --- training and evaluation ---


@dataclass(frozen=True)
class LocalTraining:
    """The outcome of local training: mean loss per epoch, number of optimizer steps, duration in seconds."""

    epoch_losses: tuple[float, ...]
    steps: int
    seconds: float


def train_locally(
    model: "ExtractorClassifier",
    objective: "LocalObjective",
    epochs: Iterable[Batches],
    optimizer: torch.optim.Optimizer,
    policy: DevicePolicy,
    should_stop: ShouldStop = lambda: False,
    on_epoch: OnEpoch = lambda epoch, loss: None,
) -> LocalTraining:
    """Train ``model`` in place with one pass over each of ``epochs``; return losses, steps and duration.

    Calls ``on_epoch(epoch, mean loss)`` after each epoch, counted from 0. Raises :class:`Stopped` within one batch once
    ``should_stop()`` is true.
    """
    started = time.perf_counter()
    objective.begin(model)
    losses: list[float] = []
    steps = 0
    for epoch, batches in enumerate(epochs):
        model.train()
        objective.prepare(model)
        total = torch.zeros((), dtype=torch.float64, device=policy.device)
        seen = 0
        for images, targets in placed(batches, policy, should_stop):
            loss = _step(model, objective, images, targets, optimizer, policy)
            # Sum on the device: reading the loss after every step would stall an accelerator.
            total += loss.double() * len(targets)
            seen += len(targets)
            steps += 1
        losses.append(float(total) / seen)
        on_epoch(epoch, losses[-1])
    return LocalTraining(tuple(losses), steps, time.perf_counter() - started)


def placed(
    batches: Batches, policy: DevicePolicy, should_stop: ShouldStop
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield ``batches`` on the device; raise :class:`Stopped` as training does."""
    for images, targets in batches:
        if should_stop():
            raise Stopped
        yield policy.images(images), targets.to(policy.device, non_blocking=True)


def _step(
    model: "ExtractorClassifier",
    objective: "LocalObjective",
    images: torch.Tensor,
    targets: torch.Tensor,
    optimizer: torch.optim.Optimizer,
    policy: DevicePolicy,
) -> torch.Tensor:
    def compute_gradients() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        with policy.autocast():
            loss = objective.loss(model, images, targets)
        loss.backward()
        return loss.detach()

    with calling("objective", objective):
        return objective.step(model, compute_gradients, optimizer)


@torch.inference_mode()
def evaluate(
    model: torch.nn.Module,
    batches: Batches,
    policy: DevicePolicy,
    should_stop: ShouldStop = lambda: False,
    task: Task = DEFAULT_TASK,
    size: int | None = None,
    observe: Callable[[torch.Tensor, torch.Tensor], None] | None = None,
) -> Score:
    """Return the score of ``model`` in evaluation mode; raise :class:`Stopped` as training does.

    ``size``: the side in pixels of the images that the model is trained on, as :meth:`Task.logits` needs it.
    ``observe`` receives the logits, float32, and targets of every batch.
    """
    model.eval()
    found = Accumulator(task, policy.device)
    for images, targets in placed(batches, policy, should_stop):
        with policy.autocast():
            logits = task.logits(model, images, size).float()
        found.add(logits, targets)
        if observe is not None:
            observe(logits, targets)
    return found.score()
