# SPDX-License-Identifier: Apache-2.0
"""The packages whose versions are recorded, declared once for audit, sites and server."""

from collections.abc import Iterable
from importlib.metadata import version

OF_AUDIT = ("fdg-plugins", "nvflare", "torch")
OF_SITE = (*OF_AUDIT, "torchvision")
OF_SERVER = (*OF_SITE, "numpy", "cvxpy", "clarabel")


def installed_versions(packages: Iterable[str]) -> dict[str, str]:
    """Return the installed version of each package by name; all of them must be installed."""
    return {name: version(name) for name in packages}
