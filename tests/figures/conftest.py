# SPDX-License-Identifier: Apache-2.0
"""A run that kept everything a figure can need: its models, on images that are there."""

from pathlib import Path

import pytest
import torch

from fdg_plugins.data import PACS, open_domain
from fdg_plugins.lab.analysis import Run
from fdg_plugins.models import build_model
from fdg_plugins.randomness import torch_generator
from fdg_plugins.storage import save_tensors
from tests.figures.figure_stubs import census_reply, figure_run, keep

PROTOCOL = {"model": "convnet", "image_size": 16, "keep_local_models": True}


def disturbed(number: int) -> dict[str, torch.Tensor]:
    """Return the parameters of a small network, each moved a little, and not the same way for every ``number``."""
    state = build_model("convnet", len(PACS.classes), seed=0).state_dict()
    generator = torch_generator(number, "disturbed")
    moved = {}
    for name, value in state.items():
        if not value.is_floating_point():
            moved[name] = value + number
        else:
            noise = 0.1 * torch.randn(value.shape, generator=generator)
            moved[name] = value + (noise.abs() if name.endswith("running_var") else noise)
    return moved


def make_trained_run(folder: Path, data_root: Path) -> Run:
    """Write a run with three sources into ``folder``: record, three local models, and both global ones, their mean."""
    census = {}
    for domain in PACS.domains:
        data = open_domain(data_root, "pacs", domain, seed=0)
        census[domain] = census_reply(domain, 0, split=data.split, split_hash=data.split_hash)
    run = figure_run(target="photo", protocol=PROTOCOL, census=census, classes=PACS.classes)
    kept = keep(run, folder)
    local = {site: disturbed(number) for number, site in enumerate(run.record.sources, start=1)}
    for site, state in local.items():
        save_tensors(folder / "local_models" / f"{site}.safetensors", state, {"site": site})
    mean = {
        name: torch.stack([state[name] for state in local.values()]).double().mean(dim=0).to(value.dtype)
        for name, value in local[run.record.sources[0]].items()
    }
    save_tensors(folder / "global_model.safetensors", mean)
    save_tensors(folder / "global_model_selected.safetensors", disturbed(9))
    return kept


@pytest.fixture(scope="session")
def trained_run(tmp_path_factory: pytest.TempPathFactory, data_root: Path) -> Run:
    """A run with all its models; not to be written to."""
    return make_trained_run(tmp_path_factory.mktemp("trained") / "run", data_root)


@pytest.fixture
def own_run(tmp_path: Path, data_root: Path) -> Run:
    """The same run in a folder of the test's own, which it may damage."""
    return make_trained_run(tmp_path / "own_run", data_root)
