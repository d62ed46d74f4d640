# SPDX-License-Identifier: Apache-2.0
"""What the site adds to this folder's pages: notebook, SECURITY.md, CONTRIBUTING.md, and what is made from the code.

MkDocs calls the functions whose names begin with ``on_`` (``hooks`` in ``mkdocs.yml``). Links between pages work in the
repository and on the site. A link to a folder, or to what is not documentation, such as a job or a source file, becomes
its text: the site does not hold these, and the repository has no address that a page could know.
"""

import contextlib
import html
import json
import posixpath
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import make_compositions
import make_method_pages
import make_tables
import mathml
import method_pictures  # noqa: F401 - registers the pictures of methods
import page_pictures  # noqa: F401
import pictures
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from typer.testing import CliRunner

from fdg_plugins.cli.main import app
from fdg_plugins.plugins.methods import METHODS

ROOT = Path(__file__).parents[1]
NOTEBOOK, NOTEBOOK_PAGE = "docs/tutorial/tutorial.ipynb", "tutorial/tutorial.md"
POLICY, POLICY_PAGE = "SECURITY.md", "security-policy.md"
GUIDE, GUIDE_PAGE = "CONTRIBUTING.md", "contributing.md"
CHANGES, CHANGES_PAGE = "CHANGELOG.md", "changelog.md"
# Pages of the site whose source is not a Markdown file in docs/.
SOURCES = {NOTEBOOK_PAGE: NOTEBOOK, POLICY_PAGE: POLICY, GUIDE_PAGE: GUIDE, CHANGES_PAGE: CHANGES}
# Pages that are made from the code.
MADE = {
    "settings.md": make_tables.settings_page,
    "record.md": make_tables.record_page,
    "compositions.md": make_compositions.page,
}
METHODS_TITLE = "Methods"
COMMANDS_MARKER = "<!-- fdg --help -->"

# A block of one command that makes a table of kept records; on the site, the table follows it.
REPORT = re.compile(r"^```bash\n(fdg report docs/results/(?:[^\n]|(?<=\\)\n)*)\n```$", re.MULTILINE)
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)#:\s]+)(#[^)\s]*)?\)")
_EXAMPLES = re.compile(r"^Examples:\n\n((?:  \S.*\n)+)", re.MULTILINE)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages of the published methods into the navigation."""
    config.nav = with_methods(config.nav)
    return config


def with_methods(nav: Any) -> list[Any]:
    """Return the navigation with the page of each method, in the order of tables, first under Methods."""
    own = [{record.title: f"methods/{record.key}.md"} for record in METHODS.own().values()]
    return [{METHODS_TITLE: [*own, *part[METHODS_TITLE]]} if METHODS_TITLE in part else part for part in nav]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made from other files."""
    files.append(File.generated(config, NOTEBOOK_PAGE, content=notebook_page(json.loads(_read(NOTEBOOK)))))
    files.append(File.generated(config, POLICY_PAGE, content=_read(POLICY)))
    files.append(File.generated(config, GUIDE_PAGE, content=_read(GUIDE)))
    files.append(File.generated(config, CHANGES_PAGE, content=_read(CHANGES)))
    for page, make in MADE.items():
        files.append(File.generated(config, page, content=make()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put the commands where they belong, and make links lead to pages of the site."""
    if COMMANDS_MARKER in markdown:
        markdown = markdown.replace(COMMANDS_MARKER, commands())
    leaving = {"leaving": f"\n{make_tables.leaving_table()}\n"}
    markdown = REPORT.sub(lambda block: f"{block[0]}\n\n{result_table(block[1])}", markdown)
    markdown = make_method_pages.with_parts(make_method_pages.method_page(page.file.src_uri, markdown), leaving)
    markdown = pictures.with_picture(mathml.with_math(markdown), page.file.src_uri.removesuffix(".md"))
    return site_links(markdown, page.file.src_uri)


def result_table(command: str) -> str:
    """Return what ``fdg report`` makes of kept records, as Markdown."""
    words = shlex.split(command.replace("\\\n", " "))[1:]
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(ROOT):
        table = Path(folder) / "table.md"
        CliRunner().invoke(app, [*words, "--to", str(table)], catch_exceptions=False)
        return table.read_text(encoding="utf-8").strip()


def notebook_page(notebook: dict[str, Any]) -> str:
    """Return a notebook as Markdown: its text, its code, and below it what it has printed."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        printed = "".join("".join(output["text"]) for output in cell["outputs"])
        parts += [f"```text\n{printed.rstrip()}\n```"] if printed else []
    return "\n\n".join(parts) + "\n"


def commands() -> str:
    """Return what ``fdg --help`` and ``fdg COMMAND --help`` say, as Markdown without a title."""
    order = [sys.executable, "-m", "typer", "fdg_plugins.cli.main", "utils", "docs", "--name", "fdg"]
    written = subprocess.run(order, check=True, capture_output=True, text=True).stdout
    _title, _, text = written.partition("\n")
    return _EXAMPLES.sub(_as_code, text).strip()


def site_links(markdown: str, page: str) -> str:
    """Return the Markdown of ``page``, a path on the site, with links as the site needs them."""
    source = SOURCES.get(page, f"docs/{page}")
    pages = {path: uri for uri, path in SOURCES.items()}

    def rewrite(link: re.Match[str]) -> str:
        text, target, anchor = link[1], link[2], link[3] or ""
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        if (path.startswith("docs/") and not (ROOT / path).is_dir()) or path in pages:
            uri = pages.get(path, path.removeprefix("docs/"))
            return f"[{text}]({posixpath.relpath(uri, posixpath.dirname(page) or '.')}{anchor})"
        return text if (ROOT / path).exists() else link[0]

    return _LINK.sub(rewrite, markdown)


def _as_code(examples: re.Match[str]) -> str:
    lines = [html.unescape(line.strip()) for line in examples[1].splitlines() if line.strip()]
    return "\n".join(["Examples:", "", "```bash", *lines, "```", ""])


def _read(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")
