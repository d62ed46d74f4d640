# SPDX-License-Identifier: Apache-2.0
"""The command line: FLARE's recipe module takes two flags out of it on import, and only a recipe's script may let it.

What FLARE has read of a command line stays in its module, so each case is a process of its own.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fdg_plugins.recipes import FDGRecipe
from tests.recipes.exported_jobs import files

EXAMPLES = Path(__file__).parents[2] / "examples"
FLAGS = ["--export", "--export-dir", "elsewhere", "--mine"]

# Sweeps and engines are made of recipes; the command that starts one imports it when it runs. one_federation is a
# program of the engine's own, which nothing imports.
REST_OF_THE_PACKAGE = """
import importlib.util, json, sys
from pathlib import Path
import fdg_plugins
package = Path(fdg_plugins.__file__).parent
for path in sorted(package.rglob("*.py")):
    parts = path.relative_to(package.parent).with_suffix("").parts
    tracker = parts[-1].removesuffix("_receiver")  # mlflow, wandb: extras
    is_lacking = tracker != parts[-1] and importlib.util.find_spec(tracker) is None
    if not {"recipes", "sweep", "engine"} & {*parts[1:3]} and parts[-1] != "one_federation" and not is_lacking:
        importlib.import_module(".".join(parts).removesuffix(".__init__"))
print(json.dumps([sys.argv[1:], "nvflare.recipe" in sys.modules]))
"""
OUR_COMMANDS = """
import json, sys
from fdg_plugins.cli.jobs import own_arguments
with own_arguments():
    from fdg_plugins.recipes import FDGRecipe
from nvflare.recipe.spec import _peek_recipe_args
print(json.dumps([sys.argv[1:], _peek_recipe_args()[0]]))
"""


def python(*arguments: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "script",
    [
        pytest.param(REST_OF_THE_PACKAGE, id="rest of the package", marks=pytest.mark.slow),
        pytest.param(OUR_COMMANDS, id="our commands"),
    ],
)
def test_the_command_line_stays_whole_and_nothing_will_be_exported(script: str, tmp_path: Path) -> None:
    assert json.loads(python("-c", script, *FLAGS, folder=tmp_path).splitlines()[-1]) == [FLAGS, False]


@pytest.mark.slow
def test_a_script_that_executes_a_recipe_can_be_asked_to_export_it(tmp_path: Path) -> None:
    python(str(EXAMPLES / "fedomg.py"), "--export", "--export-dir", "out", folder=tmp_path)
    FDGRecipe("fedomg", "pacs", target="sketch", kappa=0.5).export(str(tmp_path / "expected"))
    assert files(tmp_path / "out") == files(tmp_path / "expected")
