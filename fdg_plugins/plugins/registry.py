# SPDX-License-Identifier: Apache-2.0
"""Records by name: those of this package, of installed plug-ins, and of plug-in files.

Records of this package are the module-level values of the registry's type in a package's modules. Installed plug-ins
announce theirs by Python entry points: the entry's name is the record's name, and its distribution is the origin. Only
a requested entry is loaded. Plug-in files are loaded by callers that may run code, and add their records.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pkgutil import iter_modules, resolve_name
from types import ModuleType
from typing import Any, Generic, Protocol, TypeVar

from fdg_plugins.errors import FDGError, SettingsError, did_you_mean, shorten


class Record(Protocol):
    """The name that identifies a record, which all records have; one with several also has ``names``."""

    @property
    def name(self) -> str: ...


R = TypeVar("R", bound=Record)

FILE = "a file at hand"


class Registry(Generic[R]):
    """All records of one kind.

    Args:
        kind: the kind, for messages: ``"method"``.
        group: the group of the entry points: ``"fdg_plugins.methods"``.
        modules: the modules of this package's own records; a package stands for all of its modules.
        type_: the type of the records.
        order: sorts the records of this package, equal keys by name; None: as declared.
    """

    def __init__(
        self, kind: str, group: str, modules: Iterable[str], type_: type[Any], order: Callable[[R], int] | None = None
    ) -> None:
        self.kind = kind
        self.group = group
        self.type = type_
        self._modules, self._order = tuple(modules), order
        self._own: dict[str, R] | None = None
        self._known: dict[str, tuple[R | None, str | None]] = {}  # record and origin (None: this package) by each name
        self._entries: dict[str, EntryPoint] | None = None
        self._lock = threading.RLock()  # the sites of a simulator are threads of one process

    def get(self, name: Any) -> R:
        """Return the record of that name; raise ``SettingsError``, with the nearest names, if there is none."""
        record = self.find(name)
        if record is None:
            unknown = f"{self.kind} {shorten(name)} is unknown here: no installed plug-in brings it"
            raise SettingsError(f"{unknown}; {did_you_mean(name, self.names())}", public=f"{unknown}.")
        return record

    def find(self, name: Any) -> R | None:
        """Return the record of that name, or None. A plug-in is loaded when its name is requested."""
        with self._lock:
            held = self._held(name) if isinstance(name, str) else None
            if held is not None and held[0] is None:
                self._load(self.entries()[name])
                held = self._known[name]
        return None if held is None else held[0]

    def loaded(self) -> list[R]:
        """Return this package's records and those added so far, sorted by name, without loading another plug-in."""
        own = self.own()
        others = {record.name: record for record, origin in self._known.values() if origin and record}
        return [*own.values(), *(others[name] for name in sorted(others))]

    def all(self) -> list[R]:
        """Return every record: this package's, those of all installed plug-ins, those of plug-in files."""
        for name in self.entries():
            self.find(name)
        return self.loaded()

    def load_usable(self) -> list[str]:
        """Load the installed plug-ins that can be loaded; return the error of each of the others."""
        problems = []
        for name in sorted(self.entries()):
            try:
                self.find(name)
            except SettingsError as error:
                problems.append(str(error))
        return problems

    def names(self) -> tuple[str, ...]:
        """Return all names, without loading a plug-in: this package's in their order, then the others', sorted."""
        own, others = self.own(), {record.name for record in self.loaded()} | self.entries().keys()
        return (*own, *sorted(others - own.keys()))

    def origin(self, name: str) -> str | None:
        """Return the distribution of that name, without loading it; None if the record is this package's or unknown."""
        return None if (held := self._held(name)) is None else held[1]

    def own(self) -> Mapping[str, R]:
        """Return this package's records by name, in their order."""
        if self._own is None:
            modules = [import_module(name) for name in self._modules]
            inner = [
                f"{one.__name__}.{part.name}" for one in modules for part in iter_modules(vars(one).get("__path__", []))
            ]
            found = [record for module in (*modules, *map(import_module, inner)) for record in self.records_in(module)]
            if (order := self._order) is not None:
                found.sort(key=lambda record: (order(record), record.name))
            self._known |= {name: (record, None) for record in found for name in names_of(record)}
            self._own = {record.name: record for record in found}
        return self._own

    def entries(self) -> dict[str, EntryPoint]:
        """Return the entry points of installed plug-ins by name; raise ``SettingsError`` if two share a name."""
        if self._entries is None:
            own = {name for record in self.own().values() for name in names_of(record)}
            found: dict[str, EntryPoint] = {}
            for entry in entry_points(group=self.group):
                if entry.name in own | found.keys():
                    other = found.get(entry.name)
                    raise self._clash(entry.name, _distribution(entry), None if other is None else _distribution(other))
                found[entry.name] = entry
            self._entries = found
        return self._entries

    def add(self, record: R, origin: str = FILE) -> None:
        """Add a record; raise ``SettingsError`` if another one, or an installed plug-in, has one of its names."""
        for name in names_of(record):
            if (held := self._held(name)) is not None and held not in ((None, origin), (record, origin)):
                raise self._clash(name, origin, held[1])
        self._known |= dict.fromkeys(names_of(record), (record, origin))

    def remove(self, name: str) -> None:
        """Remove the record of that name, if :meth:`add` added it."""
        self._known = {key: one for key, one in self._known.items() if not (one[1] and one[0] and one[0].name == name)}

    def records_in(self, module: ModuleType) -> list[R]:
        """Return the records among a module's own values, each once."""
        return list({id(value): value for value in vars(module).values() if isinstance(value, self.type)}.values())

    def _held(self, name: str) -> tuple[R | None, str | None] | None:
        """Return record and origin of a name; an installed plug-in that is not loaded has no record yet."""
        self.own()
        if name in self._known or name not in self.entries():
            return self._known.get(name)
        return (None, _distribution(self.entries()[name]))

    def _load(self, entry: EntryPoint) -> None:
        plugin = f"{self.kind} {entry.name!r} of plug-in {_distribution(entry)}"
        public = f"{self.kind} {entry.name!r} is brought by a plug-in that cannot be loaded here."
        with plugin_code(f"{plugin} cannot be loaded", public):
            record = entry.load()
        if not isinstance(record, self.type) or not {entry.name} <= {*names_of(record)} <= self.entries().keys():
            wanted = f"a {self.type.__name__} of this name, with an entry point for each of its names"
            raise SettingsError(field=plugin, value=record, expected=wanted)
        self.add(record, _distribution(entry))

    def _clash(self, name: str, one: str, other: str | None) -> SettingsError:
        both = f"{one} and by {other or 'fdg-plugins itself'}"
        return SettingsError(f"{self.kind} {name!r} is brought by {both}, expected one of them.")


