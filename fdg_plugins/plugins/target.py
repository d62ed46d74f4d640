# SPDX-License-Identifier: Apache-2.0
"""A class or function that a record names, loaded only when it is used.

Records are read before torch is loaded, and by processes that need only one side of a method. A record may therefore
name its code as an entry point does, ``"package.module:Name"``, or contain it. The text refers to code of an installed
package, never of a job: nothing in a job's config is ever imported by path.
"""

from pkgutil import resolve_name
from typing import Any

Target = str | type | Any


def load_target(target: Target) -> Any:
    """Return the target: the value itself, or the attribute of a module written ``"package.module:Name"``."""
    return resolve_name(target) if isinstance(target, str) else target


def public_path(target: Target) -> str:
    """Return the class path of a target as a job's config names it, without loading the target."""
    return target.replace(":", ".") if isinstance(target, str) else f"{target.__module__}.{target.__qualname__}"
