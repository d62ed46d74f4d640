# SPDX-License-Identifier: Apache-2.0
"""Pages made from the code are in step with it, links lead somewhere, and every command on a page exists."""

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer
from typer.core import TyperGroup
from typer.testing import CliRunner

from fdg_plugins.cli.main import app
from fdg_plugins.plugins.composition import compositions, parse_method
from tests.scripts import load_script

ROOT = Path(__file__).parents[2]
REFUSED = {
    *(f"fednova{weighting}+{part}" for weighting in ("", "+ga", "+arfl") for part in ("prox", "pac", "adg")),
    *(f"fedcsa{weighting}+babu" for weighting in ("", "+ga", "+arfl")),
    "fednova+as",
}
PAGES = [
    *(page for page in sorted(ROOT.glob("docs/**/*.md")) if "records" not in page.parts),
    *sorted(ROOT.glob("*.md")),
    ROOT / "custom" / "README.md",
    *sorted(ROOT.glob("examples/*/README.md")),
]
MADE = [ROOT / "docs" / name for name in ("settings.md", "record.md", "compositions.md")]  # when the site is built
LINK = r"\]\(([^)#:]+)(?:#[^)]*)?\)"


def script(name: str) -> ModuleType:
    """Return a script of the folder ``docs``."""
    return load_script(ROOT / "docs" / f"{name}.py")


def test_the_readme_lists_the_methods_that_there_are() -> None:
    assert (ROOT / "README.md").read_text(encoding="utf-8") == script("make_method_pages").readme(), (
        "run: nox -s generate"
    )


@pytest.mark.nightly
def test_the_table_of_compositions_follows_from_the_records_and_the_checks() -> None:
    written = script("make_compositions").page()
    named = re.findall(r"\| \**`([a-z+]+)`", written)
    assert sorted(named) == sorted({one.name for one in compositions()} - REFUSED)
    bold = set(re.findall(r"\*\*`([a-z+]+)`\*\*", written))
    assert {"fedomg+iir", "fedga", "fedprox+ga"} <= bold
    with_source = set(re.findall(r"^- `([a-z+]+)`: ", written, re.MULTILINE))
    assert with_source == {name for name in bold if len(parse_method(name).records) == 2}


def test_links_within_the_project_lead_to_files() -> None:
    links = [(page, link) for page in PAGES for link in re.findall(LINK, page.read_text(encoding="utf-8"))]
    missing = [(page, link) for page, link in links if not (page.parent / link).exists()]
    assert [(page.name, link) for page, link in missing if (page.parent / link).resolve() not in MADE] == []


def commands_on(page: Path) -> Iterator[list[str]]:
    """Yield the commands in a page's shell blocks as lists of words, without comments and variables set before them."""
    blocks = re.findall(r"^```(?:bash|sh)[^\n]*\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    for line in "\n".join(blocks).replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        command: list[str] = []
        for word in [*lexer, ";"]:
            if set(word) <= set(";|&<>()"):
                yield command
                command = []
            elif command or not re.fullmatch(r"[A-Z_]+=.*", word):
                command.append(word)


@cache  # many pages show the same commands
def complaint(*words: str) -> str:
    """Return what ``fdg`` says of a line whose command or option it does not know; empty if it knows all of them.

    Asked for help in the middle of the line, a command reads all of it and does nothing.
    """
    group = typer.main.get_command(app)
    names: list[str] = []
    while isinstance(group, TyperGroup) and words and not words[0].startswith("-"):
        if words[0] not in group.commands:
            return f"there is no command {words[0]}"
        group, names, words = group.commands[words[0]], [*names, words[0]], words[1:]
    result = CliRunner().invoke(app, [*names, "--help", *words])
    return "" if result.exit_code == 0 else result.output + result.stderr


@pytest.mark.parametrize("line", ["nope", "data nope", "sweep --methodz fedavg", "report sweeps/pacs --to"])
def test_a_wrong_command_line_is_noticed(line: str) -> None:
    assert complaint(*line.split())


def test_every_command_on_a_page_exists_with_its_options() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for words in (words for page in PAGES for words in commands_on(page)):
        match words:
            case ["fdg", *rest]:
                assert complaint(*rest) == "", words
            case ["make", target, *_]:
                assert re.search(rf"^{target}:", makefile, re.MULTILINE), words
            case ["nvflare", "simulator", job, *_] if job.startswith("jobs/"):
                assert (ROOT / job).is_dir(), words
            case ["python", script, *_] if script.startswith(("examples/", "custom/", "benchmarks/", "docs/")):
                assert (ROOT / script).is_file(), words


def test_every_command_named_in_the_text_exists() -> None:
    for page in (page for page in PAGES if page.name != "CHANGELOG.md"):  # which names commands of the past
        for line in re.findall(r"`fdg ([a-z][a-z -]*)[^`]*`", page.read_text(encoding="utf-8")):
            words = [word for word in line.split() if not word.startswith("-")]
            assert complaint(*words[:1]) == "", (page.name, line)


def test_what_security_md_calls_shown_is_there() -> None:
    """Every test that the page names exists."""
    named = set(re.findall(r"`(tests/[^`]*)`", (ROOT / "SECURITY.md").read_text(encoding="utf-8")))
    assert len(named) > 20
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_the_python_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["solution"].gap < 1e-8
    assert [path.name for path in (tmp_path / "my_jobs").iterdir()] == ["pacs_fedomg_ga"]
