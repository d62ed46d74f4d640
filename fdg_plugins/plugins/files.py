# SPDX-License-Identifier: Apache-2.0
"""Plug-in files, single modules whose records are found by name like those of installed plug-ins; and who permits them.

Such a file is code. It comes in a job's own ``custom/`` folder, which FLARE accepts only from users who may bring code,
or is named in a command that a user runs on their own machine. It is loaded under the module name
``fdg_custom_<name>``, which cannot collide with any other import, and only from the given path; nothing is searched.

``allowed_plugins`` in ``local/fdg_site.json`` of a server or site contains distributions, as ``pip`` names them;
``"custom"`` stands for files that a job brings. Without the list, all installed plug-ins may be used, and all code that
FLARE lets a job bring. Permission is checked before any code of a plug-in is loaded.

A command line may name a network by the path of its factory, ``module:factory``. A file with the record of the network
is written and loaded: it names an installed module, or is a copy of a file of one's own with the record at its end. The
job carries it and names the network, so that nothing is imported by a path in a job's config.
"""

import re
import sys
import threading
from collections.abc import Collection, Iterable
from importlib.machinery import SourceFileLoader
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NamedTuple

from fdg_plugins.errors import FDGError, SettingsError
from fdg_plugins.plugins.registry import FILE, Registry, plugin_code, registries, registry_of
from fdg_plugins.storage import sha256_of

PREFIX = "fdg_custom_"
SUFFIX = ".py"
CUSTOM = "custom"
ALLOWED_PLUGINS = "allowed_plugins"
LONGEST = 90  # of a network's name, made of those of module and factory

Allowed = tuple[str, ...] | None

_NAME = re.compile(r"[a-z][a-z0-9_]{0,99}")
_MODULE = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*"
_FACTORY = re.compile(rf"({_MODULE}|[^:]+\.py):([A-Za-z_]\w*)")
_RECORD = """

# --- the record of the network, added by fdg_plugins ---
from fdg_plugins.models import network_of as _network_of  # noqa: E402

_NETWORK = _network_of({factory}, name="{name}")
"""
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


# --- what an operator permits ---


def admit(uses: Iterable[tuple[str, str]], files: Collection[str], custom: Path | None, allowed: Allowed) -> None:
    """Check that everything a job names may be used here, and load the plug-in files that it names.

    Args:
        uses: pairs of a setting and the name that the job gives it: ``("model", "resnet18")``.
        files: names of files in the job's ``custom/`` folder.
        custom: that folder; None: the job has none.
        allowed: the operator's list; None: all installed plug-ins may be used.

    Raises ``SettingsError``, with a public message, for what the operator does not allow or what does not exist.
    """
    for setting, name in uses:
        check_allowed(setting, name, allowed)
    if files and allowed is not None and CUSTOM not in allowed:
        expected = f"none: {ALLOWED_PLUGINS} of the operator lacks {CUSTOM!r}, which stands for files of a job"
        raise SettingsError(field="plugins", value=[*files], expected=expected, public=True)
    if files and custom is None:
        raise SettingsError("the job names plugins, but has no folder custom/ that brings their code.", public=True)
    if custom is not None:
        load_files(files, custom)


def check_allowed(setting: str, name: str, allowed: Allowed) -> None:
    """Raise ``SettingsError`` if ``name`` is of a plug-in that is not in ``allowed``; loads no plug-in."""
    origin = None if allowed is None else registry_of(setting).origin(name)
    if origin is not None and _plain(CUSTOM if origin == FILE else origin) not in map(_plain, allowed or ()):
        used, refused = f"{setting} {name!r} comes from", f"the operator does not allow here ({ALLOWED_PLUGINS})."
        raise SettingsError(f"{used} {origin}, which {refused}", public=f"{used} a plug-in that {refused}")


def _plain(distribution: str) -> str:  # as packaging compares names
    return re.sub(r"[-_.]+", "-", distribution).lower()


# --- a network by the path of its factory ---


def bring_factory(text: str, here: Path, folder: Path) -> tuple[Path, str]:
    """Write and load the plug-in file of the network that a factory builds; return the file, and the network's name.

    Args:
        text: ``"package.module:factory"`` or ``"file.py:factory"``; a factory is a function or a class.
        here: the folder in which a module that is not installed, and a relative path, are looked for.
        folder: an existing folder for the file, which must stay there until the job is written.

    Raises:
        SettingsError: for text in another form, and for a module or factory that is not there or cannot be loaded.
    """
    if (found := _FACTORY.fullmatch(text)) is None:
        expected = "the name of a network, package.module:factory or file.py:factory"
        raise SettingsError(field="model", value=text, expected=expected)
    module, factory = found.groups()
    is_file = module.endswith(SUFFIX)
    name = re.sub(r"[^a-z0-9]+", "_", f"{Path(module).stem if is_file else module}_{factory}".lower()).strip("_")
    name = (name if name[:1].isalpha() else f"net_{name}")[:LONGEST]
    path = folder / f"{name}{SUFFIX}"
    if not is_file and find_spec(module.partition(".")[0]) is not None:
        content, factory = '"""A network by the path of its factory."""', f'"{text}"'
    else:
        file = here / (module if is_file else f"{module.replace('.', '/')}{SUFFIX}")
        if not file.is_file():
            raise SettingsError(f"model names {module!r}, which is neither an installed module nor the file {file}.")
        content = file.read_text(encoding="utf-8")
    path.write_text(content + _RECORD.format(factory=factory, name=name), encoding="utf-8")
    load_file(path)
    return path, name
