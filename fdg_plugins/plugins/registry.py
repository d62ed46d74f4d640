# SPDX-License-Identifier: Apache-2.0
"""Records by name: those of this package, of installed plug-ins, and of files at hand.

Records of this package are the module-level values of the registry's type in a package's modules. Installed plug-ins
announce theirs by Python entry points: the entry's name is the record's, and its distribution is who brings it. Only
the entry that is asked for is loaded. Files at hand are loaded by whoever may bring code, and add their records.
"""

import pkgutil
import threading
from collections.abc import Iterable, Iterator
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Any, Generic, Protocol, TypeVar

from fdg_plugins.errors import FDGError, SettingsError
from fdg_plugins.naming import expected_one_of
from fdg_plugins.values import shorten


class Record(Protocol):
    """What all records have: the name by which they are found, and all names."""

    @property
    def name(self) -> str:
        """The one name that is written."""

    @property
    def names(self) -> tuple[str, ...]:
        """All names that are understood."""


R = TypeVar("R", bound=Record)

FILE = "a file at hand"


class Registry(Generic[R]):
    """All records of one kind.

    Args:
        kind: what they are, for messages: ``"method"``.
        group: the entry points' group: ``"fdg_plugins.methods"``.
        modules: where this package's own records are: modules, and packages with all of their modules.
        type_: the records' type.
    """

    def __init__(self, kind: str, group: str, modules: Iterable[str], type_: type[Any] | None = None) -> None:
        self.kind = kind
        self.group = group
        self._modules = tuple(modules)
        self._type = type_
        self._own: dict[str, R] | None = None
        self._brought: dict[str, R] = {}
        self._origins: dict[str, str] = {}
        self._entries: dict[str, EntryPoint] | None = None
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
        """Return the sentence on a name that is not known here, which does not tell others what is installed here."""
        return f"{self.kind} {shorten(name)} is unknown here: no installed plug-in brings it."

    def find(self, name: Any) -> R | None:
        """Return the record of that name, or None. A plug-in is loaded when it is asked for."""
        if not isinstance(name, str):
            return None
        if (record := self._by_name(self.own()).get(name)) is not None:
            return record
        with self._lock:
            if name not in self._by_name(self._brought) and name in self.entries():
                self._load(self.entries()[name])
            return self._by_name(self._brought).get(name)

    def loaded(self) -> list[R]:
        """Return this package's records and those that were brought so far, without loading another plug-in."""
        return [*self.own().values(), *(self._brought[name] for name in sorted(self._brought))]

    def all(self) -> list[R]:
        """Return every record: this package's, those of all installed plug-ins, those of files at hand."""
        for name, entry in self.entries().items():
            if name not in self._by_name(self._brought):
                self._load(entry)
        return self.loaded()

    def names(self) -> tuple[str, ...]:
        """Return all names, without loading a plug-in: this package's in their order, then the others', sorted."""
        return (*self.own(), *sorted({*self._brought, *self.entries()}))

    def origin(self, name: str) -> str | None:
        """Return the distribution that brings the record of that name; None: this package does, or nobody.

        Nothing of a plug-in is loaded to answer.
        """
        if name in self._by_name(self.own()):
            return None
        for record in self._brought.values():
            if name in record.names:
                return self._origins[record.name]
        return _distribution(self.entries()[name]) if name in self.entries() else None

    def own(self) -> dict[str, R]:
        """Return this package's records by name: by rank and name where they have a rank, else as they are declared."""
        if self._own is None:
            found = [record for module in self._imported() for record in self.records_in(module)]
            found.sort(key=lambda record: (record.rank, record.name) if hasattr(record, "rank") else (0, ""))
            self._own = {record.name: record for record in found}
        return self._own

    def entries(self) -> dict[str, EntryPoint]:
        """Return the entry points of installed plug-ins by name."""
        if self._entries is None:
            self._entries = {}
            for entry in entry_points(group=self.group):
                if entry.name in self._entries or entry.name in self._by_name(self.own()):
                    other = self._entries.get(entry.name)
                    self._clash(entry.name, _distribution(entry), None if other is None else _distribution(other))
                self._entries[entry.name] = entry
        return self._entries

    def add(self, record: R, origin: str = FILE) -> None:
        """Take a record in; raise ``SettingsError`` if one of its names is taken."""
        for name in record.names:
            taken = self._by_name({**self.own(), **self._brought}).get(name)
            if taken is not None and taken != record:
                self._clash(name, origin, self.origin(name))
            if taken is None and name in self.entries() and _distribution(self.entries()[name]) != origin:
                self._clash(name, origin, _distribution(self.entries()[name]))
        self._brought[record.name] = record
        self._origins[record.name] = origin

    def remove(self, name: str) -> None:
        """Forget a record that :meth:`add` took in."""
        self._brought.pop(name, None)
        self._origins.pop(name, None)

    def refresh(self) -> None:
        """Forget the installed plug-ins, and look for them anew when the next name is asked for."""
        with self._lock:
            for name in [name for name, origin in self._origins.items() if origin != FILE]:
                self.remove(name)
            self._entries = None

    def records_in(self, module: ModuleType) -> list[R]:
        """Return the records among a module's own values, each once."""
        found: dict[int, R] = {}
        for value in vars(module).values():
            if self._type is not None and isinstance(value, self._type):
                found.setdefault(id(value), value)
        return list(found.values())

    def _load(self, entry: EntryPoint) -> None:
        origin = _distribution(entry)
        try:
            record = entry.load()
        except FDGError:
            raise
        except Exception as error:
            raise SettingsError(
                f"{self.kind} {entry.name!r} of plug-in {origin} cannot be loaded: {type(error).__name__}: {error}.",
                public=f"{self.kind} {entry.name!r} is brought by a plug-in that cannot be loaded here.",
            ) from error
        if self._type is not None and not isinstance(record, self._type):
            raise SettingsError(
                f"{self.kind} {entry.name!r} of plug-in {origin} is a {type(record).__name__}, "
                f"expected a {self._type.__name__}."
            )
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
        self.add(record, origin)

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
