# SPDX-License-Identifier: Apache-2.0
"""A network by the path of its factory: the plug-in file that is written for it, and what is refused."""

import sys
from pathlib import Path

import pytest
import torch

from fdg_plugins.errors import SettingsError
from fdg_plugins.models import NETWORKS, build_model
from fdg_plugins.plugins.factories import bring_factory
from fdg_plugins.plugins.files import files_behind

NET = """
from __future__ import annotations

from torch import nn


class Net(nn.Module):
    def __init__(self, num_classes: int, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.head = nn.Linear(4 * channels, num_classes)

    def forward(self, images):
        return self.head(self.body(images))


number = 3
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A user's folder with modules, and a folder for what is written."""
    folder = tmp_path / "here"
    for path in (folder / "nets" / "one.py", folder / "my_net.py", folder / "3d.py", tmp_path / "made" / "none"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(NET, encoding="utf-8")
    (folder / "script.py").write_text("import sys\n\nsys.exit(3)\n", encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("my_net:Net", "my_net_net"),
        ("my_net.py:Net", "my_net_net"),
        ("nets.one:Net", "nets_one_net"),
        ("nets/one.py:Net", "one_net"),
        ("3d.py:Net", "net_3d_net"),
    ],
)
def test_a_file_of_ones_own_is_copied_with_a_record_at_its_end(here: Path, text: str, name: str) -> None:
    folder = here.parent / "made"
    path, network = bring_factory(text, here, folder)
    assert (path, network) == (folder / f"{name}.py", name)
    assert path.read_text(encoding="utf-8").startswith(NET)
    assert files_behind([("model", network)]) == {network: path}
    for channels in (1, 3):
        model = build_model(network, 5, seed=0, channels=channels)
        assert model(torch.zeros(2, channels, 8, 8)).shape == (2, 5)


def test_an_installed_module_is_named_and_not_copied(here: Path) -> None:
    (here / "torchvision").mkdir()
    (here / "torchvision" / "models.py").write_text("raise RuntimeError\n", encoding="utf-8")
    path, network = bring_factory("torchvision.models:squeezenet1_1", here, here.parent / "made")
    assert network == "torchvision_models_squeezenet1_1"
    assert '("torchvision.models:squeezenet1_1", name=' in path.read_text(encoding="utf-8")
    assert NETWORKS.get(network).channels == 3


@pytest.mark.parametrize(
    "text",
    ["no_net:Net", "my_net:Nett", "my_net:number", "no/net.py:Net", "script.py:Net", "torchvision.models:Net", ":Net"],
)
def test_what_is_no_factory_is_refused_and_leaves_no_trace(here: Path, text: str) -> None:
    with pytest.raises(SettingsError):
        bring_factory(text, here, here.parent / "made")
    assert len(NETWORKS.loaded()) == len(NETWORKS.own())
    assert not [name for name in sys.modules if name.startswith("fdg_custom_")]


def test_a_job_cannot_name_a_factory() -> None:
    with pytest.raises(SettingsError):
        NETWORKS.get("torchvision.models:resnet18")
