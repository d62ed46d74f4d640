# SPDX-License-Identifier: Apache-2.0
"""Fixtures for all tests: a small data set in the layout of PACS, and a process that owes nothing to its user."""

import gc
import os
import shutil
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from nvflare.apis.utils.decomposers import flare_decomposers
from nvflare.app_opt.pt.decomposers import TensorDecomposer
from nvflare.app_opt.pt.lazy_tensor_dict import LazyTensorDict
from nvflare.app_opt.pt.tensor_downloader import DiskTensorConsumer
from nvflare.fuel.utils import fobs
from PIL import Image
from safetensors.torch import save

from fdg_plugins.data import PACS
from fdg_plugins.errors import MissingPackageError
from fdg_plugins.lab.sweep import run as sweep_run
from fdg_plugins.plugins import files
from fdg_plugins.plugins.registry import FILE, registries

IMAGES_PER_CLASS = 4
PIXELS = 16

# That a busy machine is slow is no fault of a test.
settings.register_profile("fdg", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("fdg")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """Skip a test that needs a package of an extra which is not installed."""
    try:
        yield
    except MissingPackageError as error:
        pytest.skip(str(error))


def pytest_collection_finish() -> None:
    """Set apart what collection leaves for good, which every search for garbage would go through again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    """Keep arithmetic in one thread, here and in processes that a test starts.

    The tests share their machine, and tiny models gain nothing from more.
    """
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_power_failure() -> Iterator[None]:
    """Do not wait for the disk after every file: no test outlives a power failure."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture(autouse=True)
def _nothing_that_others_have_added() -> Iterator[None]:
    """No test finds the records that another has added, or the methods of a file that another has loaded."""
    before = [{name for name, (_, origin) in one._known.items() if origin == FILE} for one in registries()]
    yield
    for name in [*files._LOADED]:
        files._forget(name)
    for registry, kept in zip(registries(), before, strict=True):
        registry._known = {name: one for name, one in registry._known.items() if one[1] != FILE or name in kept}


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


@pytest.fixture
def quick_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands look at their runs a hundred times a second, since fakes advance when they are looked at."""
    monkeypatch.setattr(sweep_run, "POLL_S", 0.01)


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


@pytest.fixture(scope="session")
def example_plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which ``examples/plugin`` is installed as pip leaves it; it counts where it is on Python's path."""
    source, folder = Path(__file__).parents[1] / "examples" / "plugin", tmp_path_factory.mktemp("plugin")
    project = tomllib.loads((source / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    name, version = project["name"], project["version"]
    shutil.copytree(source / name.replace("-", "_"), folder / name.replace("-", "_"))
    (info := folder / f"{name.replace('-', '_')}-{version}.dist-info").mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")
    entries = [
        line
        for group, named in project["entry-points"].items()
        for line in (f"[{group}]", *(f"{key} = {value}" for key, value in named.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join(entries), encoding="utf-8")
    return folder


def forget_installed() -> None:
    """Have installed plug-ins discovered again at the next request for a name."""
    for registry in registries():
        registry._known = {name: one for name, one in registry._known.items() if one[1] in (None, FILE)}
        registry._entries = None


@pytest.fixture
def installed(example_plugin: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The example plug-in, installed for this process and those that it starts."""
    monkeypatch.syspath_prepend(str(example_plugin))
    monkeypatch.setenv("PYTHONPATH", str(example_plugin))
    forget_installed()
    yield example_plugin
    monkeypatch.undo()
    forget_installed()


@pytest.fixture(scope="session")
def blocks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data root with the example plug-in's data set: bars and squares of three colours, 8 images of each."""
    root = tmp_path_factory.mktemp("blocks")
    shades = {"red": (200, 40, 40), "green": (40, 200, 40), "blue": (40, 40, 200)}
    generator = np.random.default_rng(0)
    for domain, colour in shades.items():
        for shape, height in (("bar", 4), ("square", 12)):
            folder = root / "blocks" / domain / shape
            folder.mkdir(parents=True)
            for number in range(8):
                pixels = generator.integers(0, 40, (16, 16, 3), dtype=np.uint8)
                pixels[2 : 2 + height, 2:14] = colour
                Image.fromarray(pixels).save(folder / f"{number}.png")
    return root


@pytest.fixture
def own_data_root(tmp_path: Path) -> Path:
    """A data root of the test's own with the domain ``photo`` only, which the test may damage."""
    write_domain(tmp_path / "own_data", "photo")
    return tmp_path / "own_data"
