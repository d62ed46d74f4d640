# SPDX-License-Identifier: Apache-2.0
"""Folders of finished runs with models that are right on some images, and what these models say of an image."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from fdg_plugins.data import PACS, open_domain
from fdg_plugins.data.images import evaluation_batches
from fdg_plugins.models import ExtractorClassifier, build_model
from fdg_plugins.record.run_files import RESULTS_FILE, SELECTED_FILE
from fdg_plugins.storage import save_tensors, write_json
from tests.controllers.federation_stubs import run_record

SIZE = 16
CPU = torch.device("cpu")


def batches(data_root: Path, domain: str) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield the images ``[B, C, H, W]`` of a domain of PACS and their labels ``[B]``."""
    data = open_domain(data_root, "pacs", domain, seed=0)
    yield from evaluation_batches(data, data.test, image_size=SIZE, batch_size=64, workers=0, device=CPU)


@torch.no_grad()
def fitted(data_root: Path, seed: int) -> ExtractorClassifier:
    """Return a network with a head fitted to the images of photo by least squares, and disturbed at random."""
    network = build_model("convnet", len(PACS.classes), seed=seed).eval()
    ((images, labels),) = batches(data_root, "photo")
    features = network.extractor(images)
    inputs = torch.cat([features, torch.ones(len(features), 1)], dim=1)
    solved = torch.linalg.lstsq(inputs.T @ inputs + 1e-4 * torch.eye(inputs.shape[1]), inputs.T).solution
    weight = (solved @ torch.eye(len(PACS.classes))[labels]).T
    weight += 0.4 * weight.std() * torch.randn(weight.shape, generator=torch.Generator().manual_seed(seed))
    head = network.classifier
    assert isinstance(head, torch.nn.Linear)
    head.weight.copy_(weight[:, :-1])
    head.bias.copy_(weight[:, -1])
    return network


def finished_run(folder: Path, network: ExtractorClassifier, **changes: Any) -> Path:
    """Write the folder of a run on PACS that held out ``sketch`` and trained on ``cartoon`` and ``photo``."""
    record = run_record(image_size=SIZE, scores=("sensitivity_at_90",))
    record = record.model_copy(update={"status": "finished", "classes": PACS.classes, **changes})
    write_json(folder / RESULTS_FILE, record.model_dump(mode="json"))
    save_tensors(folder / SELECTED_FILE, network.state_dict())
    return folder


@torch.no_grad()
def probabilities(network: ExtractorClassifier, data_root: Path, domain: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the probabilities ``[N, Y]`` of a domain's images, and their labels ``[N]``."""
    found = [(network(images).softmax(dim=1), labels) for images, labels in batches(data_root, domain)]
    return torch.cat([one for one, _ in found]), torch.cat([labels for _, labels in found])
