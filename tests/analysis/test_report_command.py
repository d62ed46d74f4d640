# SPDX-License-Identifier: Apache-2.0
"""``fdg report`` on files: what it prints and writes, what it leaves out, mistakes; its page, also in a browser."""

import base64
import hashlib
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import get_args

import pandas as pd
import pytest

from fdg_plugins.cli.report import Against, RuleOrAll
from fdg_plugins.lab.analysis import RULES
from fdg_plugins.lab.analysis.page import Section, html_page
from fdg_plugins.lab.analysis.papers import ALL_PAPERS, papers
from fdg_plugins.lab.analysis.table import Sheet
from fdg_plugins.models import InitialWeights
from tests.analysis.run_stubs import FEDAVG, FEDOMG, keep, run, runs_of
from tests.analysis.test_sites import skewed
from tests.cli.commands import fdg
from tests.processes import printed_by

command = partial(fdg, "report")
VALUES = {"photo": (0.5, 0.6, 0.7)}


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """A sweep's folder with three seeds of two methods on one domain."""
    for method in (FEDAVG, FEDOMG):
        for made in runs_of(method, VALUES):
            keep(made, tmp_path / "sweep")
    return tmp_path / "sweep"


def test_a_sweep_becomes_a_table(sweep: Path) -> None:
    result = command(sweep)
    assert (result.exit_code, result.stderr) == (0, "")
    assert [line.split()[0] for line in result.stdout.splitlines() if "60.0 ± 10.0" in line] == ["FedAvg", "FedOMG"]
    rules = command(sweep, "--selection", "all").stdout.partition(" paired with ")[0]
    assert all(sum(f"  {title}  " in line for line in rules.splitlines()) == 2 for title in RULES.values())
    assert "FedIIR paper, tables 1, 6, resnet18" in command(sweep, "--against", "paper").stdout


