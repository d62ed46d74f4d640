# SPDX-License-Identifier: Apache-2.0
"""The tutorials run, and what stands in them is what they print."""

import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.finished_runs import record_in
from tests.processes import printed_by
from tests.scripts import load_script

ROOT = Path(__file__).parents[2]
STALE = "run: python docs/tutorial/execute.py"


def without_numbers(text: str) -> list[str]:
    """Return the words of a text; numbers, lines as long as these, and which is best, depend on the processor."""
    return re.sub(r"[-━]{2,}", "-", re.sub(r"\d+(\.\d+)?", "#", text.replace("**", ""))).split()


@pytest.mark.nightly
@pytest.mark.usefixtures("no_fdg_variables")
def test_the_tutorial_runs_from_its_first_cell_to_its_last() -> None:
    script = load_script(ROOT / "docs" / "tutorial" / "execute.py")
    notebook = script.read()
    executed = script.execute(notebook)
    for kept, new in zip(script.code_cells(notebook), script.code_cells(executed), strict=True):
        if script.FEDERATION in script.tags(kept):
            assert without_numbers(script.printed(new)) == without_numbers(script.printed(kept)), STALE
        else:
            assert script.printed(new) == script.printed(kept), STALE
    assert executed["metadata"] == notebook["metadata"]


PAGE = ROOT / "docs" / "medical-tutorial.md"


def run(commands: str, folder: Path) -> str:
    """Execute the commands of a block in a shell, and return what they print on standard output."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return printed_by("bash", "-e", "-c", commands, folder=folder, PATH=path, FDG_THREADS="1", COLUMNS="200")


@pytest.mark.nightly
@pytest.mark.usefixtures("no_fdg_variables")
def test_the_tutorial_runs_from_its_first_command_to_its_last(tmp_path: Path) -> None:
    printed = ""
    blocks = re.findall(r"^```(\w+)\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    for language, text in blocks:
        match language:
            case "python":
                (tmp_path / "hospitals.py").write_text(text, encoding="utf-8")
            case "bash":
                printed = run(text, tmp_path)
            case "text":
                assert " ".join(without_numbers(text)) in " ".join(without_numbers(printed))
    for method in ("fedavg", "fedomg"):
        record = record_in(tmp_path / "runs" / method)
        assert (record.status, record.stand_in, record.held_out) == ("finished", True, ("hospital_d",))
        first, last = (record.evaluations[place].sites["hospital_d"].value("dice") for place in (0, -1))
        assert last > first + 0.05, "four rounds are better than none"
    mask = np.asarray(Image.open(tmp_path / "bundle" / "masks" / "000_mask.png"))
    assert (mask.shape, set(np.unique(mask))) == ((128, 128), {0, 255})
    assert list((tmp_path / "figures").glob("convergence.csv"))
