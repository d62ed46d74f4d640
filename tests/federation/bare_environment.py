# SPDX-License-Identifier: Apache-2.0
"""An environment with what ``pip install .`` brings and nothing else, without installing five gigabytes once more.

Packages are links to those that are installed here; which ones is what the metadata of this package and of those that
it needs says, without extras.
"""

import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

from tests.docs.test_pages import script

ROOT = Path(__file__).parents[2]
NAME = "fdg-plugins"


def make_bare_environment(folder: Path) -> Path:
    """Make the environment in ``folder``; return the folder of its commands."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "fdg_plugins").symlink_to(ROOT / "fdg_plugins")
    for name in [NAME, *script("make_sbom").needed(NAME)]:
        _link(name, packages)
        _write_commands(name, folder / "bin")
    return folder / "bin"


def _link(name: str, packages: Path) -> None:
    """Link what a package has beside others in ``site-packages``: modules, libraries and its metadata."""
    found = distribution(name)
    for top in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
        link = packages / top
        if not link.exists() and not top.endswith(".pth") and not top.startswith("__editable__"):
            link.symlink_to(Path(str(found.locate_file(top))))


def _write_commands(name: str, commands: Path) -> None:
    for entry in distribution(name).entry_points.select(group="console_scripts"):
        command = commands / entry.name
        lines = [f"#!{commands / 'python'}", f"from {entry.module} import {entry.attr}", f"{entry.attr}()"]
        command.write_text("\n".join(lines), encoding="utf-8")
        command.chmod(0o755)
