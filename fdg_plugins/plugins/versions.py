# SPDX-License-Identifier: Apache-2.0
"""The recorded versions: those of packages, declared once for audit, sites and server, and those of plug-ins."""

from collections.abc import Collection, Iterable
from functools import cache
from importlib import metadata

from fdg_plugins.plugins.files import SUFFIX, digest_of, files_behind
from fdg_plugins.plugins.registry import FILE, registry_of

version = cache(metadata.version)  # which reads files
DIGITS = 16  # of a SHA-256, enough to tell two states of a file apart
OF_AUDIT = ("fdg-plugins", "nvflare", "torch")
OF_SITE = (*OF_AUDIT, "torchvision")
OF_SERVER = (*OF_SITE, "numpy", "cvxpy", "clarabel")


def is_plugin(name: str) -> bool:
    """Return whether an entry of recorded versions is that of a plug-in (:func:`code_of`)."""
    return name not in OF_SERVER


def must_be_equal(name: str) -> bool:
    """Return whether all participants of a job that have this package, or plug-in, need the same version of it."""
    return name in ("fdg-plugins", "nvflare") or is_plugin(name)


def installed_versions(packages: Iterable[str]) -> dict[str, str]:
    """Return the installed version of each package by name; all of them must be installed."""
    return {name: version(name) for name in packages}


def code_of(uses: Collection[tuple[str, str]], files: Iterable[str]) -> dict[str, str]:
    """Return what is behind the plug-ins in use, which are admitted: versions of distributions, digests of files.

    Args:
        uses: pairs of a setting and a record's name: ``("model", "my_net")``. This package's own have no entry.
        files: names of loaded plug-in files, without ``.py``, in addition to those behind ``uses``.

    Returns:
        The version by the distribution's name; the first digits of the SHA-256 by the file's name, with ``.py``.
    """
    origins = {registry_of(setting).origin(name) for setting, name in uses}
    found = {origin: version(origin) for origin in origins if origin is not None and origin != FILE}
    found |= {f"{name}{SUFFIX}": digest_of(name)[:DIGITS] for name in {*files, *files_behind(uses)}}
    return dict(sorted(found.items()))
