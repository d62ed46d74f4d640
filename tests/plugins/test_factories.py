# SPDX-License-Identifier: Apache-2.0
"""A network by the path of its factory: the plug-in file that is written for it, and what is refused."""

import sys
from pathlib import Path

import pytest
import torch

from fdg_plugins.errors import SettingsError
from fdg_plugins.models import NETWORKS, build_model
from fdg_plugins.plugins.factories import bring_factory, is_factory
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
    """A user's folder with a module, and a package whose module imports its neighbour."""
    folder = tmp_path / "here"
    (folder / "nets").mkdir(parents=True)
    (folder / "my_net.py").write_text(NET, encoding="utf-8")
    (folder / "nets" / "one.py").write_text(NET, encoding="utf-8")
    (folder / "nets" / "two.py").write_text("from nets.one import Net\n", encoding="utf-8")
    (folder / "3d.py").write_text(NET, encoding="utf-8")
    (folder / "by_name.py").write_text("from my_net import Net\n", encoding="utf-8")
    (folder / "wrong.py").write_text("Net = other\n", encoding="utf-8")
    (folder / "script.py").write_text("import sys\n\nsys.exit(3)\n", encoding="utf-8")
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "made").mkdir()
    return tmp_path / "made"


def test_a_file_of_ones_own_is_copied_with_a_record_at_its_end(here: Path, folder: Path) -> None:
    cases: list[tuple[str, str]] = [
        ("my_net:Net", "my_net_net"),
        ("my_net.py:Net", "my_net_net"),
        ("nets.one:Net", "nets_one_net"),
        ("nets/one.py:Net", "one_net"),
        ("3d.py:Net", "net_3d_net"),
    ]
    for text, name in cases:
        path, network = bring_factory(text, here, folder)
        assert (path, network) == (folder / f"{name}.py", name)
        assert path.read_text(encoding="utf-8").startswith(NET)
        assert files_behind([("model", network)]) == {network: path}
        assert NETWORKS.get(network).channels is None
        for channels in (1, 3):
            model = build_model(network, 5, seed=0, channels=channels)
            assert model(torch.zeros(2, channels, 8, 8)).shape == (2, 5)


def test_an_installed_module_is_named_and_not_copied(folder: Path, here: Path) -> None:
    (here / "torchvision").mkdir()
    (here / "torchvision" / "models.py").write_text("raise RuntimeError\n", encoding="utf-8")
    path, network = bring_factory("torchvision.models:squeezenet1_1", here, folder)
    assert network == "torchvision_models_squeezenet1_1"
    assert path.read_text(encoding="utf-8").endswith(
        'NETWORK = network_of("torchvision.models:squeezenet1_1", name="torchvision_models_squeezenet1_1")\n'
    )
    assert NETWORKS.get(network).channels == 3


def test_what_is_no_factory_is_refused_in_one_sentence(here: Path, folder: Path) -> None:
    cases: list[tuple[str, str]] = [
        ("no_net:Net", r"names the module 'no_net', which is neither installed nor the file .*/here/no_net.py"),
        (
            "my_net:Nett",
            r"^model 'my_net:Nett': file .*/here/my_net.py has no 'Nett', did you mean 'Net'\? Known are Net",
        ),
        (
            "by_name:Net",
            r"^model 'by_name:Net': plug-in file .*/here/by_name.py cannot .*, which is beside it: a plug-in",
        ),
        ("wrong:Net", r"^model 'wrong:Net': plug-in file .*/here/wrong.py cannot be loaded: NameError: name 'other'"),
        ("my_net:number", r"model 'my_net_number' is built by a int, expected a function or class"),
        ("no/net.py:Net", r"model file .*/here/no/net.py cannot be read: No such file"),
        ("script.py:Net", r"model 'script.py:Net': .* cannot be loaded: SystemExit: 3"),
        ("nets.two:Net", r"model 'nets.two:Net': .* cannot be loaded: ModuleNotFoundError: No module named 'nets'"),
        ("torchvision.models:Net", r"module 'torchvision.models' has no 'Net'"),
        ("my_net:Net()", r"model is 'my_net:Net\(\)', expected the name of a network, package.module:factory or"),
        ("my_net:Net:Net", "expected the name of a network"),
        (":Net", "expected the name of a network"),
    ]
    for text, message in cases:
        assert is_factory(text)
        with pytest.raises(SettingsError, match=message):
            bring_factory(text, here, folder)
        assert not NETWORKS.loaded()[len(NETWORKS.own()) :]
        assert not [name for name in sys.modules if name.startswith("fdg_custom_")]


def test_a_job_cannot_name_a_factory() -> None:
    assert not is_factory("resnet18")
    with pytest.raises(SettingsError, match=r"model 'torchvision.models:resnet18' is unknown"):
        NETWORKS.get("torchvision.models:resnet18")
