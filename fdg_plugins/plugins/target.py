# SPDX-License-Identifier: Apache-2.0
"""A class or function that a record names, loaded only when it is used.

Records are read where torch is not loaded yet, and by processes that need one half of a method alone. So a record may
name its code as an entry point does, ``"package.module:Name"``, or hold it. The text is code of an installed package,
never a job's: nothing in a job's config is ever imported by path.
"""

import re
from importlib import import_module
from typing import Any

from fdg_plugins.errors import SettingsError

Target = str | type | Any

_ENTRY = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def load_target(target: Target) -> Any:
    """Return what a record names: the value itself, or the attribute of a module written ``"package.module:Name"``."""
    if not isinstance(target, str):
        return target
    if not _ENTRY.fullmatch(target):
        raise SettingsError(f"a record names {target!r}, expected a class, or text such as 'package.module:Name'.")
    module, _, name = target.partition(":")
    return getattr(import_module(module), name)


def public_path(target: Target) -> str:
    """Return the class path by which a job's config would name a target, without loading it.

    A class of this package is public in its room: ``fdg_plugins.aggregators.FedAvgAggregator``.
    """
    path = target.replace(":", ".") if isinstance(target, str) else f"{target.__module__}.{target.__qualname__}"
    package, *inner, name = path.split(".")
    return f"{package}.{inner[0]}.{name}" if package == __name__.partition(".")[0] and inner else path
