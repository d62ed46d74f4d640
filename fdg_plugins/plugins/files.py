# SPDX-License-Identifier: Apache-2.0
"""Plug-in files: single modules whose records are found by name like those of installed plug-ins.

Such a file is code. It comes in a job's own ``custom/`` folder, which FLARE accepts only from users who may bring code,
or is named in a command that a user runs on their own machine. It is loaded under the module name
``fdg_custom_<name>``, which cannot collide with any other import, and only from the given path; nothing is searched.
"""

import re
import sys
import threading
from collections.abc import Iterable
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NamedTuple

from fdg_plugins.errors import FDGError, SettingsError
from fdg_plugins.plugins.registry import FILE, Registry, plugin_code, registries, registry_of
from fdg_plugins.storage import sha256_of

PREFIX = "fdg_custom_"
SUFFIX = ".py"

_NAME = re.compile(r"[a-z][a-z0-9_]{0,99}")
_LOCK = threading.RLock()  # the sites of a simulator are threads of one process


class _Loaded(NamedTuple):
    path: Path
    digest: str  # SHA-256 of its content
    records: tuple[tuple[Registry[Any], Any], ...]


_LOADED: dict[str, _Loaded] = {}  # by the file's name


def load_files(names: Iterable[str], custom: Path) -> None:
    """Load the files ``<name>.py`` of a job's ``custom/`` folder, and add their records to the registries."""
    for name in names:
        path = custom / f"{name}{SUFFIX}"
        if not _NAME.fullmatch(name) or custom.is_symlink() or path.is_symlink() or not path.is_file():
            expected = "the names of files in the job's folder custom/: lower-case letters, digits and '_'"
            raise SettingsError(field="plugins", value=name, expected=expected, public=True)
        load_file(path)


def load_file(path: Path) -> str:
    """Load a plug-in file and add its records to the registries; return its name, that of the file without ``.py``.

    A file whose content has been loaded before is not loaded again; another file of the same name replaces it and its
    records. Raises ``SettingsError`` for an invalid name, an unreadable or broken file, and one without records.
    """
    name = path.name.removesuffix(SUFFIX)
    if path.suffix != SUFFIX or not _NAME.fullmatch(name) or not path.is_file():
        expected = "a regular file NAME.py with a name of lower-case letters, digits and '_'"
        public = f"plug-in {path.name} is not a file."
        raise SettingsError(field="plug-in", value=path, expected=expected, public=public)
    digest = sha256_of(path)
    with _LOCK:
        if name not in _LOADED or _LOADED[name].digest != digest:
            _load(name, path, digest)
        _LOADED[name] = _LOADED[name]._replace(path=path.absolute())
    return name


def _load(name: str, path: Path, digest: str) -> None:
    _forget(name)
    try:
        _LOADED[name] = _Loaded(path, digest, _records_in(_executed(path, PREFIX + name)))
        for registry, record in _LOADED[name].records:
            registry.add(record)
    except FDGError:
        _forget(name)
        raise


def digest_of(name: str) -> str:
    """Return the SHA-256 of a file, in hexadecimal, as it was when it was loaded."""
    return _LOADED[name].digest


def files_behind(uses: Iterable[tuple[str, str]]) -> dict[str, Path]:
    """Return the loaded files that provide the records in ``uses``, by name; a use is a setting and a record's name."""
    records = [registry_of(setting).find(name) for setting, name in uses if registry_of(setting).origin(name) == FILE]
    return {
        name: loaded.path
        for name, loaded in sorted(_LOADED.items())
        if any(own is record for _, own in loaded.records for record in records)
    }


class _SourceLoader(SourceFileLoader):
    """Compiles a file each time: compiled code that Python keeps counts as current within one second of an edit."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def _executed(path: Path, module_name: str) -> ModuleType:
    spec = spec_from_file_location(module_name, path, loader=_SourceLoader(module_name, str(path)))
    assert spec is not None
    module = sys.modules[module_name] = module_from_spec(spec)  # before execution: dataclasses look it up there
    with plugin_code(f"plug-in file {path} cannot be loaded", f"plug-in file {path.name} cannot be loaded."):
        _SourceLoader(module_name, str(path)).exec_module(module)
    return module


def _records_in(module: ModuleType) -> tuple[tuple[Registry[Any], Any], ...]:
    each = ((registry, record) for registry in registries() for record in registry.records_in(module))
    found = tuple((registry, record) for registry, record in each if registry.own().get(record.name) is not record)
    if not found:
        expected = "a value of the type Method, Network, ImageFolderSpec, SegmentationSpec or Task"
        file = f"plug-in file {module.__name__.removeprefix(PREFIX)}{SUFFIX}"
        raise SettingsError(site=file, field="content", value=None, expected=expected, public=True)
    return found


def _forget(name: str) -> None:
    sys.modules.pop(PREFIX + name, None)
    for registry, record in _LOADED.pop(name).records if name in _LOADED else ():
        if any(known is record for known in registry.loaded()):
            registry.remove(record.name)
