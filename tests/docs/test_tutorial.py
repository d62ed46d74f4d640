# SPDX-License-Identifier: Apache-2.0
"""The tutorial runs, and what stands in it is what it prints."""

import contextlib
import io
import re
from itertools import takewhile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.scripts import load_script

ROOT = Path(__file__).parents[2]
TUTORIAL = ROOT / "docs" / "tutorial"
STALE = "run: python docs/tutorial/execute.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """The script that runs the tutorial."""
    return load_script(TUTORIAL / "execute.py")


@pytest.fixture(scope="module")
def notebook(script: ModuleType) -> dict[str, Any]:
    """The tutorial as it is kept."""
    return script.read()


def without_numbers(text: str) -> list[str]:
    """Return the words of a text; numbers are only known to be some."""
    return re.sub(r"\d+(\.\d+)?", "#", text).split()


def test_the_cells_before_the_federation_print_what_stands_below_them(
    script: ModuleType, notebook: dict[str, Any]
) -> None:
    names: dict[str, Any] = {}
    cells = list(takewhile(lambda cell: script.FEDERATION not in script.tags(cell), script.code_cells(notebook)))
    assert len(cells) >= 5
    for cell in cells:
        with contextlib.redirect_stdout(io.StringIO()) as output:
            exec(compile(script.source(cell), cell["id"], "exec"), names)
        assert output.getvalue() == script.printed(cell), STALE


def test_every_cell_keeps_its_text_and_nothing_else(script: ModuleType, notebook: dict[str, Any]) -> None:
    for cell in script.code_cells(notebook):
        assert cell["execution_count"] is None
        assert all((output["output_type"], output["name"]) == ("stream", "stdout") for output in cell["outputs"])
        assert bool(cell["outputs"]) != (script.LIVE in script.tags(cell)), f"cell {cell['id']}: {STALE}"


def test_pictures_and_links_of_the_tutorial_lead_to_files(script: ModuleType, notebook: dict[str, Any]) -> None:
    text = "\n".join(script.source(cell) for cell in notebook["cells"] if cell["cell_type"] == "markdown")
    targets = re.findall(r"\]\(([^)#:]+)\)", text)
    assert "rect4_fl.svg" in targets
    assert [target for target in targets if not (TUTORIAL / target).exists()] == []


@pytest.mark.slow
@pytest.mark.usefixtures("no_fdg_variables")
def test_the_tutorial_runs_from_its_first_cell_to_its_last(script: ModuleType, notebook: dict[str, Any]) -> None:
    executed = script.execute(notebook)
    for kept, new in zip(script.code_cells(notebook), script.code_cells(executed), strict=True):
        if script.FEDERATION in script.tags(kept):
            assert without_numbers(script.printed(new)) == without_numbers(script.printed(kept)), STALE
        else:
            assert script.printed(new) == script.printed(kept), STALE
    assert executed["metadata"] == notebook["metadata"]
