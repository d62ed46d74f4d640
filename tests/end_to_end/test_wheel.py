# SPDX-License-Identifier: Apache-2.0
"""The wheel alone, without the checkout: jobs come with it, and one runs."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from tests.processes import printed_by

ROOT = Path(__file__).parents[2]
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "fdg_plugins")
FDG = "import sys; from fdg_plugins.cli.main import app; sys.argv[0] = 'fdg'; app()"

pytestmark = pytest.mark.slow


def python(folder: Path, *arguments: str, packages: Path | None = None) -> str:
    path = {} if packages is None else {"PYTHONPATH": str(packages)}
    return printed_by(sys.executable, *arguments, folder=folder, **path)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder into which the wheel was installed, beside nothing else."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / "tree" / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            (folder / "tree").mkdir(exist_ok=True)
            shutil.copy(ROOT / name, folder / "tree")
    # Without isolation: the environment has setuptools, and no test downloads.
    python(folder, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", "dist", "./tree")
    (wheel,) = (folder / "dist").glob("*.whl")
    python(folder, "-m", "pip", "install", "--no-deps", "--target", "packages", str(wheel))
    return folder / "packages"


def test_the_package_is_that_of_the_wheel_and_complete(installed: Path, tmp_path: Path) -> None:
    place = python(tmp_path, "-c", "import fdg_plugins; print(fdg_plugins.__file__)", packages=installed)
    assert Path(place.strip()).is_relative_to(installed)
    of_tree = {str(path.relative_to(ROOT)) for path in (ROOT / "fdg_plugins").rglob("*") if path.is_file()}
    missing = {name for name in of_tree if "__pycache__" not in name and not (installed / name).exists()}
    assert missing == set()


def test_it_writes_the_jobs_and_runs_one(installed: Path, tmp_path: Path) -> None:
    python(tmp_path, "-c", FDG, "export", "jobs", "jobs", packages=installed)
    assert {path.name for path in (tmp_path / "jobs").iterdir()} == {path.name for path in (ROOT / "jobs").iterdir()}
    words = ["run", "jobs/pacs_fedomg", "--engine", "process", "--to", "run", "--set", "rounds=1"]
    printed = python(tmp_path, "-c", FDG, *words, packages=installed)
    assert json.loads((tmp_path / "run" / "results.json").read_text())["status"] == "finished"
    assert "sketch" in printed
