# SPDX-License-Identifier: Apache-2.0
"""The site: every page is in its navigation, links lead to pages, and what is made at the build is complete."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer
import yaml
from typer.core import TyperGroup

from fdg_plugins.cli.main import app
from fdg_plugins.plugins.methods import METHODS
from tests.scripts import load_script

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def load(name: str) -> ModuleType:
    """Return a module of the folder ``docs``."""
    return load_script(DOCS / f"{name}.py")


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    """What MkDocs calls."""
    return load("site_hooks")


@pytest.fixture(scope="module")
def docstrings() -> ModuleType:
    """What griffe calls."""
    return load("griffe_docstrings")


@pytest.fixture(scope="module")
def settings() -> dict[str, Any]:
    """The settings of the site."""
    return yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))


def pages_of(nav: Any) -> Iterator[str]:
    """Yield the pages of a navigation of any depth."""
    if isinstance(nav, str):
        yield nav
    for part in nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ():
        yield from pages_of(part)


def test_every_page_is_in_the_navigation_once_and_every_entry_is_a_page(
    hooks: ModuleType, settings: dict[str, Any]
) -> None:
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    written = {page for page in pages if not page.startswith("results/records/")}
    assert sorted(pages_of(hooks.with_methods(settings["nav"]))) == sorted([*written, *hooks.SOURCES])


def test_methods_are_in_the_navigation_by_their_titles_in_the_order_of_tables(
    hooks: ModuleType, settings: dict[str, Any]
) -> None:
    [entries] = [part["Methods"] for part in hooks.with_methods(settings["nav"]) if "Methods" in part]
    titles = [title for entry in entries for title in entry]
    assert titles[:3] == ["FedAvg", "FedDG-GA", "FedDIM"]
    assert titles[len(METHODS.own())] == "Centralised references"


def test_every_link_of_a_page_leads_to_a_page_of_the_site(hooks: ModuleType, settings: dict[str, Any]) -> None:
    pages = set(pages_of(hooks.with_methods(settings["nav"])))
    lost = []
    for page in sorted(pages):
        source = ROOT / hooks.SOURCES.get(page, f"docs/{page}")
        markdown = hooks.site_links(source.read_text(encoding="utf-8"), page)
        targets = re.findall(r"(?<!!)\]\(([^)#:\s]+)(?:#[^)]*)?\)", re.sub(r"```.*?```", "", markdown, flags=re.DOTALL))
        lost += [(page, target) for target in targets if not is_in_site(page, target, pages)]
    assert lost == []


def is_in_site(page: str, target: str, pages: set[str]) -> bool:
    """Return whether a link of ``page`` leads to a page or to a picture."""
    path = os.path.normpath(os.path.join(os.path.dirname(page), target))  # noqa: PTH118, PTH120 - a path on the site
    return path in pages or (DOCS / path).is_file()


@pytest.mark.parametrize(
    ("page", "link", "expected"),
    [
        ("audit.md", "[x](privacy.md#noise)", "[x](privacy.md#noise)"),
        ("methods/fedomg.md", "[`job`](../../jobs/pacs_fedomg)", "`job`"),
        ("poc.md", "[`poc/project.yml`](../poc/project.yml)", "`poc/project.yml`"),
        ("security.md", "[policy](../SECURITY.md#scope)", "[policy](security-policy.md#scope)"),
        ("methods/fedga.md", "[policy](../../SECURITY.md)", "[policy](../security-policy.md)"),
        ("security-policy.md", "[audit](docs/audit.md)", "[audit](audit.md)"),
        ("index.md", "[start](tutorial/tutorial.ipynb)", "[start](tutorial/tutorial.md)"),
        ("tutorial/tutorial.md", "[on](../methods/fedomg.md)", "[on](../methods/fedomg.md)"),
        ("index.md", "[FLARE](https://github.com/NVIDIA/NVFlare)", "[FLARE](https://github.com/NVIDIA/NVFlare)"),
        ("index.md", "![a picture](tutorial/rect4_fl.svg)", "![a picture](tutorial/rect4_fl.svg)"),
        ("poc.md", "[gone](../poc/no_such_file)", "[gone](../poc/no_such_file)"),  # left for the strict build to refuse
    ],
)
def test_a_link_leads_to_a_page_or_becomes_its_text(hooks: ModuleType, page: str, link: str, expected: str) -> None:
    assert hooks.site_links(f"before {link}, after", page) == f"before {expected}, after"


def test_a_notebook_becomes_text_code_and_what_it_printed(hooks: ModuleType) -> None:
    quiet = {"cell_type": "code", "source": ["import a\n", "a.b()"], "outputs": []}
    loud = {"cell_type": "code", "source": ["print(1)"], "outputs": [{"text": ["1\n"]}, {"text": ["2\n"]}]}
    page = hooks.notebook_page({"cells": [{"cell_type": "markdown", "source": ["# Title\n", "Text."]}, quiet, loud]})
    code = "```python\nimport a\na.b()\n```"
    assert page == f"# Title\nText.\n\n{code}\n\n```python\nprint(1)\n```\n\n```text\n1\n2\n```\n"


def test_the_command_line_page_names_every_command_with_its_examples(hooks: ModuleType) -> None:
    text = hooks.commands()
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    commands = group.commands
    assert [name for name in commands if f"## `fdg {name}`" not in text] == []
    assert not text.startswith("#")
    assert "```bash\nfdg report sweeps/pacs\nfdg report" in text
    assert "&#x27;" not in "".join(re.findall(r"```bash.*?```", text, re.DOTALL))
    assert hooks.COMMANDS_MARKER in (DOCS / "cli.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("docstring", "expected"),
    [
        ("See :func:`match` and :class:`~a.b.Table`.", "See `match` and `Table`."),
        ("Plain ``code`` stays.", "Plain ``code`` stays."),
        ("Text.\n\n>>> f()\n[[1],\n    [2]]\n\nMore.", "Text.\n\n```pycon\n>>> f()\n[[1],\n    [2]]\n```\n\nMore."),
        ("Text.\n\n    >>> f()\n    1\n\nMore.", "Text.\n\n```pycon\n>>> f()\n1\n```\n\nMore."),
    ],
)
def test_docstrings_become_markdown(docstrings: ModuleType, docstring: str, expected: str) -> None:
    assert docstrings.as_markdown(docstring) == expected


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_its_pages_load_nothing_from_elsewhere(tmp_path: Path) -> None:
    order = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    built = subprocess.run(order, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    pages = {
        path.relative_to(tmp_path).as_posix(): path.read_text(encoding="utf-8") for path in tmp_path.rglob("*.html")
    }
    loads = r"<(?:script|img|iframe)[^>]* src=|<link[^>]* rel=\"(?:stylesheet|preconnect)\"[^>]* href="
    foreign = rf"(?:{loads})\"(?:https?:)?//"
    assert [page for page, text in pages.items() if re.search(foreign, text)] == []
    assert "least &lt;d,g&gt;" in re.sub(r"</?span[^>]*>", "", pages["tutorial/tutorial.html"])
    assert 'id="fdg_plugins.core.match"' in pages["api/core.html"]
    assert "fdg-submit" in pages["cli.html"]
    assert not list(tmp_path.rglob("*.py"))
