# SPDX-License-Identifier: Apache-2.0
"""On an accelerator, no step of any method waits for a value or mixes devices.

A pass reads its mean loss once, at its end. A pass of three batches must therefore wait as often as one of a single
batch does.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch

from fdg_plugins.data.transforms import normalised
from fdg_plugins.objectives import OBJECTIVES, make_objective, see
from fdg_plugins.randomness import on_device
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.tasks import DEFAULT_TASK, SEGMENTATION, Task
from fdg_plugins.training.loop import DevicePolicy, train_locally
from fdg_plugins.training.optimizers import make_optimizer
from tests.objectives.accelerator import DEVICE, Accelerator, MixedDevicesError
from tests.objectives.objective_batches import CLASSES
from tests.objectives.second_round import (
    NOTHING,
    RATE,
    Sent,
    after_a_round,
    batches_of,
    momentum_of,
    network,
    site_round,
)

SPECS: list[dict[str, Any]] = [
    *({"name": name} for name in sorted(OBJECTIVES)),
    {"name": "dim", "target": "feature"},
    {"name": "dim", "target": "logit"},
    {"name": "iir", "frozen_batchnorm": True},
    {"name": "am", "probability": 1.0},
    {"name": "rsc", "variant": "feature"},
    {"name": "peravg", "form": "hessian_product"},
    {"name": "lgf", "perturbation": "weight", "noise": "uniform"},
    {"name": "stable", "attention": False},
    {"name": "harmo", "band": 0.25},
]
OF_PIXELS = [spec for spec in SPECS if not OBJECTIVES[spec["name"]].needs_labelled_images]


class Waits(NamedTuple):
    """Where a site waits: when a round's objective is made, and in a pass over the batches."""

    before: list[str]
    training: list[str]


@pytest.fixture(autouse=True)
def _autocast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``torch.autocast``, which takes no device without values, take that of the stand-in."""
    known = torch.autocast
    monkeypatch.setattr(
        torch, "autocast", lambda kind, *rest, **more: known("cpu" if kind == DEVICE.type else kind, *rest, **more)
    )


def waits_of_a_pass(
    spec: dict[str, Any], sent: Sent, batches: int, task: Task = DEFAULT_TASK, optimizer: str = "sgd"
) -> Waits:
    """Train on ``batches`` batches in the site's second round."""
    objective = make_objective(spec)
    protocol = Protocol.model_validate({"optimizer": optimizer, "momentum": momentum_of(objective)})
    model = network(objective, task)
    loaded = batches_of(model, task, sizes=(4,) * batches)
    model = model.to(DEVICE)
    with Accelerator() as before:
        local = objective.local(sent.received, model, site_round(objective, sent, task=task))
    steps = make_optimizer([*model.parameters(), *local.parameters()], protocol, RATE, DEVICE)
    with Accelerator() as training:
        pinned = [(training.pin(images), training.pin(targets)) for images, targets in loaded]
        train_locally(model, local, [pinned], steps, DevicePolicy(DEVICE), lambda: False, lambda *_: None)
    return Waits(before.waits, training.waits)


def waits_of_reports(spec: dict[str, Any], sent: Sent, batches: int, task: Task) -> dict[str, list[str]]:
    """Return where each look at ``batches`` batches of the training images waits, with what it reports."""
    objective = make_objective(spec)
    model = network(objective, task)
    loaded = batches_of(model, task, sizes=(4,) * batches)
    model = model.to(DEVICE)
    local = objective.local(sent.received, model, site_round(objective, sent, task=task))
    looks: list[Callable[..., object]] = [
        objective.report_received,
        local.observe_received,
        objective.report_trained,
        local.observe_trained,
    ]
    waits = {}
    for look in looks:
        with Accelerator() as accelerator:
            pinned = [(accelerator.pin(images), accelerator.pin(targets)) for images, targets in loaded]
            there = [tuple(tensor.to(DEVICE, non_blocking=True) for tensor in batch) for batch in pinned]
            look(model, see(model, there, task), CLASSES)
        waits[look.__name__] = accelerator.waits
    return waits


