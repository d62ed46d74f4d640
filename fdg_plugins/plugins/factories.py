# SPDX-License-Identifier: Apache-2.0
"""A network by the path of its factory, ``module:factory``, as a plug-in file.

Only a command line has such paths. A file with the record of the network is written and loaded like any plug-in file:
the job carries a copy of it and names the network, so a participant loads it only where jobs may bring code, and
nothing is imported by a path in a job's config.

The module is an installed one, which the file then names, or a single file of one's own, of which the file is a copy
with the record at its end.
"""

import ast
import re
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from fdg_plugins.errors import FDGError, SettingsError
from fdg_plugins.naming import expected_one_of
from fdg_plugins.plugins.files import SUFFIX, load_file, missing_beside
from fdg_plugins.values import shorten

LONGEST = 90  # of a name made of those of module and factory

_MODULE = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*"
_PATH = re.compile(rf"({_MODULE}|[^:]+\.py):([A-Za-z_]\w*)")
_BY_PATH = '''"""The network {text}."""

from fdg_plugins.models import network_of

NETWORK = network_of("{text}", name="{name}")
'''
_AT_THE_END = """

# --- added to a copy of the file: the record of the network ---
from fdg_plugins.models import network_of as _network_of  # noqa: E402

_NETWORK = _network_of({factory}, name="{name}")
"""


class FactoryFile(NamedTuple):
    """A plug-in file that was written for a factory, and the name of the network in it."""

    path: Path
    network: str


def is_factory(text: str) -> bool:
    """Return whether ``text`` is meant as the path of a factory; the name of a network has no colon."""
    return ":" in text


def bring_factory(text: str, here: Path, folder: Path) -> FactoryFile:
    """Write the plug-in file of the network that a factory builds, and load it.

    Args:
        text: ``"package.module:factory"`` or ``"file.py:factory"``; a factory is a function or a class.
        here: the folder in which a module that is not installed, and a relative path, are looked for.
        folder: an existing folder for the file, which must stay there until the job is written.

    Raises:
        SettingsError: for text in another form, and for a module or factory that is not there or cannot be loaded.
    """
    found = _PATH.fullmatch(text)
    if found is None:
        raise SettingsError(
            f"model is {shorten(text)}, expected the name of a network, package.module:factory or file.py:factory."
        )
    module, factory = found.groups()
    name = _name_of(module, factory)
    path = folder / f"{name}{SUFFIX}"
    file = _own_file(module, here)
    path.write_bytes(_content(text, file, factory, name))
    try:
        load_file(path)
    except FDGError as error:
        said = str(error) if file is None else _of_own_file(error, path, file, here, factory)
        raise SettingsError(f"model {text!r}: {said}") from error
    return FactoryFile(path, name)


def _of_own_file(error: FDGError, copy: Path, file: Path, here: Path, factory: str) -> str:
    """Return an error that the ``copy`` of a file of one's own caused as one of the file itself."""
    cause = error.__cause__
    if isinstance(cause, NameError) and cause.name == factory and factory not in (known := _factories_in(file)):
        return f"file {file} has no {factory!r}, {expected_one_of(factory, known)}"
    said = str(error).replace(str(copy), str(file))
    beside = missing_beside(cause, file.parent, here)
    return f"{said.removesuffix('.')}{beside}." if beside else said


def _factories_in(file: Path) -> list[str]:
    """Return the names of the functions and classes of a module that could be loaded, those that are public."""
    return [
        one.name
        for one in ast.parse(file.read_bytes()).body
        if isinstance(one, ast.FunctionDef | ast.ClassDef) and not one.name.startswith("_")
    ]


def _name_of(module: str, factory: str) -> str:
    """Return the name of the network, which is that of its file: ``timm_models_resnet10t``."""
    stem = Path(module).stem if module.endswith(SUFFIX) else module
    name = re.sub(r"[^a-z0-9]+", "_", f"{stem}_{factory}".lower()).strip("_")[:LONGEST]
    return name if name[:1].isalpha() else f"net_{name}".rstrip("_")


def _own_file(module: str, here: Path) -> Path | None:
    """Return the file of one's own that ``module`` means; None for an installed module."""
    if module.endswith(SUFFIX):
        if (file := here / module).exists() and not file.is_file():  # reading a pipe would wait for ever
            raise SettingsError(f"model file {file} is not a regular file.")
        return file
    if _is_installed(module):
        return None
    file = here.joinpath(*module.split(".")).with_suffix(SUFFIX)
    if not file.is_file():
        raise SettingsError(
            f"model names the module {module!r}, which is neither installed nor the file {file}, expected one of them."
        )
    return file


def _is_installed(module: str) -> bool:
    """Return whether the module can be imported; the packages that contain it are imported to find out."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
    except (Exception, SystemExit) as error:  # the code of a package may raise anything
        raise SettingsError(f"module {module!r} cannot be loaded: {type(error).__name__}: {error}.") from error


def _content(text: str, file: Path | None, factory: str, name: str) -> bytes:
    """Return the plug-in file of a factory in an installed module, or in a file of one's own."""
    if file is None:
        return _BY_PATH.format(text=text, name=name).encode()
    try:
        return file.read_bytes() + _AT_THE_END.format(factory=factory, name=name).encode()
    except OSError as error:
        raise SettingsError(f"model file {file} cannot be read: {error.strerror}.") from error
