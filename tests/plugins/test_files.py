# SPDX-License-Identifier: Apache-2.0
"""Files at hand: loaded from one folder and nowhere else, under a name that shadows nothing."""

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.centralised import ALGORITHMS
from fdg_plugins.lab.sweep.kinds import kind_of
from fdg_plugins.models import NETWORKS
from fdg_plugins.plugins.files import check_names_differ, files_behind, load_file, load_files
from fdg_plugins.plugins.methods import METHODS, REFERENCES
from fdg_plugins.recipes import make_recipe

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
    with pytest.raises(
        SettingsError, match=r"model 'mine' is brought by .*/first\.py and by .*/other\.py, expected one"
    ):
        load_file(write(custom / "other.py", size=3))
    assert NETWORKS.get("mine").extractor(2)[1] == 12


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_not_a_regular_file_is_refused_and_not_waited_for(custom: Path, make: Callable[[Path], None]) -> None:
    make(custom / "mine.py")
    with pytest.raises(SettingsError, match=r"mine\.py is not a regular file"):
        load_file(custom / "mine.py")


def test_one_file_may_not_bring_a_name_twice(custom: Path) -> None:
    path = write(custom / "both.py")
    path.write_text(path.read_text(encoding="utf-8") + "OTHER = Network(name='mine', build=print)\n", encoding="utf-8")
    with pytest.raises(SettingsError, match=r"^model 'mine' is brought by .*/both\.py twice, expected one of them\.$"):
        load_file(path)
    assert NETWORKS.find("mine") is None


def test_a_name_that_is_no_plain_file_name_is_refused(custom: Path) -> None:
    for name in ["../mine", "mine.py", "Mine", "os/path", "", "a" * 101, "_x"]:
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
        (
            "x = 3",
            "plug-in file bad.py brings nothing, expected values of the types Method, Network, ImageFolderSpec, "
            "SegmentationSpec or Task in the module: neither a class nor a list of them is one.",
            "brings nothing",
        ),
        (
            "from beside_it import f",
            "bad.py cannot be loaded: ModuleNotFoundError: No module named 'beside_it', which is beside it: a plug-in "
            "is one file that imports what is installed, such as a package of your own.",
            "bad.py cannot be loaded: ModuleNotFoundError.",
        ),
        (
            "import no_such_module",
            "bad.py cannot be loaded: ModuleNotFoundError: No module named 'no_such_module'.",
            "bad.py cannot be loaded: ModuleNotFoundError.",
        ),
        ("raise ValueError('secret')", "cannot be loaded: ValueError: secret", "bad.py cannot be loaded: ValueError."),
        ("def", "cannot be loaded: SyntaxError", "bad.py cannot be loaded: SyntaxError."),
    ],
)
def test_a_file_that_brings_nothing_or_fails_is_refused(custom: Path, code: str, message: str, public: str) -> None:
    (custom / "bad.py").write_text(code, encoding="utf-8")
    (custom / "beside_it.py").write_text("f = 3\n", encoding="utf-8")
    with pytest.raises(SettingsError, match=message) as error:
        load_file(custom / "bad.py")
    assert public in error.value.public
    assert str(custom) not in error.value.public
    assert "fdg_custom_bad" not in sys.modules


def test_two_files_of_one_name_are_refused_because_one_would_replace_the_other(tmp_path: Path) -> None:
    one, other = tmp_path / "a" / "mine.py", tmp_path / "b" / "mine.py"
    check_names_differ([one, tmp_path / "b" / "other.py", one])
    with pytest.raises(SettingsError, match=r"a/mine\.py and .*b/mine\.py have the same name, expected different ones"):
        check_names_differ([one, other])
    with pytest.raises(SettingsError, match="have the same name"):
        make_recipe("fedavg", plugins=[one, other])


# --- methods ---

METHOD = """
from fdg_plugins.methods.fedavg import FedAvgAggregator
from fdg_plugins.plugins.method import Method, Reference

class {name}(FedAvgAggregator):
    "FedAvg by another name."

MINE = Method(
    key="{key}", title="Mine", line="FedAvg", acts=("direction",), aggregator={name},
    reference=Reference(authors="nobody", title="none", venue="none", year=2026),
)
"""


@pytest.mark.parametrize(
    ("key", "name", "reason"),
    [
        ("fish", "MineAggregator", "method 'fish' of a file at hand has the name of a centralised reference"),
        ("mine", "FedOMGAggregator", "aggregator FedOMGAggregator of method 'mine' .* as that of method 'fedomg'"),
    ],
)
def test_a_method_cannot_pass_for_another_in_records_and_tables(
    tmp_path: Path, key: str, name: str, reason: str
) -> None:
    path = tmp_path / "fishing.py"
    path.write_text(METHOD.format(key=key, name=name), encoding="utf-8")
    with pytest.raises(SettingsError, match=reason):
        load_file(path)
    assert METHODS.find("mine") is None
    path.write_text(METHOD.format(key="mine", name="MineAggregator"), encoding="utf-8")
    load_file(path)
    assert METHODS.get("mine").title == "Mine"


