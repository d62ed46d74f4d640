# SPDX-License-Identifier: Apache-2.0
"""The classes of which methods consist, by name, and their construction from a name and settings.

What a plug-in's class does not keep of the contract is told when the class is first requested, in one sentence: its
settings share one flat space of names with those of the protocol, so one of a name that is taken would silently be
another's.
"""

import inspect
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, ClassVar, Literal, TypeVar, get_origin
from weakref import WeakKeyDictionary

from fdg_plugins.errors import FDGError, MissingPackageError, SettingsError
from fdg_plugins.naming import did_you_mean, expected_one_of
from fdg_plugins.plugins.method import Method
from fdg_plugins.plugins.methods import METHODS
from fdg_plugins.plugins.target import load_target
from fdg_plugins.values import check_depth, check_settings_known, shorten

Role = Literal["aggregator", "weighting", "objective"]
C = TypeVar("C")

_ROLES: tuple[Role, ...] = ("aggregator", "weighting", "objective")
_PROTOCOL = "fdg_plugins.settings.protocol:Protocol"  # loaded when a plug-in's class is, and not before
_OF_AGGREGATORS = ("weighting", "server_lr")  # settings that every aggregator has, or that stand for one
_OF_FILTERS = ("metric",)


class ClassesOf(Mapping[str, type[C]]):
    """The classes of one role by name: those that belong to no method, then that of every method that has one.

    A class is loaded when it is requested. An aggregator is named by its method's key, a weighting or objective by the
    method's name as a part; lookups accept either name.

    Args:
        role: the role of the classes in a method.
        base: the class of which each is a subclass.
        plain: classes that belong to no published method.
    """

    def __init__(self, role: Role, base: type[Any], plain: Mapping[str, type[C]] | None = None) -> None:
        self.role: Role = role
        self._base = base
        self._plain = dict(plain or {})
        self._kept: MutableMapping[type, Method] = WeakKeyDictionary()  # plug-ins' classes that keep the contract

    def __getitem__(self, name: str) -> type[C]:
        """Return the class of that name; raise ``KeyError`` if there is none.

        Raises ``SettingsError`` for a class of a plug-in that cannot be loaded or does not keep the contract.
        """
        if name in self._plain:
            return self._plain[name]
        method = METHODS.find(name)
        if method is None or getattr(method, self.role) is None:
            raise KeyError(name)
        return self._loaded(method)

    def _loaded(self, method: Method) -> type[C]:
        """Return the class of a method; raise ``SettingsError`` unless it is one of this role that can be made."""
        target = getattr(method, self.role)
        try:
            found = load_target(target)
        except FDGError:
            raise
        except (Exception, SystemExit) as error:  # a module of a plug-in may raise anything
            problem = f"{target!r}, which cannot be loaded ({type(error).__name__}: {error})"
            raise self._unusable(method, problem, "; a file gives the class itself") from error
        if not isinstance(found, type) or not issubclass(found, self._base):
            raise self._unusable(method, str(getattr(found, "__qualname__", shorten(found))))
        if missing := sorted(getattr(found, "__abstractmethods__", ())):
            problem = f"{found.__qualname__}, which does not define {' and '.join(missing)}"
            raise self._unusable(method, problem, f" with {' and '.join(missing)}")
        self._check_named(method, found)
        self._check_brought(method, found)
        loaded: type[C] = found
        return loaded

    def _check_brought(self, method: Method, found: type[Any]) -> None:
        """Raise ``SettingsError`` for a plug-in's class or record that breaks the contract; tests cover the others."""
        if METHODS.origin(method.key) is None or self._kept.get(found) is method:
            return
        complaint = next(_complaints(self.role, method, found), None)
        if complaint is not None:
            raise SettingsError(
                complaint,
                public=f"{self.role} {self.name_of(method)!r} is brought by a plug-in that cannot be used here.",
            )
        self._kept[found] = method

    def _check_named(self, method: Method, found: type[Any]) -> None:
        """Raise ``SettingsError`` for an objective without a name, or with a report that its method's record lacks."""
        if self.role != "objective":
            return
        if not isinstance(getattr(found, "name", None), str):
            raise self._unusable(method, f"{found.__qualname__}, which has no name", " with its name as a part")
        report = found.report
        if report is not None and report not in method.reports:
            there = ", ".join(method.reports) or "none"
            raise SettingsError(
                f"objective of method {method.key!r} reports {shorten(report)}, expected a Leaving of its record with "
                f"that report, which tells sites what they allow; there: {there}.",
                public=f"objective {self.name_of(method)!r} is brought by a plug-in that cannot be used here.",
            )

    def _unusable(self, method: Method, problem: str, hint: str = "") -> SettingsError:
        return SettingsError(
            f"{self.role} of method {method.key!r} is {problem}, expected a subclass of {self._base.__name__}{hint}.",
            public=f"{self.role} {self.name_of(method)!r} is brought by a plug-in that cannot be used here.",
        )

    def __contains__(self, name: object) -> bool:
        """Return whether the name is known, without loading its class."""
        method = None if name in self._plain else METHODS.find(name)
        return name in self._plain or (method is not None and getattr(method, self.role) is not None)

    def __iter__(self) -> Iterator[str]:
        """Yield every name once; of installed plug-ins, only those already requested, since no others are loaded."""
        yield from self._plain
        yield from (self.name_of(method) for method in METHODS.loaded() if getattr(method, self.role) is not None)

    def __len__(self) -> int:
        """Return the number of classes."""
        return sum(1 for _ in self)

    def name_of(self, method: Method) -> str:
        """Return the name of a method's class in this role."""
        return method.key if self.role == "aggregator" else method.part or method.key

    def make(self, spec: str | Mapping[str, Any]) -> C:
        """Return the object specified by ``spec``: a name, or ``{"name": ..., <its settings>}``.

        Raises ``SettingsError``, in one sentence, for an unknown name or setting; the class itself checks the values.
        """
        name, settings = read_spec(self.role, spec)
        class_ = self.known(name)
        check_settings_known(f"{self.role} {name!r}", sorted(settings, key=str), parameters_of(class_))
        try:
            return class_(**settings)
        except FDGError:
            raise
        except (Exception, SystemExit) as error:  # a constructor of a plug-in may raise anything
            raise SettingsError(
                f"{self.role} {name!r} cannot be made: {class_.__qualname__} raised {type(error).__name__}: {error}.",
                public=f"{self.role} {shorten(name)} cannot be made here.",
            ) from error

    def known(self, name: Any) -> type[C]:
        """Return the class of that name; raise ``SettingsError`` if there is none."""
        if not isinstance(name, str) or name not in self:
            raise SettingsError(
                f"{self.role} is {shorten(name)}, {expected_one_of(name, sorted(self))}",
                public=f"{self.role} {shorten(name)} is unknown here: no installed plug-in brings it.",
            )
        return self[name]


