# SPDX-License-Identifier: Apache-2.0
"""Fixtures for all tests: a small data set in the layout of PACS, and a process that owes nothing to its user."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from nvflare.apis.utils.decomposers import flare_decomposers
from nvflare.app_opt.pt.decomposers import TensorDecomposer
from nvflare.app_opt.pt.lazy_tensor_dict import LazyTensorDict
from nvflare.app_opt.pt.tensor_downloader import DiskTensorConsumer
from nvflare.fuel.utils import fobs
from PIL import Image
from safetensors.torch import save

from fdg_plugins.data import PACS

# Files that take minutes, the longest first: with two workers, nothing else then waits for them at the end.
LONGEST = ("test_many_sites.py", "test_bare_command.py", "test_methods.py", "test_faults.py")
IMAGES_PER_CLASS = 4
PIXELS = 16


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the longest files begin; all others keep their order."""
    items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """Keep arithmetic in one thread: the tests share their machine, and tiny models gain nothing from more."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def wire() -> None:
    """FLARE's serializer as the processes of a job have it: FLARE's own types and tensors."""
    flare_decomposers.register()
    fobs.register(TensorDecomposer)


@pytest.fixture
def offload_root(tmp_path: Path) -> Path:
    """The folder in which FLARE keeps what has arrived, a folder for each message."""
    root = tmp_path / "offload"
    root.mkdir()
    return root


@pytest.fixture
def offload(offload_root: Path) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Return a function that hands tensors over as FLARE's tensor disk offload does; all else stays as it is."""

    def hand_over(params: Mapping[str, Any]) -> dict[str, Any]:
        folder = offload_root / f"message_{len(list(offload_root.iterdir()))}_{os.urandom(4).hex()}"
        folder.mkdir()
        tensors = {name: value for name, value in params.items() if isinstance(value, torch.Tensor)}
        items = {name: f"T{number}" for number, name in enumerate(tensors)}
        consumer = DiskTensorConsumer(str(folder))
        chunks = [save({items[name]: value}) for name, value in tensors.items()]
        found = LazyTensorDict(consumer.consume_items(chunks, None), str(folder))
        consumer.release()
        return {**params, **{name: found.make_lazy_ref(item) for name, item in items.items()}}

    return hand_over


@pytest.fixture
def no_fdg_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove every ``FDG_*`` variable of the user who runs the tests."""
    for name in [name for name in os.environ if name.startswith("FDG_")]:
        monkeypatch.delenv(name)


def write_domain(root: Path, domain: str) -> None:
    """Write four images of each class of PACS, told apart by their colour with some noise."""
    generator = np.random.default_rng(PACS.domains.index(domain))
    colours = np.random.default_rng(99).integers(40, 216, size=(len(PACS.classes), 3))
    for label, name in enumerate(PACS.classes):
        folder = root / "pacs" / domain / name
        folder.mkdir(parents=True)
        for number in range(IMAGES_PER_CLASS):
            noise = generator.integers(-30, 31, size=(PIXELS, PIXELS, 3))
            pixels = (colours[label] + noise).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / f"{number:03d}.png")


@pytest.fixture(scope="session")
def data_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data root with the four domains of PACS, 7 classes of 4 images of 16 pixels each; not to be written to."""
    root = tmp_path_factory.mktemp("data")
    for domain in PACS.domains:
        write_domain(root, domain)
    return root


@pytest.fixture
def own_data_root(tmp_path: Path) -> Path:
    """A data root of the test's own with the domain ``photo`` only, which the test may damage."""
    write_domain(tmp_path / "own_data", "photo")
    return tmp_path / "own_data"