def test_a_method_does_not_take_the_name_of_a_reference_by_being_named_without_its_fed(tmp_path: Path) -> None:
    path = tmp_path / "ours.py"
    path.write_text(METHOD.format(key="fedirm", name="FedIRMAggregator"), encoding="utf-8")
    load_file(path)
    assert kind_of("irm").canonical_name("irm") == "irm"
    assert kind_of("fedirm").canonical_name("FedIRM") == "fedirm"
    assert {kind_of(name).title for name in REFERENCES} == {"fdg run"}
    assert tuple(ALGORITHMS) == REFERENCES


RULE = """
from fdg_plugins.aggregators import UpdateAggregator, Weighting
from fdg_plugins.objectives import Objective
from fdg_plugins.plugins.method import Method, Reference

def small_net(num_classes):
    return None

class Rule(Weighting):
    def __call__(self, contributions, round_of=None):
        return None

class Misspelt(Weighting):
    def __cal__(self, contributions, round_of=None):
        return None

class Standing(UpdateAggregator):
    pass

class Idle(Objective):
    pass

class Nameless(Objective):
    def local(self, received, model, site=None):
        return None

class Silent(Nameless):
    name = "rule"
    report = "secrets"

class Raising(Rule):
    def __init__(self):
        raise ValueError("boom")

METHOD = Method(
    key="rule",
    title="Rule",
    line="of a test",
    reference=Reference(authors="us", title="ours", venue="here", year=2026),
    {given},
)
"""


def write_rule(path: Path, given: str) -> Path:
    point = "objective" if given.startswith("objective") else "weighting"
    acts = "" if given.startswith("acts") else f"acts=('{point}',), "
    path.write_text(RULE.format(given=acts + given), encoding="utf-8")
    return path


def test_a_record_with_another_thing_in_the_place_of_a_class_is_refused(custom: Path) -> None:
    cases: list[tuple[str, str]] = [
        ("weighting=small_net", "weighting of method 'rule' is <function sma"),
        ("weighting=Rule()", "weighting of method 'rule' is <"),
        ("aggregator=Rule()", "aggregator of method 'rule' is <"),
        ("acts=('weighting'), weighting=Rule", "acts of method 'rule' is text, expected a tuple such as ('weighting',"),
        (
            "weighting=Rule, defaults={'strength': 1}",
            "defaults of method 'rule' is {'strength': 1}, expected",
        ),
        (
            "weighting=Rule, settings=('strength',)",
            "settings of method 'rule' is 'strength', expected",
        ),
        ("weighting=Rule, letters=None", "letters of method 'rule' is None, expected"),
    ]
    for given, message in cases:
        with pytest.raises(SettingsError, match=re.escape(message)):
            load_file(write_rule(custom / "rule.py", given))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("weighting=int", "weighting of method 'rule' is int, expected a subclass of Weighting."),
        (
            "weighting=Misspelt",
            "weighting of method 'rule' is Misspelt, which does not define __call__, expected a subclass of Weighting "
            "with __call__.",
        ),
        (
            "aggregator=Standing",
            "aggregator of method 'rule' is Standing, which does not define direction, expected a subclass of "
            "UpdateAggregator with direction.",
        ),
        (
            "objective=Idle",
            "objective of method 'rule' is Idle, which does not define local, expected a subclass of Objective with "
            "local.",
        ),
        (
            "objective=Nameless",
            "objective of method 'rule' is Nameless, which has no name, expected a subclass of Objective with its name "
            "as a part.",
        ),
        (
            "objective=Silent",
            "objective of method 'rule' reports 'secrets', expected a Leaving of its record with that report, which "
            "tells sites what they allow; there: none.",
        ),
        (
            "weighting='rule:Rule'",
            "weighting of method 'rule' is 'rule:Rule', which cannot be loaded (ModuleNotFoundError: No module named "
            "'rule'), expected a subclass of Weighting; a file gives the class itself.",
        ),
        (
            "weighting='json:Rule'",
            "weighting of method 'rule' is 'json:Rule', which cannot be loaded (AttributeError: module 'json' has no "
            "attribute 'Rule'), expected a subclass of Weighting; a file gives the class itself.",
        ),
    ],
)
def test_a_class_that_cannot_play_its_role_is_refused_in_one_sentence(custom: Path, given: str, message: str) -> None:
    load_file(write_rule(custom / "rule.py", given))
    with pytest.raises(SettingsError, match=re.escape(message)) as refused:
        make_recipe("rule", "pacs")
    assert refused.value.public.endswith(" 'rule' is brought by a plug-in that cannot be used here.")
