# SPDX-License-Identifier: Apache-2.0
"""FLARE's provisioning of a project, called from Python: it makes certificates and startup kits."""

import contextlib
import copy
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fdg_plugins.errors import FDGError
from fdg_plugins.flare.internals import fetch


class _Log:
    """What FLARE's provisioning says; shown only if it fails."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def debug(self, text: str) -> None:
        """Drop it."""

    def info(self, text: str) -> None:
        """Drop it."""

    def warning(self, text: str) -> None:
        """Keep it."""
        self.lines.append(text)

    error = warning


def provision_kits(project: Mapping[str, Any], folder: Path) -> Path:
    """Provision a project, as its YAML file says it, below ``folder``; return the folder that holds the kits.

    Raises ``FDGError`` with what FLARE says if it fails.
    """
    prepare_builders, prepare_project, provisioner, failed, place = (
        fetch(name)
        for name in (
            "prepare_builders",
            "prepare_project",
            "Provisioner",
            "CtxKey.BUILD_ERROR",
            "CtxKey.CURRENT_PROD_DIR",
        )
    )
    log = _Log()
    with contextlib.redirect_stdout(io.StringIO()):
        builders = prepare_builders(copy.deepcopy(dict(project)))
        context = provisioner(str(folder), builders).provision(
            prepare_project(copy.deepcopy(dict(project))), logger=log
        )
    if context.get(failed):
        raise FDGError(f"folder {folder}: FLARE's provisioning failed: {'; '.join(log.lines)}")
    return Path(context[place])