def parameters_of(class_: type[Any]) -> list[str]:
    """Return the names of the constructor's parameters: the settings of a class."""
    return [] if class_.__init__ is object.__init__ else list(inspect.signature(class_).parameters)


def read_spec(what: str, spec: Any) -> tuple[Any, dict[str, Any]]:
    """Return name and settings of ``spec``, a name or a mapping with one; raise ``SettingsError`` for anything else."""
    if not isinstance(spec, str | Mapping):
        raise SettingsError(f"{what} is {shorten(spec)}, expected a name or a mapping with a name.")
    check_depth(what, spec)
    settings = {"name": spec} if isinstance(spec, str) else dict(spec)
    return settings.pop("name", None), settings


# --- what plug-ins keep ---


def _complaints(role: Role, method: Method, found: type[Any]) -> Iterator[str]:
    """Yield a sentence about everything in a plug-in's record, and its class of one role, that would go wrong later."""
    whose = f"{role} {found.__qualname__} of method {method.key!r}"
    yield from _of_record(method)
    if role == "objective":
        yield from _of_objective(whose, method, found)
    yield from _of_parameters(role, whose, found)
    yield from _of_defaults(role, whose, method, found)


def _of_record(method: Method) -> Iterator[str]:
    """Yield a sentence about each setting that the record names and that neither protocol nor a class has."""
    fields = load_target(_PROTOCOL).model_fields
    of_defaults = (name for entry in method.defaults for name in entry.protocol)
    for what, names in (("protocol", method.protocol), ("defaults", of_defaults)):
        for name in names:
            if name not in fields:
                yield (
                    f"{what} of method {method.key!r} has {name!r}, expected settings of the protocol; "
                    f"{did_you_mean(name, fields)}"
                )
    own = _settings_of(method)
    for source in method.settings if own is not None else ():
        if source.name not in {*(own or ()), *fields, *_OF_AGGREGATORS, *_OF_FILTERS}:
            yield (
                f"settings of method {method.key!r} has the source of {source.name!r}, expected one of a setting that "
                f"it has; {did_you_mean(source.name, own or ())}"
            )


