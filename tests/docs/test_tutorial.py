# SPDX-License-Identifier: Apache-2.0
"""The tutorial runs, and what stands in it is what it prints."""

import re
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


@pytest.mark.nightly
@pytest.mark.usefixtures("no_fdg_variables")
def test_the_tutorial_runs_from_its_first_cell_to_its_last(script: ModuleType, notebook: dict[str, Any]) -> None:
    executed = script.execute(notebook)
    for kept, new in zip(script.code_cells(notebook), script.code_cells(executed), strict=True):
        if script.FEDERATION in script.tags(kept):
            assert without_numbers(script.printed(new)) == without_numbers(script.printed(kept)), STALE
        else:
            assert script.printed(new) == script.printed(kept), STALE
    assert executed["metadata"] == notebook["metadata"]
