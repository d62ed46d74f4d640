# SPDX-License-Identifier: Apache-2.0
"""Pages and docstrings: in step with the code, with links that lead somewhere, true commands and true examples."""

import doctest
import re
import shlex
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest
import typer
from typer.core import TyperGroup
from typer.testing import CliRunner

import fdg_plugins
from fdg_plugins.cli.main import app
from fdg_plugins.plugins.composition import compositions, parse_method
from fdg_plugins.plugins.methods import METHODS
from tests.scripts import load_script

ROOT = Path(__file__).parents[2]
PAGES = [
    *(page for page in sorted(ROOT.glob("docs/**/*.md")) if "records" not in page.parts),
    *sorted(ROOT.glob("*.md")),
    ROOT / "custom" / "README.md",
    *sorted(ROOT.glob("examples/*/README.md")),
]
MADE = [ROOT / "docs" / name for name in ("settings.md", "record.md", "compositions.md")]  # when the site is built
# Compositions that contradict themselves: the table of all others is in docs/.
REFUSED = {
    *(f"fednova{weighting}+{part}" for weighting in ("", "+ga", "+arfl") for part in ("prox", "pac", "adg")),
    *(f"fedcsa{weighting}+babu" for weighting in ("", "+ga", "+arfl")),
    "fednova+as",
}
LINK = r"\]\(([^)#:]+)(?:#[^)]*)?\)"


def script(name: str) -> ModuleType:
    return load_script(ROOT / "docs" / f"{name}.py")


def test_the_readme_lists_the_methods_that_there_are() -> None:
    made = script("make_method_pages").readme()
    assert (ROOT / "README.md").read_text(encoding="utf-8") == made, "run: nox -s generate"


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


def test_every_command_on_a_page_exists_with_its_options() -> None:
    for line in ("nope", "data nope", "sweep --methodz fedavg", "report sweeps/pacs --to"):
        assert complaint(*line.split())  # what is wrong is noticed
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


def test_formulas_of_all_records_are_well_formed_and_keep_their_letters() -> None:
    mathml = script("mathml")

    def letters(text: str) -> Counter[str]:
        plain = "".join({**mathml.SUB, **mathml.SUPER}.get(sign, sign) for sign in unicodedata.normalize("NFD", text))
        return Counter(sign for sign in plain if sign.isalnum())

    equations = [equation for record in METHODS.own().values() for equation in record.equations]
    for formula in (line for equation in equations for line in equation.formula.splitlines()):
        typeset = ElementTree.fromstring(mathml.math(formula, display=True))
        assert letters("".join(typeset.itertext()).replace("∑", "Σ")) == letters(formula), formula


@pytest.mark.parametrize(
    ("formula", "above", "below"),
    [
        ("η τ Σᵤ pᵤ Δᵤ / aᵤ", "puΔu", "au"),  # the fraction is summed
        ("Σᵤ nᵤ μᵤ / Σᵥ nᵥ", "∑unuμu", "∑vnv"),  # both sums are divided
        ("μ/2 ‖x‖²", "μ", "2"),
        ("p = (a + b) / (2 c)", "a+b", "2c"),
    ],
)
def test_fractions_take_what_belongs_to_them(formula: str, above: str, below: str) -> None:
    mathml = script("mathml")
    fraction = next(ElementTree.fromstring(mathml.math(formula)).iter("mfrac"))
    assert ["".join(part.itertext()) for part in fraction] == [above, below]


def test_every_method_has_a_picture_or_a_reason_for_none() -> None:
    without, drawn = script("method_pictures").WITHOUT, sys.modules["pictures"].PICTURES
    assert sorted([*without, *(key for key in drawn if key in METHODS.own())]) == sorted(METHODS.own())


def test_every_page_says_for_whom_it_is_first() -> None:
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "SECURITY.md", ROOT / "CONTRIBUTING.md"]
    first = {page.name: re.sub(r"\A# .*\n\n", "", page.read_text(encoding="utf-8"), count=1)[:15] for page in pages}
    assert [name for name, text in first.items() if not text.startswith(("For ", "**For whom.** "))] == []


def test_the_examples_in_the_docstrings_are_true() -> None:
    package = Path(fdg_plugins.__file__).parent
    paths = sorted(path for path in package.rglob("*.py") if ">>> " in path.read_text(encoding="utf-8"))
    parts = [path.relative_to(package.parent).with_suffix("").parts for path in paths]
    names = [".".join(part for part in one if part != "__init__") for one in parts]
    outcomes = {name: doctest.testmod(import_module(name)) for name in names}
    assert {name for name, outcome in outcomes.items() if outcome.failed or not outcome.attempted} == set()
