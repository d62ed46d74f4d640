# SPDX-License-Identifier: Apache-2.0
"""Registries and the records in them: loaded when asked for, sound, and nothing missing or stale."""

import ast
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import fdg_plugins
from fdg_plugins import filters
from fdg_plugins.aggregators import AGGREGATORS, WEIGHTINGS
from fdg_plugins.cli.explain import run_of, settings_in
from fdg_plugins.errors import SettingsError
from fdg_plugins.flare.components import components, filters_of
from fdg_plugins.messages import CensusReply
from fdg_plugins.methods.fedga import FedDGGAWeighting
from fdg_plugins.objectives import OBJECTIVES, Objective
from fdg_plugins.plugins.classes import parameters_of
from fdg_plugins.plugins.composition import BASE, PLAIN, combined, parse_method
from fdg_plugins.plugins.files import admit
from fdg_plugins.plugins.method import Method, Reference
from fdg_plugins.plugins.methods import METHODS
from fdg_plugins.plugins.registry import Registry, registries
from fdg_plugins.plugins.reports import REPORT_STATISTICS


@dataclass(frozen=True)
class Record:
    name: str
    part: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *([self.part] if self.part else []))


OWN = Record("own", "mine")

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install a distribution of one module, with entries of the group ``fdg_test``."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def add(distribution: str, code: str, **entries: str) -> None:
        module = distribution.replace("-", "_")
        monkeypatch.delitem(sys.modules, module, raising=False)
        (tmp_path / f"{module}.py").write_text(code, encoding="utf-8")
        info = tmp_path / f"{module}-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1\n", encoding="utf-8")
        lines = [f"{name} = {module}:{value}" for name, value in entries.items()]
        (info / "entry_points.txt").write_text("\n".join(["[fdg_test]", *lines]), encoding="utf-8")

    return add


@pytest.fixture
def registry() -> Registry[Record]:
    return Registry("thing", "fdg_test", [__name__], Record)


RECORD = "from tests.plugins.test_registries import Record\nTHING = Record({0!r}, {1!r})\n"


def test_only_the_entry_that_is_asked_for_is_loaded_beside_a_broken_plugin(
    registry: Registry[Record], install: Install
) -> None:
    install("one-plugin", RECORD.format("one", ""), one="THING")
    install("other-plugin", "raise RuntimeError('loaded')", other="THING")
    install("script", "raise SystemExit('done')", script="THING")
    assert registry.names() == ("own", "one", "other", "script")
    assert registry.get("own") is registry.get("mine") is OWN
    assert registry.origin("other") == "other-plugin"
    assert registry.get("one").name == "one"
    assert [record.name for record in registry.loaded()] == ["own", "one"]
    assert "other_plugin" not in sys.modules
    with pytest.raises(SettingsError) as error:
        registry.get("other")
    assert "RuntimeError" in str(error.value)
    assert "RuntimeError" not in error.value.public
    assert [problem.split("'")[1] for problem in registry.load_usable()] == ["other", "script"]
    assert [record.name for record in registry.loaded()] == ["own", "one"]


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (RECORD.format("another", ""), "one"),
        ("THING = 3", "one"),
        (RECORD.format("one", "mine"), "one"),
        (RECORD.format("own", ""), "own"),
    ],
)
def test_a_plug_in_that_is_not_as_announced_is_refused(
    registry: Registry[Record], install: Install, code: str, name: str
) -> None:
    install("bad-plugin", code, **{name: "THING"})
    for _ in range(2):
        with pytest.raises(SettingsError):
            registry.get("one")


def test_an_unknown_name_is_refused_and_others_do_not_learn_what_is_installed(
    registry: Registry[Record], install: Install
) -> None:
    install("secret-plugin", RECORD.format("secret", ""), secret="THING")
    with pytest.raises(SettingsError) as error:
        registry.get("zzz")
    assert error.value.public == "thing 'zzz' is unknown here: no installed plug-in brings it."


def test_a_file_may_not_take_the_name_of_an_installed_plug_in(registry: Registry[Record], install: Install) -> None:
    install("one-plugin", RECORD.format("one", ""), one="THING")
    with pytest.raises(SettingsError):
        registry.add(Record("one"))


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(("setting", "name"), [("model", "patchnet"), ("dataset", "blocks"), ("objective", "fedproto")])
def test_what_an_operator_does_not_allow_is_refused_before_anything_of_it_is_loaded(
    setting: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "fdg_example_plugin", raising=False)  # another test may have loaded it
    for allowed in (None, ("fdg_example.plugin",)):  # as packaging compares names
        admit([(setting, name)], (), None, allowed)
    with pytest.raises(SettingsError) as error:
        admit([("model", "resnet18"), (setting, name)], (), None, ())
    assert "fdg-example-plugin" in str(error.value)
    assert "fdg-example-plugin" not in error.value.public
    assert "fdg_example_plugin" not in sys.modules
    assert all(registry.loaded() == list(registry.own().values()) for registry in registries())


