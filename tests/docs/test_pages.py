# SPDX-License-Identifier: Apache-2.0
"""The pages made from the code are in step with it, and the README's links lead somewhere."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner

from fdg_plugins.cli.main import app

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    """The script that makes the pages."""
    spec = importlib.util.spec_from_file_location("make_tables", ROOT / "docs" / "make_tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", ["settings", "record"])
def test_pages_made_from_the_code_are_in_step_with_it(tables: ModuleType, page: str) -> None:
    written = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    assert written == getattr(tables, f"{page}_page")(), "run: make docs-tables"


def test_the_table_of_what_leaves_a_site_follows_from_the_records_of_the_methods(tables: ModuleType) -> None:
    written = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    assert written == tables.security_page(written), "run: make docs-tables"


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
