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

from fdg_plugins.digests import sha256_of
from fdg_plugins.errors import FDGError, SettingsError
from fdg_plugins.plugins.kinds import registries, registry_of
from fdg_plugins.plugins.registry import FILE, Registry
from fdg_plugins.values import shorten

PREFIX = "fdg_custom_"
SUFFIX = ".py"

_NAME = re.compile(r"[a-z][a-z0-9_]{0,99}")
_LOCK = threading.RLock()  # the sites of a simulator are threads of one process
_LOADED: dict[str, "_Loaded"] = {}  # by the module's name


class _Loaded(NamedTuple):
    """A loaded file: its path, and the SHA-256 of its content."""

    path: Path
    digest: str


def load_files(names: Iterable[str], custom: Path) -> None:
    """Load the files ``<name>.py`` of a job's ``custom/`` folder, and add their records to the registries.

    Raises ``SettingsError`` for a file that does not exist, is a link, or cannot be loaded.
    """
    for name in names:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise SettingsError(
                f"plugins has {shorten(name)}, expected names of files: lower-case letters, digits and '_'.",
                public=True,
            )
        load_file(_file_of_job(name, custom))


def _file_of_job(name: str, custom: Path) -> Path:
    """Return the path of a file in a job's ``custom/`` folder; raise ``SettingsError`` if it is not there."""
    path = custom / f"{name}{SUFFIX}"
    if custom.is_symlink() or path.is_symlink() or not path.is_file():
        raise SettingsError(
            f"plug-in file {name}{SUFFIX} is not in the job's folder custom/, expected it there: a job that names "
            "plugins brings their code.",
            public=True,
        )
    return path


def load_file(path: Path) -> str:
    """Load a plug-in file and add its records to the registries; return its name, that of the file without ``.py``.

    A file whose content has been loaded before is not loaded again; another file of the same name replaces it and its
    records. Raises ``SettingsError`` for an invalid name, an unreadable or broken file, and one without records.
    """
    name = _name_of(path)
    digest = _digest_of(path)
    with _LOCK:
        if PREFIX + name not in _LOADED or _LOADED[PREFIX + name].digest != digest:
            _forget(PREFIX + name)
            _take_in(_load(path, PREFIX + name))
        _LOADED[PREFIX + name] = _Loaded(path.absolute(), digest)
    return name


def digest_of(name: str) -> str:
    """Return the SHA-256 of a loaded file, in hexadecimal, as it was when it was loaded."""
    return _LOADED[PREFIX + name].digest


def check_names_differ(paths: Iterable[Path]) -> None:
    """Raise ``SettingsError`` if two files have one name, of which the later would replace the earlier."""
    known: dict[str, Path] = {}
    for path in paths:
        other = known.setdefault(path.name, path)
        if other.absolute() != path.absolute():
            raise SettingsError(f"plug-in files {other} and {path} have the same name, expected different ones.")


def _name_of(path: Path) -> str:
    """Return the name of a file without ``.py``; raise ``SettingsError`` for an invalid one."""
    name = path.name.removesuffix(SUFFIX)
    if path.suffix != SUFFIX or not _NAME.fullmatch(name):
        raise SettingsError(f"plug-in {path} is not a file NAME.py with a name of lower-case letters, digits and '_'.")
    if path.exists() and not path.is_file():  # reading a pipe would wait for ever
        raise SettingsError(f"plug-in {path} is not a regular file.", public=f"plug-in {path.name} is not a file.")
    return name


