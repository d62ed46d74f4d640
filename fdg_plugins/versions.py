# SPDX-License-Identifier: Apache-2.0
"""The packages whose versions are recorded, declared once for audit, sites and server."""

from collections.abc import Iterable
from functools import cache
from importlib.metadata import version

OF_AUDIT = ("fdg-plugins", "nvflare", "torch")
OF_SITE = (*OF_AUDIT, "torchvision")
OF_SERVER = (*OF_SITE, "numpy", "cvxpy", "clarabel")


def is_plugin(name: str) -> bool:
    """Return whether an entry of recorded versions is that of a plug-in (:mod:`fdg_plugins.plugins.code`)."""
    return name not in OF_SERVER


def must_be_equal(name: str) -> bool:
    """Return whether all participants of a job that have this package, or plug-in, need the same version of it."""
    return name in ("fdg-plugins", "nvflare") or is_plugin(name)


def installed_versions(packages: Iterable[str]) -> dict[str, str]:
    """Return the installed version of each package by name; all of them must be installed."""
    return {name: _version(name) for name in packages}


@cache
def _version(package: str) -> str:
    """Return the version of a package, which is read from files once per process."""
    return version(package)
