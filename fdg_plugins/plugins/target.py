# SPDX-License-Identifier: Apache-2.0
"""A class or function that a record names, loaded only when it is used.

Records are read before torch is loaded, and by processes that need only one side of a method. A record may therefore
name its code as an entry point does, ``"package.module:Name"``, or contain it. The text refers to code of an installed
package, never of a job: nothing in a job's config is ever imported by path.
"""

import re
from importlib import import_module
from typing import Any

from fdg_plugins.errors import SettingsError

Target = str | type | Any

_ENTRY = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def load_target(target: Target) -> Any:
    """Return the target: the value itself, or the attribute of a module written ``"package.module:Name"``.

    Raises ``SettingsError`` for text in another form.
    """
    if not isinstance(target, str):
        return target
    if not _ENTRY.fullmatch(target):
        raise SettingsError(f"a record names {target!r}, expected a class, or text such as 'package.module:Name'.")
    module, _, name = target.partition(":")
    return getattr(import_module(module), name)


def public_path(target: Target) -> str:
    """Return the class path of a target as a job's config names it, without loading the target."""
    return target.replace(":", ".") if isinstance(target, str) else f"{target.__module__}.{target.__qualname__}"