def only_the_loss_is_read(waits: Waits) -> bool:
    """Return whether a pass reads nothing but its mean loss, and what precedes it nothing at all."""
    (read,) = waits.training
    return "float(total) / seen" in read and not any("_local_scalar_dense" in wait for wait in waits.before)


def test_a_pass_reads_its_mean_loss_and_its_steps_read_nothing() -> None:
    for spec in SPECS:
        for sent in (NOTHING, after_a_round(make_objective(spec))):
            assert only_the_loss_is_read(waits_of_a_pass(spec, sent, batches=2))


def test_a_pass_over_masks_reads_its_mean_loss_and_its_steps_read_nothing() -> None:
    for spec in OF_PIXELS:
        pytest.importorskip("monai")
        sent = after_a_round(make_objective(spec), SEGMENTATION)
        assert only_the_loss_is_read(waits_of_a_pass(spec, sent, batches=2, task=SEGMENTATION))


def test_what_is_reported_is_read_at_the_end_and_not_in_each_batch() -> None:
    cases_1: list[Task] = [DEFAULT_TASK, SEGMENTATION]
    for task in cases_1:
        for spec in SPECS:
            if task is SEGMENTATION:
                pytest.importorskip("monai")
                if spec not in OF_PIXELS:
                    pytest.skip("needs one class for each image")
            sent = after_a_round(make_objective(spec), task)
            few, many = (waits_of_reports(spec, sent, batches, task) for batches in (1, 3))
            assert {look: len(waits) for look, waits in many.items()} == {
                look: len(waits) for look, waits in few.items()
            }


@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
def test_the_other_optimizers_read_nothing_either(optimizer: str) -> None:
    assert only_the_loss_is_read(waits_of_a_pass({"name": "erm"}, NOTHING, 3, optimizer=optimizer))


def test_a_batch_of_pixels_is_normalised_without_waiting() -> None:
    pixels = torch.zeros(2, 3, 4, 4, dtype=torch.uint8, device=DEVICE)
    normalised(pixels)  # the device's first batch brings mean and deviation
    with Accelerator() as accelerator:
        views = normalised(pixels)
    assert (views.dtype, views.shape, accelerator.waits) == (torch.float32, pixels.shape, [])


# --- the stand-in of an accelerator notices ---


def there(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device=DEVICE)


WAITING: dict[str, Callable[[], object]] = {
    "item": lambda: there().item(),
    "float": lambda: float(there()),
    "bool": lambda: bool(there(3).any()),
    "tolist": lambda: there(3).tolist(),
    "cpu": lambda: there(3).cpu(),
    "copy to the CPU": lambda: torch.ones(3).copy_(there(3)),
    "nonzero": lambda: there(3).nonzero(),
    "mask": lambda: there(3)[there(3, dtype=torch.bool)],
    "mask to write": lambda: there(3).index_put_((there(3, dtype=torch.bool),), there()),
    "unique": lambda: there(3, dtype=torch.int64).unique(),
    "bincount": lambda: torch.bincount(there(3, dtype=torch.int64)),
    "copy from the CPU": lambda: torch.ones(3).to(DEVICE),
    "copy from memory that is not pinned": lambda: torch.ones(3).to(DEVICE, non_blocking=True),
}


def test_a_wait_is_noticed() -> None:
    for act in WAITING.values():
        with Accelerator() as accelerator:
            try:
                act()
            except NotImplementedError:  # without values, torch cannot tell the shape of the result
                assert accelerator.waits
        assert len(accelerator.waits) == 1


def test_mixed_devices_are_noticed() -> None:
    with Accelerator(), pytest.raises(MixedDevicesError, match="add"):
        there(3) + torch.ones(3)


def test_what_does_not_wait_is_not_noticed() -> None:
    generator = torch.Generator().manual_seed(0)
    with Accelerator() as accelerator:
        drawn = torch.rand(3, generator=generator)
        assert float(drawn.sum()) > 0
        moved = on_device(drawn, DEVICE)
        torch.where((moved > 0.5).any(), moved * 2, there(3)).sum()
        moved[there(2, dtype=torch.int64)] += 1.0
        there(3).copy_(moved)
    assert accelerator.waits == []