def test_files_are_refused_where_the_operator_has_a_list_without_custom(tmp_path: Path) -> None:
    for custom, allowed in ((tmp_path, ("fdg-example-plugin",)), (None, None)):
        with pytest.raises(SettingsError):
            admit([], ["mine"], custom, allowed)


PACKAGE = Path(fdg_plugins.__file__).parent


def test_every_class_of_the_code_belongs_to_a_record() -> None:
    assert {class_ for record in METHODS.all() for class_ in record.classes} == {
        *AGGREGATORS.values(),
        *(rule for rule in WEIGHTINGS.values() if rule.shares),
        *(objective for name, objective in OBJECTIVES.items() if name != PLAIN),
    }


def complaints(record: Method) -> Iterator[str]:
    """Yield what does not hold of a record."""
    run = settings_in(run_of(parse_method(record.key), "pacs"), record)
    explained = [source.name for source in record.settings]
    shared = {class_.report for class_ in record.classes if issubclass(class_, Objective)}
    shared |= {class_.shares for class_ in record.classes if class_ in WEIGHTINGS.values()}
    if "reestimate" in {entry.protocol.get("batch_norm") for entry in record.defaults}:
        shared.add(REPORT_STATISTICS)
    text = ast.get_docstring(ast.parse((PACKAGE / "methods" / f"{record.key}.py").read_text(encoding="utf-8"))) or ""
    checks = {
        "the name of its objective": record.objective is None or record.objective.name in record.names,
        "its aggregator under a weighting": None in (record.aggregator, record.weighting)
        or issubclass(AGGREGATORS[record.key], AGGREGATORS[BASE]),
        "each setting once": len(set(explained)) == len(explained),
        "the settings of its job": set(explained) == set(run),
        "the settings of its classes": all(set(parameters_of(class_)) <= set(run) for class_ in record.classes),
        "the sources of its settings": all(source.paper or source.code for source in record.settings),
        "its symbols": {one.symbol for one in record.settings} - {None} <= set(re.split(r"\W+", record.letters)),
        "its filters": all(hasattr(filters, name) for name in filters_of(record.key)),
        "whether it has filters": bool(filters_of(record.key))
        == bool(set(record.reports) - {"training_loss", REPORT_STATISTICS}),
        "its reports": set(record.reports) == shared - {None},
        "its module's text": text.startswith(record.title),
    }
    yield from (name for name, holds in checks.items() if not holds)


def test_every_record_is_sound() -> None:
    assert {record.key: found for record in METHODS.all() if (found := list(complaints(record)))} == {}
    for pair in combined():
        assert {record.key for record in parse_method("+".join(pair)).records} == pair


def test_a_method_is_named_by_its_own_file_alone() -> None:
    files = Path(fdg_plugins.__file__).parent.rglob("*.py")
    assert [file.name for file in files if "fedprox" in file.read_text(encoding="utf-8").lower()] == ["fedprox.py"]


IN_THE_CENSUS = {
    "domain": "names of domain",
    "dataset": "data set",
    "stand_in": "data set",
    "classes": "classes",
    "class_counts": "number of images of each class",
    **dict.fromkeys(("num_train", "num_validation", "num_test"), "sizes of the splits"),
    "split": "the split's name",
    "split_hash": "hash",
    "skipped": "named only with report_names",
    "num_skipped": "numbers of files that were skipped",
    "num_damaged": "of damaged images",
    "num_other_components": "number of foreign classes on its allow list",
    "role": "role",
    "allowed_reports": "allowed reports",
    "device": "device",
    "precision": "precision",
    "threads": "threads",
    "compiled": "whether it compiles",
    "keeps_state": "whether it has kept anything of the run",
    "versions": "versions",
}


def test_what_a_census_tells_is_declared_field_by_field() -> None:
    (line,) = [line for line in METHODS.get("fedavg").leaves if line.what.startswith("census: ")]
    assert IN_THE_CENSUS.keys() == CensusReply.model_fields.keys()
    assert [words for words in IN_THE_CENSUS.values() if words not in line.what] == []


class MineWeighting(FedDGGAWeighting):
    """GA's weights by another name."""


def made(**changes: Any) -> Method:
    paper = Reference(authors="A", title="B", venue="C", year=2024)
    whole = {"key": "mine", "title": "Mine", "line": "does it", "reference": paper, "classes": (MineWeighting,)}
    return Method(**{**whole, **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {"key": "Mine"},
        {"part": 1},
        *({"classes": classes} for classes in ((), (int,), (MineWeighting, FedDGGAWeighting), (Objective,))),
    ],
)
def test_a_record_that_cannot_be_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(SettingsError):
        made(**changes)


def test_a_method_that_is_added_later_composes_is_allowed_and_is_forgotten() -> None:
    METHODS.add(made(part="mi"))
    assert parse_method("omg+MINE").name == "fedomg+mi"
    assert METHODS.get("mine").part_title == "Mi"
    assert any("mine" in (one.methods or ()) for one in components())
    METHODS.remove("mine")
    with pytest.raises(SettingsError):
        parse_method("fedomg+mi")
