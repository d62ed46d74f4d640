# SPDX-License-Identifier: Apache-2.0
"""Files at hand: loaded from one folder and nowhere else, under a name that shadows nothing."""

import sys
from pathlib import Path

import pytest

from fdg_plugins.errors import SettingsError
from fdg_plugins.models import NETWORKS
from fdg_plugins.plugins.files import files_behind, load_file, load_files

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


def test_two_files_may_not_bring_one_name(custom: Path) -> None:
    load_file(write(custom / "first.py"))
    with pytest.raises(SettingsError, match="model 'mine' is brought by a file at hand and by a file at hand"):
        load_file(write(custom / "other.py", size=3))
    assert NETWORKS.get("mine").extractor(2)[1] == 12


@pytest.mark.parametrize("name", ["../mine", "mine.py", "Mine", "os/path", "", "a" * 101, "_x"])
def test_a_name_that_is_no_plain_file_name_is_refused(custom: Path, name: str) -> None:
    with pytest.raises(SettingsError, match="expected names of files"):
        load_files([name], custom)


def test_a_file_elsewhere_is_not_found(custom: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outside = write(custom.parent / "outside.py")
    monkeypatch.syspath_prepend(str(custom.parent))
    (custom / "linked.py").symlink_to(outside)
    (custom / "folder.py").mkdir()
    for name in ("outside", "linked", "folder", "random"):
        with pytest.raises(SettingsError, match=rf"plug-in file {name}\.py is not in the job's folder custom/"):
            load_files([name], custom)
    (custom.parent / "link").symlink_to(custom)
    write(custom / "inside.py")
    with pytest.raises(SettingsError, match=r"inside\.py is not in the job's folder"):
        load_files(["inside"], custom.parent / "link")


@pytest.mark.parametrize(
    ("code", "message", "public"),
    [
        ("x = 3", "plug-in file bad.py brings nothing", "brings nothing"),
        ("raise ValueError('secret')", "cannot be loaded: ValueError: secret", "bad.py cannot be loaded: ValueError."),
        ("def", "cannot be loaded: SyntaxError", "bad.py cannot be loaded: SyntaxError."),
    ],
)
def test_a_file_that_brings_nothing_or_fails_is_refused(custom: Path, code: str, message: str, public: str) -> None:
    (custom / "bad.py").write_text(code, encoding="utf-8")
    with pytest.raises(SettingsError, match=message) as error:
        load_file(custom / "bad.py")
    assert public in error.value.public
    assert str(custom) not in error.value.public
    assert "fdg_custom_bad" not in sys.modules
