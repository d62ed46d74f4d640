# SPDX-License-Identifier: Apache-2.0
"""Which versions of which packages records name, declared once for audit, sites and server."""

from collections.abc import Iterable
from importlib.metadata import version

OF_AUDIT = ("fdg-plugins", "nvflare", "torch")
OF_SITE = (*OF_AUDIT, "torchvision")
OF_SERVER = (*OF_SITE, "numpy", "cvxpy", "clarabel")


def installed_versions(packages: Iterable[str]) -> dict[str, str]:
    """Return the version of each package, by its name; the packages are dependencies of this one."""
    return {name: version(name) for name in packages}