def _digest_of(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal; raise ``SettingsError`` if it cannot be read."""
    try:
        return sha256_of(path)
    except OSError as error:
        raise SettingsError(
            f"plug-in file {path} cannot be read: {error.strerror}.", public=f"plug-in file {path.name} cannot be read."
        ) from error


def forget_files() -> None:
    """Forget every loaded file and its records."""
    with _LOCK:
        for module_name in list(_LOADED):
            _forget(module_name)


def files_behind(uses: Iterable[tuple[str, str]]) -> dict[str, Path]:
    """Return the loaded files that provide the records in ``uses``, by name; a use is a setting and a record's name."""
    found: dict[str, Path] = {}
    for setting, name in uses:
        registry = registry_of(setting)
        record = registry.find(name) if registry.origin(name) == FILE else None
        if record is not None:
            found.update(_files_with(record))
    return dict(sorted(found.items()))


def _files_with(record: Any) -> dict[str, Path]:
    """Return the loaded files, by name, among whose own values the record is."""
    return {
        module_name.removeprefix(PREFIX): loaded.path
        for module_name, loaded in _LOADED.items()
        if any(value is record for value in vars(sys.modules[module_name]).values())
    }


class _SourceLoader(SourceFileLoader):
    """Compiles a file each time it is loaded.

    Compiled code that Python keeps beside it counts as current if the file has the same size and second: an edit made
    at once would be missed. Nothing is written beside a user's file either.
    """

    def get_code(self, fullname: str) -> CodeType:
        """Return the code of the file as it is now."""
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def _load(path: Path, module_name: str) -> ModuleType:
    spec = spec_from_file_location(module_name, path, loader=_SourceLoader(module_name, str(path)))
    if spec is None or spec.loader is None:
        raise SettingsError(f"plug-in file {path} is not a Python module.")
    module = module_from_spec(spec)
    sys.modules[module_name] = module  # before execution, as the import system does: dataclasses look it up there
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # a script may end Python when it is imported
        del sys.modules[module_name]
        if isinstance(error, FDGError):
            raise
        end = missing_beside(error, path.parent)
        raise SettingsError(
            f"plug-in file {path} cannot be loaded: {type(error).__name__}: {error}{end}.",
            public=f"plug-in file {path.name} cannot be loaded: {type(error).__name__}.",
        ) from error
    return module


def missing_beside(error: BaseException | None, *folders: Path) -> str:
    """Return the end of a message about a plug-in file that imports a module from its own folder; else nothing."""
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return ""
    module = error.name.partition(".")[0]
    if not any((folder / module).is_dir() or (folder / f"{module}{SUFFIX}").is_file() for folder in folders):
        return ""
    return ", which is beside it: a plug-in is one file that imports what is installed, such as a package of your own"


def _take_in(module: ModuleType) -> None:
    """Add the records of a file to the registries; raise ``SettingsError`` if it has none, or a class without one."""
    found = [(registry, record) for registry in registries() for record in _new_records(registry, module)]
    if not found:
        del sys.modules[module.__name__]
        raise SettingsError(
            f"plug-in file {module.__name__.removeprefix(PREFIX)}{SUFFIX} brings nothing, expected values of the types "
            "Method, Network, ImageFolderSpec, SegmentationSpec or Task in the module: neither a class nor a list of "
            "them is one.",
            public=True,
        )
    try:
        _check_made(module)
        for registry, record in found:
            _check_brought_once(registry, record, module)
            registry.add(record)
    except FDGError:
        _forget(module.__name__)
        raise


def _check_made(module: ModuleType) -> None:
    """Raise ``SettingsError`` for a class of records of which the module has no value: it would not be found."""
    for registry in registries():
        for name in registry.unmade_in(module):
            raise SettingsError(
                f"plug-in file {module.__name__.removeprefix(PREFIX)}{SUFFIX} has the class {name} and no {name}(...) "
                f"as a value of the module, expected one: a class is no {registry.kind}.",
                public=True,
            )


def _check_brought_once(registry: Registry[Any], record: Any, module: ModuleType) -> None:
    """Raise ``SettingsError``, with both paths, if another record from a file has one of the names."""
    for name in record.names:
        other = registry.find(name) if registry.origin(name) == FILE else None
        if other is None or other == record:
            continue
        known = next(iter(_files_with(other).values()), module.__file__)
        by = f"{known} twice" if str(known) == module.__file__ else f"{known} and by {module.__file__}"
        raise SettingsError(f"{registry.kind} {name!r} is brought by {by}, expected one of them.")


def _new_records(registry: Registry[Any], module: ModuleType) -> list[Any]:
    """Return a module's records except those of this package that it imported."""
    own = registry.own()
    return [record for record in registry.records_in(module) if own.get(record.name) is not record]


def _forget(module_name: str) -> None:
    """Remove a file's module and records, if it was loaded."""
    module = sys.modules.pop(module_name, None)
    _LOADED.pop(module_name, None)
    if module is None:
        return
    for registry in registries():
        for name, record in [(one.name, one) for one in _new_records(registry, module)]:
            if registry.find(name) is record:
                registry.remove(name)