def _settings_of(method: Method) -> list[str] | None:
    """Return the settings of all classes of a method; None if one cannot be loaded, which is told where it is used."""
    try:
        classes = [load_target(getattr(method, role)) for role in _ROLES if getattr(method, role) is not None]
        return [name for class_ in classes for name in parameters_of(class_)]
    except (Exception, SystemExit):  # noqa: BLE001 - a module of a plug-in may raise anything
        return None


def _of_objective(whose: str, method: Method, found: type[Any]) -> Iterator[str]:
    if found.name != method.part_name:
        yield (
            f"{whose} has the name {shorten(found.name)}, expected {method.part_name!r}, which is the method's as a "
            "part."
        )
    for one in _own_classes(found):
        has_settings = "__init__" in vars(one) or any(map(_is_setting, inspect.get_annotations(one).values()))
        if has_settings and "__dataclass_fields__" not in vars(one):
            yield f"{whose}: {one.__qualname__} is no dataclass, expected one, whose fields are its settings."


def _is_setting(annotation: Any) -> bool:
    """Return whether an annotation of a class is that of a field, and not of the class itself."""
    if isinstance(annotation, str):
        return "ClassVar" not in annotation
    return annotation is not ClassVar and get_origin(annotation) is not ClassVar


def _own_classes(found: type[Any]) -> list[type[Any]]:
    """Return a class and those of its bases that are not this package's."""
    package = __name__.partition(".")[0]
    return [one for one in found.__mro__ if one is not object and one.__module__.partition(".")[0] != package]


def _of_parameters(role: Role, whose: str, found: type[Any]) -> Iterator[str]:
    """Yield a sentence about each parameter of the constructor that cannot be a setting."""
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = inspect.signature(found).parameters if parameters_of(found) else {}
    for parameter in parameters.values():
        if parameter.kind in several:
            yield f"{whose} takes {parameter}, expected parameters with names: they are its settings."
    owners = {
        **dict.fromkeys(_OF_AGGREGATORS if role != "aggregator" else (), "as one of the aggregator"),
        **dict.fromkeys(load_target(_PROTOCOL).model_fields, "as one of the protocol"),
        "name": "as the name of the class",
    }
    own = _own_classes(found)
    inherited = {name for one in found.__mro__ if one not in own for name in parameters_of(one)}
    for name in parameters:
        if name in owners and name not in inherited:
            yield f"{whose} has the setting {name!r}, which a job has {owners[name]}, expected another name."
        elif any(callable(vars(one).get(name)) for one in found.__mro__[1:]):
            yield f"{whose} has the setting {name!r}, which is a method of its class, expected another name."


def _of_defaults(role: Role, whose: str, method: Method, found: type[Any]) -> Iterator[str]:
    """Yield a sentence about what is wrong with the object that a class makes of its own defaults."""
    try:
        made = found()
    except MissingPackageError:
        return
    except SettingsError as error:
        yield f"{whose} cannot be made with its own defaults: {error}"
        return
    except (Exception, SystemExit):  # noqa: BLE001 - told where it is made with the settings of a job
        return
    if role != "aggregator":
        return
    for name in parameters_of(found):
        if not hasattr(made, name):
            yield f"{whose} does not keep its parameter {name!r}, expected an attribute of that name, a job's setting."
    weighting = getattr(made, "weighting", None)
    weighs_by = weighting.get("name") if isinstance(weighting, Mapping) else weighting
    if method.weighting is not None and weighs_by not in method.names:
        yield (
            f"{whose} weighs by {shorten(weighs_by)} and never calls the method's weighting, expected one that sets "
            f"its weighting to {method.part_name!r}, or a record without one of both."
        )
