# SPDX-License-Identifier: Apache-2.0
"""Packages of an optional extra, imported when they are used: importing some of them takes seconds."""

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from fdg_plugins.errors import MissingPackageError

MEDICAL = "medical"


def load_extra(module: str, whose: str, extra: str = MEDICAL) -> ModuleType:
    """Return ``module``, a module of a package that the extra ``extra`` installs.

    Raises MissingPackageError, naming ``whose`` use it is and how to install it, if the package is missing.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if (error.name or "").partition(".")[0] != package:
            raise
        raise _missing(package, whose, extra) from error


def check_extra(package: str, whose: str) -> None:
    """Raise MissingPackageError, as :func:`load_extra` does, if a package of the medical extra is not installed."""
    if find_spec(package) is None:  # without importing it
        raise _missing(package, whose, MEDICAL)


def _missing(package: str, whose: str, extra: str) -> MissingPackageError:
    return MissingPackageError(
        f"{whose} needs the package {package}, which is not installed: pip install 'fdg-plugins[{extra}]'.",
        public=True,
    )
