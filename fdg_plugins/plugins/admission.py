# SPDX-License-Identifier: Apache-2.0
"""The plug-ins that the operator of a server or site permits.

``allowed_plugins`` in ``local/fdg_site.json`` contains distributions, as ``pip`` names them; ``"custom"`` stands for
files that a job brings. Without the list, all installed plug-ins may be used, and all code that FLARE lets a job bring.
Permission is checked before any code of a plug-in is loaded.
"""

import re
from collections.abc import Collection, Iterable
from pathlib import Path

from fdg_plugins.errors import SettingsError
from fdg_plugins.plugins.files import load_files
from fdg_plugins.plugins.registry import FILE, registry_of

CUSTOM = "custom"
ALLOWED_PLUGINS = "allowed_plugins"

Allowed = tuple[str, ...] | None


def admit(uses: Iterable[tuple[str, str]], files: Collection[str], custom: Path | None, allowed: Allowed) -> None:
    """Check that everything a job names may be used here, and load the plug-in files that it names.

    Args:
        uses: pairs of a setting and the name that the job gives it: ``("model", "resnet18")``.
        files: names of files in the job's ``custom/`` folder.
        custom: that folder; None: the job has none.
        allowed: the operator's list; None: all installed plug-ins may be used.

    Raises ``SettingsError``, with a public message, for what the operator does not allow or what does not exist.
    """
    for setting, name in uses:
        check_allowed(setting, name, allowed)
    if files and allowed is not None and CUSTOM not in allowed:
        expected = f"none: {ALLOWED_PLUGINS} of the operator lacks {CUSTOM!r}, which stands for files of a job"
        raise SettingsError(field="plugins", value=[*files], expected=expected, public=True)
    if files and custom is None:
        raise SettingsError("the job names plugins, but has no folder custom/ that brings their code.", public=True)
    if custom is not None:
        load_files(files, custom)


def check_allowed(setting: str, name: str, allowed: Allowed) -> None:
    """Raise ``SettingsError`` if ``name`` is of a plug-in that is not in ``allowed``; loads no plug-in."""
    origin = None if allowed is None else registry_of(setting).origin(name)
    if origin is not None and _plain(CUSTOM if origin == FILE else origin) not in map(_plain, allowed or ()):
        used, refused = f"{setting} {name!r} comes from", f"the operator does not allow here ({ALLOWED_PLUGINS})."
        raise SettingsError(f"{used} {origin}, which {refused}", public=f"{used} a plug-in that {refused}")


def _plain(distribution: str) -> str:  # as packaging compares names
    return re.sub(r"[-_.]+", "-", distribution).lower()
