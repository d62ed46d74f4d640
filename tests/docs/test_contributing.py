# SPDX-License-Identifier: Apache-2.0
"""The walk-throughs of CONTRIBUTING.md and of the page on plug-ins work: their files are written and run."""

import os
import re
import shutil
import sys
from pathlib import Path

import pytest
import torch

from fdg_plugins.plugins.files import load_file
from fdg_plugins.tasks import TASKS
from tests.processes import printed_by

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
PLUGINS = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")


def files_of(section: str) -> dict[str, str]:
    """Return the blocks of a section that have a title, by it: a path, or ``run``."""
    found = re.search(rf"^## {section}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert found is not None
    return dict(re.findall(r'^```\w+ title="([^"]+)"\n(.*?)^```$', found[1], re.DOTALL | re.MULTILINE))


def python(arguments: list[str], folder: Path) -> str:
    """Run Python in ``folder``, whose copy of the package, if any, is imported; return what was printed."""
    given = {"PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]), "PYTHONDONTWRITEBYTECODE": "1"}
    return printed_by(sys.executable, *arguments, folder=folder, **given)


@pytest.mark.slow
def test_a_methods_file_test_and_page_are_enough_to_run_and_report_it(tmp_path: Path) -> None:
    files = files_of("Add a method")
    commands = files.pop("run").split("\n")
    assert sorted(files) == ["docs/methods/qffl.md", "fdg_plugins/methods/qffl.py", "tests/aggregators/test_qffl.py"]
    shutil.copytree(ROOT / "fdg_plugins", tmp_path / "fdg_plugins", ignore=shutil.ignore_patterns("__pycache__"))
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        with (tmp_path / path).open("x", encoding="utf-8") as file:  # none is there already
            file.write(text)
    printed = [python(line.split()[1:], tmp_path) for line in commands if line.startswith("python ")]
    assert [text for text in printed if "7 passed" in text] == printed
    assert printed
    examples = "import doctest, fdg_plugins.methods.qffl as q; print(doctest.testmod(q), q.__file__)"
    outcome = python(["-c", examples], tmp_path)
    assert "failed=0, attempted=1" in outcome
    assert str(tmp_path) in outcome
    fdg = ["-c", "from fdg_plugins.cli.main import app; app()"]
    assert python([*fdg, "explain", "qffl"], tmp_path).startswith("q-FFL: weights that favour sites")
    small = [f"--set={text}" for text in ("rounds=1", "local_epochs=1", "max_samples_per_domain=30")]
    python([*fdg, "run", "omg+qffl", "--dataset", "rotateddigits", *small, "--to", "run"], tmp_path)
    assert "FedOMG + q-FFL" in python([*fdg, "report", "run"], tmp_path)


@pytest.mark.slow
def test_the_files_of_the_page_load_and_keep_the_promises_of_their_contracts(tmp_path: Path) -> None:
    files = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PLUGINS, re.DOTALL))
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert set(files) == {"my_method.py", "median.py", "near.py", "top_two.py", "contracts.py"}
    (printed,) = re.findall(r"\$ python contracts\.py\n(.*?)```", PLUGINS, re.DOTALL)
    assert printed_by(sys.executable, "contracts.py", folder=tmp_path) == printed


def test_the_metric_of_the_page_is_judged_at_both_ends(tmp_path: Path) -> None:
    text = next(one for one in re.findall(r"```python\n(.*?)```", PLUGINS, re.DOTALL) if one.startswith("# top_two.py"))
    (tmp_path / "top_two.py").write_text(text, encoding="utf-8")
    load_file(tmp_path / "top_two.py")
    task = TASKS.get("top_two")
    logits = torch.tensor([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]])
    total, count = task.sums(logits, torch.tensor([1, 2]))["top_two_accuracy"]
    assert (float(total), count) == (1.0, 2)
    assert task.complaint({"top_two_accuracy": (1.0, 2)}, 2, 3) is None
    assert task.complaint({"top_two_accuracy": (1.0, 2)}, 3, 3) == "its top_two_accuracy is over 2 images, expected 3"
    assert task.complaint({"accuracy": (1.0, 2)}, 2, 3) is not None
