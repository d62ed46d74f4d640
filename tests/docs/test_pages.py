# SPDX-License-Identifier: Apache-2.0
"""The pages made from the code are in step with it, and the README's links lead somewhere."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner

from fdg_plugins.cli.main import app
from fdg_plugins.plugins.methods import METHODS

ROOT = Path(__file__).parents[2]


def script(name: str) -> ModuleType:
    """Return a script of the folder ``docs``."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    """The script that makes the pages of settings and record."""
    return script("make_tables")


@pytest.fixture(scope="module")
def of_methods() -> ModuleType:
    """The script that makes what pages say of methods."""
    return script("make_method_pages")


@pytest.mark.parametrize("page", ["settings", "record"])
def test_pages_made_from_the_code_are_in_step_with_it(tables: ModuleType, page: str) -> None:
    written = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    assert written == getattr(tables, f"{page}_page")(), "run: make docs-tables"


def test_what_pages_say_of_methods_is_in_step_with_the_records(of_methods: ModuleType) -> None:
    stale = [path.name for path, text in of_methods.pages().items() if path.read_text(encoding="utf-8") != text]
    assert stale == [], "run: make docs-tables"


@pytest.mark.parametrize("method", METHODS.own())
def test_every_method_has_a_page_with_each_part_once(of_methods: ModuleType, method: str) -> None:
    page = of_methods.page_of(METHODS.get(method)).read_text(encoding="utf-8")
    assert sorted(re.findall("<!-- made: (.*?) -->", page)) == ["differences", "equations", "leaves", "settings"]
    assert page.startswith(f"# {METHODS.get(method).title}\n")


def test_every_page_of_a_method_has_a_record() -> None:
    assert {path.stem for path in (ROOT / "docs" / "methods").glob("*.md")} == set(METHODS.own())


@pytest.mark.parametrize("page", [*sorted(ROOT.glob("docs/**/*.md")), ROOT / "README.md"], ids=lambda page: page.name)
def test_links_within_the_project_lead_to_files(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_table_of_results_is_the_one_that_follows_from_the_kept_runs() -> None:
    spec = importlib.util.spec_from_file_location("rotatedmnist", ROOT / "benchmarks" / "rotatedmnist.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert module.table(module.read_results()) in page, "run: python benchmarks/rotatedmnist.py table"


@pytest.mark.parametrize("options", [["--against", "paper"], ["--selection", "all"]], ids=" ".join)
def test_the_tables_of_the_small_sweep_follow_from_its_records(options: list[str], tmp_path: Path) -> None:
    table = tmp_path / "table.md"
    asked = ["report", str(ROOT / "benchmarks" / "pacs_small"), *options, "--to", str(table)]
    assert CliRunner().invoke(app, asked).exit_code == 0
    page = (ROOT / "docs" / "pacs-small.md").read_text(encoding="utf-8")
    assert table.read_text(encoding="utf-8").strip() in page


def test_the_table_of_all_methods_follows_from_its_records(tmp_path: Path) -> None:
    table, kept = tmp_path / "table.md", ROOT / "benchmarks"
    folders = [kept / "pacs_methods", *sorted(kept.glob("pacs_small/*-seed0"))]
    assert CliRunner().invoke(app, ["report", *map(str, folders), "--to", str(table)]).exit_code == 0
    page = (ROOT / "docs" / "pacs-methods.md").read_text(encoding="utf-8")
    assert table.read_text(encoding="utf-8").strip() in page
