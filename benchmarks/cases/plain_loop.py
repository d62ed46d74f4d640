# SPDX-License-Identifier: Apache-2.0
"""Local training and evaluation as a script has them: a loop of plain PyTorch without anything of this package."""

from collections.abc import Iterable

import torch
from torch.nn.functional import cross_entropy

Batches = Iterable[tuple[torch.Tensor, torch.Tensor]]


def train_plainly(model: torch.nn.Module, batches: Batches, optimizer: torch.optim.Optimizer) -> float:
    """Train ``model`` in place, one pass over ``batches``; return the mean loss per image."""
    device = next(model.parameters()).device
    model.train()
    total, seen = torch.zeros((), device=device), 0
    for images, labels in batches:
        images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        loss = cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach() * len(labels)
        seen += len(labels)
    return float(total) / seen


@torch.inference_mode()
def evaluate_plainly(model: torch.nn.Module, batches: Batches) -> float:
    """Return the fraction of ``batches`` that ``model`` classifies correctly."""
    device = next(model.parameters()).device
    model.eval()
    correct, seen = torch.zeros((), dtype=torch.int64, device=device), 0
    for images, labels in batches:
        logits = model(images.to(device, non_blocking=True))
        correct += (logits.argmax(dim=1) == labels.to(device, non_blocking=True)).sum()
        seen += len(labels)
    return int(correct) / seen
