# SPDX-License-Identifier: Apache-2.0
"""Files at hand and factories of networks: loaded under names that shadow nothing, or refused without a trace."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.centralised import ALGORITHMS
from fdg_plugins.models import NETWORKS, build_model
from fdg_plugins.plugins.files import bring_factory, files_behind, load_file, load_files
from fdg_plugins.plugins.methods import METHODS, REFERENCES
from fdg_plugins.recipes import make_recipe
from tests.own_networks import NETWORKS as NETWORKS_TEXT

NETWORK = """
from torch import nn
from fdg_plugins.models import NETWORKS, Network

def build(num_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear({size}, num_classes))

MINE = Network(name="{name}", build=build)
KNOWN = NETWORKS.get("resnet18")  # what a file imports is not what it brings
"""


@pytest.fixture
def custom(tmp_path: Path) -> Path:
    folder = tmp_path / "custom"
    folder.mkdir()
    return folder


def write(path: Path, name: str = "mine", size: int = 12) -> Path:
    path.write_text(NETWORK.format(name=name, size=size), encoding="utf-8")
    return path


def test_a_file_brings_its_records_under_a_name_of_its_own(custom: Path) -> None:
    path = write(custom / "json.py")
    load_files(["json"], custom)
    assert NETWORKS.get("mine").extractor(2)[1] == 12
    assert sys.modules["fdg_custom_json"].__file__ == str(path)
    assert sys.modules["json"].__file__ != str(path)
    assert NETWORKS.origin("resnet18") is None
    assert files_behind([("model", "mine"), ("model", "resnet18")]) == {"json": path}


def test_the_same_content_is_loaded_once_and_another_takes_its_place(custom: Path) -> None:
    load_file(write(custom / "again.py"))
    before = NETWORKS.get("mine")
    load_file(write(custom / "again.py"))
    assert NETWORKS.get("mine") is before
    load_file(write(custom / "again.py", size=27))
    assert NETWORKS.get("mine").extractor(2)[1] == 27


def test_two_records_of_one_name_are_refused_and_leave_no_trace(custom: Path) -> None:
    load_file(write(custom / "first.py"))
    with pytest.raises(SettingsError):
        load_file(write(custom / "other.py", size=3))
    assert NETWORKS.get("mine").extractor(2)[1] == 12
    both = write(custom / "both.py", name="two")
    both.write_text(both.read_text(encoding="utf-8") + "OTHER = Network(name='two', build=print)\n", encoding="utf-8")
    with pytest.raises(SettingsError):
        load_file(both)
    assert NETWORKS.find("two") is None


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_not_a_regular_file_is_refused_and_not_waited_for(custom: Path, make: Callable[[Path], None]) -> None:
    make(custom / "mine.py")
    with pytest.raises(SettingsError):
        load_file(custom / "mine.py")


def test_a_job_loads_nothing_but_files_of_its_own_folder(custom: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(custom.parent))
    (custom / "linked.py").symlink_to(write(custom.parent / "outside.py"))
    (custom / "folder.py").mkdir()
    names = ["../outside", "mine.py", "Mine", "os/path", "", "a" * 101, "_x", "outside", "linked", "folder", "random"]
    for name in names:
        with pytest.raises(SettingsError):
            load_files([name], custom)
    (custom.parent / "link").symlink_to(custom)
    write(custom / "inside.py")
    with pytest.raises(SettingsError):
        load_files(["inside"], custom.parent / "link")
    assert not [name for name in sys.modules if name.startswith("fdg_custom_")]


@pytest.mark.parametrize("code", ["x = 3", "raise ValueError('secret')", "raise SystemExit", "def"])
def test_a_file_that_brings_nothing_or_fails_is_refused(custom: Path, code: str) -> None:
    (custom / "bad.py").write_text(code, encoding="utf-8")
    with pytest.raises(SettingsError) as error:
        load_file(custom / "bad.py")
    assert "bad.py" in error.value.public
    assert not any(word in error.value.public for word in (str(custom), "secret"))
    assert "fdg_custom_bad" not in sys.modules


METHOD = """
from fdg_plugins.aggregators import Weighting
from fdg_plugins.methods.fedavg import FedAvgAggregator
from fdg_plugins.objectives import Objective
from fdg_plugins.plugins.method import Method, Reference

class {name}(FedAvgAggregator):
    "FedAvg by another name."

class Misspelt(Weighting):
    def __cal__(self, contributions, round_of=None):
        return None

class Silent(Objective):
    name = "{key}"
    report = "secrets"
    def local(self, received, model, site=None):
        return None

PAPER = Reference(authors="nobody", title="none", venue="none", year=2026)
MINE = Method(key="{key}", title="Mine", line="FedAvg", classes=({given},), reference=PAPER)
"""


def write_method(path: Path, key: str, name: str, given: str = "") -> Path:
    path.write_text(METHOD.format(key=key, name=name, given=given or name), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("key", "name", "given"),
    [("fish", "Mine", ""), ("mine", "FedOMGAggregator", ""), ("mine", "Mine", "int"), ("mine", "Mine", "Misspelt")],
)
def test_a_method_cannot_pass_for_another_or_have_a_class_without_a_role(
    tmp_path: Path, key: str, name: str, given: str
) -> None:
    path = tmp_path / "fishing.py"
    with pytest.raises(SettingsError):
        load_file(write_method(path, key, name, given))
    assert METHODS.find("mine") is None
    load_file(write_method(path, "mine", "MineAggregator"))
    assert METHODS.get("mine").title == "Mine"
    assert tuple(ALGORITHMS) == REFERENCES


def test_an_objective_whose_report_the_record_does_not_declare_is_refused(custom: Path) -> None:
    load_file(write_method(custom / "rule.py", "rule", "Rule", "Silent"))
    with pytest.raises(SettingsError) as refused:
        make_recipe("rule", "pacs")
    assert refused.value.public == "objective 'rule' is brought by a plug-in that cannot be used here."


NET = f"from __future__ import annotations\n{NETWORKS_TEXT}"


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
        ("my_net:small", "my_net_small"),
        ("my_net.py:small", "my_net_small"),
        ("nets.one:small", "nets_one_small"),
        ("nets/one.py:small", "one_small"),
        ("3d.py:small", "net_3d_small"),
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
    ["no_net:Net", "my_net:Nett", "my_net:nn", "no/net.py:Net", "script.py:Net", "torchvision.models:Net", ":Net"],
)
def test_what_is_no_factory_is_refused_and_leaves_no_trace(here: Path, text: str) -> None:
    with pytest.raises(SettingsError):
        bring_factory(text, here, here.parent / "made")
    assert len(NETWORKS.loaded()) == len(NETWORKS.own())
    assert not [name for name in sys.modules if name.startswith("fdg_custom_")]


def test_a_job_cannot_name_a_factory() -> None:
    with pytest.raises(SettingsError):
        NETWORKS.get("torchvision.models:resnet18")