def test_what_is_left_out_is_named_on_stderr_and_the_rest_is_shown(sweep: Path, tmp_path: Path) -> None:
    whole = command(sweep).stdout
    file = keep(run("broken"), sweep)
    file.write_text("{", encoding="utf-8")
    (tmp_path / "none yet").mkdir()
    result = command(sweep, tmp_path / "none yet")
    assert (result.exit_code, result.stdout) == (0, whole)
    assert f"{file.parent} is left out" in result.stderr
    assert f"{tmp_path / 'none yet'} holds no results.json" in result.stderr
    nothing = command(file.parent)
    assert (nothing.exit_code, nothing.stdout) == (2, "")
    assert "there is no finished run below" in nothing.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--to", "table.doc"], "'.doc'"),
        (["--selection", "best"], "best"),
        (["--against", "fedprox"], "fedprox"),
        (["nowhere"], "path nowhere does not exist"),
        (["--choose", "strength"], "'strength'"),
    ],
)
def test_a_users_mistake_ends_with_2(sweep: Path, arguments: list[str], words: str) -> None:
    result = command(sweep, *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("arguments", [["--choose", "kappa"], ["--selection", "oracle"], ["--selection", "all"]])
def test_where_sites_validate_on_their_test_images_nothing_is_chosen(tmp_path: Path, arguments: list[str]) -> None:
    keep(skewed(), tmp_path)
    assert command(tmp_path, "--selection", "last").exit_code == 0
    assert command(tmp_path, *arguments).exit_code == 2


def test_the_command_offers_every_rule_and_every_paper() -> None:
    assert set(get_args(RuleOrAll)) == {*RULES, "all"}
    assert set(get_args(Against)) == {ALL_PAPERS, *papers()}


FORMULA = '=HYPERLINK("x")\x1b]0;owned\x07\n# ok'


def test_no_text_of_a_strangers_record_is_obeyed_by_a_terminal_a_page_or_a_spreadsheet(tmp_path: Path) -> None:
    for made in runs_of(FEDAVG, VALUES):
        made.record.data, made.record.initial_weights = FORMULA, InitialWeights(FORMULA)
        keep(made, tmp_path / "sweep")
    unfinished = run("stopped")
    unfinished.record.status, unfinished.record.stopped_because = "stopped", FORMULA
    keep(unfinished, tmp_path / "sweep")
    printed = command(tmp_path / "sweep")
    assert printed.exit_code == 0, printed.output
    texts = [printed.stdout, printed.stderr]
    for suffix in (".md", ".tex", ".csv", ".txt"):
        command(tmp_path / "sweep", "--to", file := tmp_path / f"table{suffix}")
        texts.append(file.read_text("utf-8"))
    for text in texts:
        lines = text.splitlines()
        assert "owned" in text
        assert all(line.isprintable() and not line.startswith(("# ", "=")) for line in lines), text
    assert texts[3].startswith(r"% needs \usepackage{booktabs}")
    assert texts[4].startswith("kind,method,label")
    assert "'=HYPERLINK" in texts[4]


HOSTILE = "</script></style><img src=x onerror=\"document.title='owned'\">'{{ 7 * 7 }}&amp;\u202e"
SHOWN = HOSTILE.replace("\u202e", "\\u202e")
ROWS = [["b10", "9.5 ± 1.0"], ["b9", "**1,010.0**"], [HOSTILE, "missing"], ["More:", ""], ["erm", "3.0"], ["a", "20.0"]]
SHEET = Sheet(HOSTILE, pd.DataFrame(ROWS, columns=["method", HOSTILE]), 1, [HOSTILE])


class Reader(HTMLParser):
    """The elements with their attributes, and the text of each, of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append((self.elements[-1][0] if self.elements else "", data))


def contents(page: str, tag: str) -> list[str]:
    return re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)


def digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def check_page(page: str) -> Reader:
    """Assert that a page needs nothing else, and that its policy allows its own style and script alone; return it."""
    found = Reader(page)
    policy = found.elements[3][1]["content"]
    assert policy is not None
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for tag in ("style", "script"):
        ((_, attributes),) = [one for one in found.elements if one[0] == tag]
        (content,) = contents(page, tag)
        assert attributes == {}
        assert f"{tag}-src 'sha256-{digest(content)}'" in policy
    for _, attributes in found.elements:
        assert not [name for name in attributes if name == "style" or name.startswith("on")]
        assert (attributes.get("src") or "data:").startswith("data:")
        assert (attributes.get("href") or "#").startswith("#")
    return found


def test_a_hostile_text_is_text_wherever_it_stands() -> None:
    found = check_page(html_page(HOSTILE, [Section(HOSTILE, [SHEET, HOSTILE])]))
    assert " ".join(tag for tag, text in found.texts if text == SHOWN) == "title h1 a h2 p button td li p"
    assert not [tag for tag, _ in found.elements if tag == "img"]


def test_the_page_of_a_sweep_has_its_tables_figures_protocol_and_versions(tmp_path: Path) -> None:
    for made in (made for method in (FEDAVG, FEDOMG) for made in runs_of(method, {"photo": (0.5, 0.6)})):
        census = {HOSTILE: made.record.census["cartoon"], **made.record.census}
        record = made.record.model_copy(update={"sources": (HOSTILE, *made.record.sources), "census": census})
        keep(replace(made, record=record), tmp_path / "s" / "<b>sweep & more")
    page, table = tmp_path / "page.html", tmp_path / "table.md"
    done = command(tmp_path / "s", "--html", page, "--to", table)
    assert (done.exit_code, done.stdout) == (0, f"{page}: written\n{table}: written\n"), done.output
    found = check_page(page.read_text("utf-8"))
    headings = [text for tag, text in found.texts if tag == "h2" and text.strip()]
    assert headings == ["Results", "Figures", "Runs", "Protocol", "What left each site", "Versions"]
    cells = [text for tag, text in found.texts if tag in ("td", "strong")]
    assert {"55.0 ± 7.1", "fdg-plugins", "batch_size", "4", SHOWN} <= {*cells}
    assert any("<b>sweep & more" in text for text in cells)
    assert [one["alt"] for tag, one in found.elements if tag == "img"]


BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
QUIETLY = ["--headless", "--no-sandbox", "--disable-dev-shm-usage", "--dump-dom"]


@pytest.mark.parametrize(
    ("clicks", "names"),
    [
        ((1,), ["b9", "b10", SHOWN, "a", "erm"]),
        ((1, 1), ["b10", "b9", SHOWN, "erm", "a"]),
        ((1, 1, 0), [SHOWN, "b9", "b10", "a", "erm"]),
    ],
)
def test_a_browser_sorts_tables_and_obeys_no_text(tmp_path: Path, clicks: Sequence[int], names: list[str]) -> None:
    if (program := next(filter(None, map(shutil.which, BROWSERS)), None)) is None:
        pytest.skip(f"needs one of {', '.join(BROWSERS)}, as of Debian's package chromium")
    page = html_page(HOSTILE, [Section("Results", [SHEET])])
    (script,) = contents(page, "script")
    clicked = script + "".join(f"document.querySelectorAll('thead button')[{place}].click();" for place in clicks)
    file = tmp_path / "page.html"
    file.write_text(page.replace(script, clicked).replace(digest(script), digest(clicked)), "utf-8")
    found = Reader(printed_by(program, *QUIETLY, f"--user-data-dir={tmp_path / 'profile'}", file.as_uri()))
    assert [text for tag, text in found.texts if tag == "td" and text in names] == names
    assert ("title", SHOWN) in found.texts