@contextmanager
def plugin_code(what: str, public: str = "") -> Iterator[None]:
    """Raise ``SettingsError``, which begins with ``what``, for whatever the code of a plug-in raises.

    ``public``: the sentence for other participants; default: ``what`` and the type of the error.
    """
    try:
        yield
    except FDGError:
        raise
    except (Exception, SystemExit) as error:  # a script may end Python when it is imported
        kind = f"{what}: {type(error).__name__}"
        raise SettingsError(f"{kind}: {' '.join(str(error).split())}.", public=public or f"{kind}.") from error


def names_of(record: Record) -> tuple[str, ...]:
    """Return all names of a record; of a method its key, and its name as a part."""
    return getattr(record, "names", (record.name,))


def _distribution(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.value.partition(":")[0]


_METHODS = "fdg_plugins.plugins.methods:METHODS"
REGISTRY_OF: Mapping[str, str] = {
    **dict.fromkeys(("aggregator", "weighting", "objective"), _METHODS),
    "model": "fdg_plugins.models.networks:NETWORKS",
    "dataset": "fdg_plugins.data.catalogue:DATASETS",
    "task": "fdg_plugins.tasks.task:TASKS",
}
"""Where the names in a job are looked up, by the setting; imported at use: not every process needs networks."""


def registries() -> tuple[Registry[Any], ...]:
    """Return the registries of all kinds."""
    return tuple(map(resolve_name, dict.fromkeys(REGISTRY_OF.values())))


def registry_of(setting: str) -> Registry[Any]:
    """Return the registry for a setting's names: ``"model"``, ``"dataset"``, ``"objective"`` and others."""
    registry: Registry[Any] = resolve_name(REGISTRY_OF[setting])
    return registry
