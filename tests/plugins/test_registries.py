# SPDX-License-Identifier: Apache-2.0
"""Registries: records by name, of this package, of installed plug-ins, which load when asked for, and of files."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from fdg_plugins.errors import SettingsError
from fdg_plugins.plugins.admission import admit
from fdg_plugins.plugins.registry import Registry, registries


@dataclass(frozen=True)
class Record:
    """A record of nothing."""

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


def test_this_packages_records_are_found_by_every_name(registry: Registry[Record]) -> None:
    assert registry.get("own") is registry.get("mine") is OWN
    assert registry.names() == ("own",)
    assert registry.origin("mine") is None


def test_only_the_entry_that_is_asked_for_is_loaded_beside_a_broken_plugin(
    registry: Registry[Record], install: Install
) -> None:
    install("one-plugin", RECORD.format("one", ""), one="THING")
    install("other-plugin", "raise RuntimeError('loaded')", other="THING")
    install("script", "raise SystemExit('done')", script="THING")
    assert registry.names() == ("own", "one", "other", "script")
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


# --- who may use what ---


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
