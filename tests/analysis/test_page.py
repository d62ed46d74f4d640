# SPDX-License-Identifier: Apache-2.0
"""The page of ``fdg report``: one file, what it holds of runs, hostile names in it, and how a browser shows it."""

import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest

from fdg_plugins.lab.analysis.page import Section, html_page
from fdg_plugins.lab.analysis.table import Sheet
from tests.analysis.browser import browser
from tests.analysis.run_stubs import FEDAVG, FEDOMG, keep, runs_of
from tests.cli.commands import check_refusal, fdg

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


def check_page(page: str) -> Reader:
    """Assert that a page needs nothing else, and that its policy allows its own style and script alone; return it."""
    found = Reader(page)
    policy = found.elements[3][1]["content"]
    assert policy is not None
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for tag in ("style", "script"):
        ((_, attributes),) = [one for one in found.elements if one[0] == tag]
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert attributes == {}
        assert f"{tag}-src 'sha256-{digest}'" in policy
    for _, attributes in found.elements:
        assert not [name for name in attributes if name == "style" or name.startswith("on")]
        assert (attributes.get("src") or "data:").startswith("data:")
        assert (attributes.get("href") or "#").startswith("#")
    return found


def test_a_hostile_text_is_text_wherever_it_stands() -> None:
    found = check_page(html_page(HOSTILE, [Section(HOSTILE, [SHEET, HOSTILE])]))
    assert [tag for tag, text in found.texts if text == SHOWN] == [
        "title",
        "h1",
        "a",
        "h2",
        "p",
        "button",
        "td",
        "li",
        "p",
    ]
    assert not [tag for tag, _ in found.elements if tag == "img"]


def test_the_page_of_a_sweep_has_its_tables_figures_protocol_and_versions(tmp_path: Path) -> None:
    for run in (run for method in (FEDAVG, FEDOMG) for run in runs_of(method, {"photo": (0.5, 0.6)})):
        census = {HOSTILE: run.record.census["cartoon"], **run.record.census}
        record = run.record.model_copy(update={"sources": (HOSTILE, *run.record.sources), "census": census})
        keep(replace(run, record=record), tmp_path / "s" / "<b>sweep & more")
    page, table = tmp_path / "page.html", tmp_path / "table.md"
    done = fdg("report", tmp_path / "s", "--html", page, "--to", table)
    assert (done.exit_code, done.stdout) == (0, f"{page}: written\n{table}: written\n"), done.output
    found = check_page(page.read_text("utf-8"))
    headings = [text for tag, text in found.texts if tag == "h2" and text.strip()]
    assert headings == ["Results", "Figures", "Runs", "Protocol", "What left each site", "Versions"]
    cells = [text for tag, text in found.texts if tag in ("td", "strong")]
    assert {"55.0 ± 7.1", "fdg-plugins", "batch_size", "4", SHOWN} <= {*cells}
    assert any("<b>sweep & more" in text for text in cells)
    assert [one["alt"] for tag, one in found.elements if tag == "img"]


def test_what_is_no_evaluation_makes_no_page(tmp_path: Path) -> None:
    (tmp_path / "evaluation.json").write_text("{}", "utf-8")
    check_refusal(fdg("report", tmp_path, "--html", tmp_path / "page.html"), "there is no finished run")
    check_refusal(fdg("report", tmp_path, "--html", tmp_path / "page.htm"), "'.htm'")


@pytest.mark.parametrize("width", [1200, 360])
def test_a_browser_sorts_tables_and_asks_for_nothing(tmp_path: Path, width: int) -> None:
    file = tmp_path / "page.html"
    file.write_text(html_page(HOSTILE, [Section("Results", [SHEET])]), "utf-8")
    with browser(tmp_path) as tab:
        tab.show(file, width)
        rows = "[...document.querySelectorAll('tbody td:first-child')].map(cell => cell.textContent)"
        heads = "document.querySelectorAll('thead button')"
        assert tab.value(f"{heads}[1].click(), {rows}") == ["b9", "b10", SHOWN, "a", "erm"]
        assert tab.value(f"{heads}[1].click(), {rows}") == ["b10", "b9", SHOWN, "erm", "a"]
        assert tab.value(f"{heads}[0].click(), {rows}")[-4:] == ["b9", "b10", "a", "erm"]
        assert tab.value("document.querySelector('[aria-sort]').textContent") == "method"
        assert tab.value("document.title") == SHOWN
        assert tab.value("document.documentElement.scrollWidth <= innerWidth")
        assert [one["params"]["request"]["url"] for one in tab.events if "request" in one["params"]] == [file.as_uri()]
        assert not [one for one in tab.events if one["method"] == "Log.entryAdded"]
        script = "Object.assign(document.createElement('script'), {text: 'document.title = 1'})"
        assert tab.value(f"document.head.append({script}), document.title") == SHOWN
