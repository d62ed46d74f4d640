# SPDX-License-Identifier: Apache-2.0
"""Records by name: those of this package, of installed plug-ins, and of plug-in files.

Records of this package are the module-level values of the registry's type in a package's modules. Installed plug-ins
announce theirs by Python entry points: the entry's name is the record's name, and its distribution is the origin. Only
a requested entry is loaded. Plug-in files are loaded by callers that may run code, and add their records.
"""

import pkgutil
import threading
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Any, Generic, Protocol, TypeVar

from fdg_plugins.errors import FDGError, SettingsError
from fdg_plugins.naming import expected_one_of
from fdg_plugins.values import shorten


class Record(Protocol):
    """The attributes that all records have: the name that identifies the record, and all of its names."""

    @property
    def name(self) -> str:
        """The canonical name."""

    @property
    def names(self) -> tuple[str, ...]:
        """All names that refer to the record."""


R = TypeVar("R", bound=Record)

FILE = "a file at hand"


class Registry(Generic[R]):
    """All records of one kind.

    Args:
        kind: the kind, for messages: ``"method"``.
        group: the group of the entry points: ``"fdg_plugins.methods"``.
        modules: the modules of this package's own records; a package stands for all of its modules.
        type_: the type of the records.
    """

    def __init__(self, kind: str, group: str, modules: Iterable[str], type_: type[Any] | None = None) -> None:
        self.kind = kind
        self.group = group
        self._modules = tuple(modules)
        self._type = type_
        self._own: dict[str, R] | None = None
        self._own_names: dict[str, R] = {}
        self._brought: dict[str, R] = {}
        self._origins: dict[str, str] = {}
        self._entries: dict[str, EntryPoint] | None = None
        self._unusable: dict[str, str] = {}  # why, by the name of the entry
        self._lock = threading.RLock()  # the sites of a simulator are threads of one process

    def get(self, name: Any) -> R:
        """Return the record of that name; raise ``SettingsError``, with the nearest names, if there is none."""
        record = self.find(name)
        if record is None:
            raise SettingsError(
                f"{self.kind} {shorten(name)} is unknown, and no installed plug-in brings it; "
                f"{expected_one_of(name, self.names())}",
                public=self.missing(name),
            )
        return record

    def missing(self, name: Any) -> str:
        """Return the message for a name that is unknown here, without revealing the installed plug-ins."""
        return f"{self.kind} {shorten(name)} is unknown here: no installed plug-in brings it."

    def find(self, name: Any) -> R | None:
        """Return the record of that name, or None. A plug-in is loaded when its name is requested."""
        if not isinstance(name, str):
            return None
        if (record := self._own_by_name().get(name)) is not None:
            return record
        with self._lock:
            return self._brought_record(name)

    def _brought_record(self, name: str) -> R | None:
        """Return the record of that name that is not this package's, loading its plug-in; None if nothing brings it."""
        if name not in self._by_name(self._brought) and name in self.entries():
            self._load(self.entries()[name])
        return self._by_name(self._brought).get(name)

    def loaded(self) -> list[R]:
        """Return this package's records and those added so far, without loading another plug-in."""
        return [*self.own().values(), *(self._brought[name] for name in sorted(self._brought))]

    def all(self) -> list[R]:
        """Return every record: this package's, those of all installed plug-ins, those of plug-in files."""
        for name, entry in self.entries().items():
            if name not in self._by_name(self._brought):
                self._load(entry)
        return self.loaded()

    def load_usable(self) -> list[str]:
        """Load the installed plug-ins that can be loaded; return a sentence about each of the others, tried once."""
        for name in sorted(self.entries().keys() - self._unusable.keys()):
            try:
                self.find(name)
            except SettingsError as error:
                self._unusable[name] = str(error)
        return [self._unusable[name] for name in sorted(self._unusable)]

    def names(self) -> tuple[str, ...]:
        """Return all names, without loading a plug-in: this package's in their order, then the others', sorted."""
        return (*self.own(), *sorted({*self._brought, *self.entries()}))

    def origin(self, name: str) -> str | None:
        """Return the distribution of the record of that name; None if it is this package's or unknown.

        This loads no plug-in.
        """
        if name in self._own_by_name():
            return None
        record = self._by_name(self._brought).get(name)
        if record is not None:
            return self._origins[record.name]
        return _distribution(self.entries()[name]) if name in self.entries() else None

    def own(self) -> dict[str, R]:
        """Return this package's records by name: sorted by rank and name if they have a rank, else as declared."""
        if self._own is None:
            found = [record for module in self._imported() for record in self.records_in(module)]
            found.sort(key=lambda record: (record.rank, record.name) if hasattr(record, "rank") else (0, ""))
            self._own = {record.name: record for record in found}
            self._own_names = self._by_name(self._own)
        return self._own

    def _own_by_name(self) -> dict[str, R]:
        """Return this package's records by each of their names."""
        self.own()
        return self._own_names

    def entries(self) -> dict[str, EntryPoint]:
        """Return the entry points of installed plug-ins by name; raise ``SettingsError`` if two share a name."""
        if self._entries is None:
            found: dict[str, EntryPoint] = {}
            for entry in entry_points(group=self.group):
                self._check_announced_once(entry, found)
                found[entry.name] = entry
            self._entries = found  # not before, as the next request must meet a clash too
        return self._entries

    def _check_announced_once(self, entry: EntryPoint, earlier: Mapping[str, EntryPoint]) -> None:
        if entry.name in earlier or entry.name in self._own_by_name():
            other = earlier.get(entry.name)
            self._clash(entry.name, _distribution(entry), None if other is None else _distribution(other))

    def add(self, record: R, origin: str = FILE) -> None:
        """Add a record; raise ``SettingsError`` if one of its names is taken."""
        for name in record.names:
            known = self._by_name({**self.own(), **self._brought})
            if known.get(name, record) != record:
                self._clash(name, origin, self.origin(name))
            if name not in known:
                self._check_announced_by(name, origin)
        self._brought[record.name] = record
        self._origins[record.name] = origin

    def _check_announced_by(self, name: str, origin: str) -> None:
        """Raise ``SettingsError`` if a plug-in other than ``origin`` announces the name."""
        if name in self.entries() and _distribution(self.entries()[name]) != origin:
            self._clash(name, origin, _distribution(self.entries()[name]))

    def remove(self, name: str) -> None:
        """Remove a record that :meth:`add` added."""
        self._brought.pop(name, None)
        self._origins.pop(name, None)

    def refresh(self) -> None:
        """Forget the installed plug-ins; they are discovered again at the next request for a name."""
        with self._lock:
            for name in [name for name, origin in self._origins.items() if origin != FILE]:
                self.remove(name)
            self._entries = None
            self._unusable.clear()

    def records_in(self, module: ModuleType) -> list[R]:
        """Return the records among a module's own values, each once."""
        found: dict[int, R] = {}
        for value in vars(module).values():
            if self._type is not None and isinstance(value, self._type):
                found.setdefault(id(value), value)
        return list(found.values())

    def unmade_in(self, module: ModuleType) -> list[str]:
        """Return the names of a module's own classes of records of which it has no value, and that are not abstract."""
        records = self.records_in(module)
        classes = [one for one in vars(module).values() if isinstance(one, type) and issubclass(one, self._type or ())]
        return [
            one.__name__
            for one in classes
            if one.__module__ == module.__name__
            and not getattr(one, "__abstractmethods__", ())
            and not any(isinstance(record, one) for record in records)
        ]

    def _load(self, entry: EntryPoint) -> None:
        origin = _distribution(entry)
        record = self._record_of(entry, origin)
        if self._type is not None and not isinstance(record, self._type):
            raise SettingsError(
                f"{self.kind} {entry.name!r} of plug-in {origin} is a {type(record).__name__}, "
                f"expected a {self._type.__name__}."
            )
        self._check_names(entry, origin, record)
        self.add(record, origin)

    def _record_of(self, entry: EntryPoint, origin: str) -> Any:
        """Return what the entry point refers to; raise ``SettingsError`` if it cannot be loaded."""
        try:
            return entry.load()
        except FDGError:
            raise
        except (Exception, SystemExit) as error:  # a script may end Python when it is imported
            raise SettingsError(
                f"{self.kind} {entry.name!r} of plug-in {origin} cannot be loaded: {type(error).__name__}: {error}.",
                public=f"{self.kind} {entry.name!r} is brought by a plug-in that cannot be loaded here.",
            ) from error

    def _check_names(self, entry: EntryPoint, origin: str, record: R) -> None:
        """Raise ``SettingsError`` unless the plug-in announces exactly the names that its record has."""
        if entry.name not in record.names:
            raise SettingsError(
                f"plug-in {origin} announces the {self.kind} {entry.name!r}, but its record is called {record.name!r}."
            )
        for name in record.names:
            if name not in self.entries():
                raise SettingsError(
                    f"plug-in {origin} announces the {self.kind} {entry.name!r}, but not its other name {name!r}, "
                    "expected an entry point for each."
                )

    def _imported(self) -> Iterator[ModuleType]:
        for name in self._modules:
            module = import_module(name)
            yield module
            for inner in pkgutil.iter_modules(getattr(module, "__path__", ())):
                yield import_module(f"{name}.{inner.name}")

    def _clash(self, name: str, one: str, other: str | None) -> None:
        raise SettingsError(
            f"{self.kind} {name!r} is brought by {one} and by {other or 'fdg-plugins itself'}, expected one of them."
        )

    @staticmethod
    def _by_name(records: dict[str, R]) -> dict[str, R]:
        return {name: record for record in records.values() for name in record.names}


def _distribution(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.value.partition(":")[0]
