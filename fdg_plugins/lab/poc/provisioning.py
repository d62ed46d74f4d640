# SPDX-License-Identifier: Apache-2.0
"""FLARE's provisioning of a project (``nvflare provision``): it makes certificates and startup kits."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fdg_plugins.errors import FDGError


def provision_kits(project: Mapping[str, Any], folder: Path) -> Path:
    """Provision a project, as its YAML file says it, below ``folder``; return the folder that holds the kits.

    Raises ``FDGError`` with what FLARE says if it fails.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "project.yml"
    file.write_text(json.dumps(project), encoding="utf-8")  # which is YAML, too
    command = [sys.executable, "-m", "nvflare.cli", "provision", "-p", str(file), "-w", str(folder), "--force"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    made = sorted(folder.glob("*/prod_*"))
    if done.returncode != 0 or not made:
        raise FDGError(f"folder {folder}: FLARE's provisioning failed: {(done.stderr or done.stdout).strip()[-500:]}")
    return made[-1]
