# SPDX-License-Identifier: Apache-2.0
"""Runs the tutorial and keeps what its cells print. Run it after changing a cell: ``python docs/tutorial/execute.py``.

The cells are plain Python, so an interpreter of its own is kernel enough. Kept is only the text on standard output. A
cell tagged ``live`` runs, but its output is left out: the log of a federation, full of times. Cells tagged
``federation`` depend on a trained network, whose last digits depend on the machine.
"""

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).with_name("tutorial.ipynb")
FEDERATION, LIVE = "federation", "live"
SECONDS = 900  # most that all cells together may take

# Reads the sources of the cells, runs them in one namespace, and answers with what each has printed.
INTERPRETER = """
import contextlib, io, json, sys

def run(cells):
    names = {"__name__": "__main__"}
    for cell in cells:
        with contextlib.redirect_stdout(io.StringIO()) as output:
            exec(compile(cell, "cell", "exec"), names)
        yield output.getvalue()

answer = sys.stdout
cells = json.load(sys.stdin)
printed = list(run(cells))
json.dump(printed, answer)
"""


def read() -> dict[str, Any]:
    """Return the notebook as it is kept."""
    notebook: dict[str, Any] = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    return notebook


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the cells of code."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def source(cell: dict[str, Any]) -> str:
    """Return the text of a cell."""
    return "".join(cell["source"])


def tags(cell: dict[str, Any]) -> list[str]:
    """Return the tags of a cell."""
    return list(cell["metadata"].get("tags", []))


def printed(cell: dict[str, Any]) -> str:
    """Return what a cell has printed, as it is kept."""
    return "".join("".join(output["text"]) for output in cell["outputs"])


def execute(notebook: dict[str, Any]) -> dict[str, Any]:
    """Return the notebook with what its cells print; a cell that fails raises ``RuntimeError`` with its traceback."""
    executed = copy.deepcopy(notebook)
    cells = code_cells(executed)
    done = subprocess.run(
        [sys.executable, "-c", INTERPRETER],
        input=json.dumps([source(cell) for cell in cells]),
        cwd=NOTEBOOK.parent,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    # What processes that a cell started have written stands before the answer, which is the last line.
    for cell, text in zip(cells, json.loads(done.stdout.splitlines()[-1]), strict=True):
        kept = text and LIVE not in tags(cell)
        stream = {"name": "stdout", "output_type": "stream", "text": text.splitlines(keepends=True)}
        cell["outputs"], cell["execution_count"] = [stream] if kept else [], None
    return executed


if __name__ == "__main__":
    NOTEBOOK.write_text(json.dumps(execute(read()), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
