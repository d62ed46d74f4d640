# SPDX-License-Identifier: Apache-2.0
"""The page on plug-ins: its file is complete, and its job, explanation and entry points are as it says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fdg_plugins.plugins.files import load_file
from fdg_plugins.tasks import TASKS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    found: list[str] = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return found[0]


def in_one_thread() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "my_method.py"
    path.write_text(block("python"), encoding="utf-8")
    return path


@pytest.mark.slow
def test_the_files_of_the_page_load_and_keep_the_promises_of_their_contracts(tmp_path: Path) -> None:
    files = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE, re.DOTALL))
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert set(files) == {"my_method.py", "median.py", "near.py", "top_two.py", "contracts.py"}
    done = subprocess.run(
        [sys.executable, "contracts.py"], cwd=tmp_path, capture_output=True, text=True, check=False, env=in_one_thread()
    )
    assert done.stderr == ""
    assert done.stdout == re.findall(r"\$ python contracts\.py\n(.*?)```", PAGE, re.DOTALL)[0]


def test_the_metric_of_the_page_is_judged_at_both_ends(tmp_path: Path) -> None:
    text = next(one for one in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if one.startswith("# top_two.py"))
    (tmp_path / "top_two.py").write_text(text, encoding="utf-8")
    load_file(tmp_path / "top_two.py")
    task = TASKS.get("top_two")
    logits = torch.tensor([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]])
    total, count = task.sums(logits, torch.tensor([1, 2]))["top_two_accuracy"]
    assert (float(total), count) == (1.0, 2)
    assert task.complaint({"top_two_accuracy": (1.0, 2)}, 2, 3) is None
    assert task.complaint({"top_two_accuracy": (1.0, 2)}, 3, 3) == "its top_two_accuracy is over 2 images, expected 3"
    assert task.complaint({"accuracy": (1.0, 2)}, 2, 3) is not None
