# SPDX-License-Identifier: Apache-2.0
"""The classes of which methods consist, by name, and their construction from a name and settings."""

import inspect
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from fdg_plugins.errors import SettingsError, check_settings_known, did_you_mean, read_like, shorten
from fdg_plugins.plugins.method import Method, Role
from fdg_plugins.plugins.methods import METHODS

C = TypeVar("C")


class ClassesOf(Mapping[str, type[C]]):
    """The classes of one role by name: those that belong to no method, then that of every method that has one.

    An aggregator is named by its method's key, a weighting or objective by the method's name as a part; lookups accept
    either name.

    Args:
        role: of the classes in a method.
        plain: classes that belong to no published method.
    """

    def __init__(self, role: Role, plain: Mapping[str, type[C]] | None = None) -> None:
        self.role: Role = role
        self._plain = dict(plain or {})

    def __getitem__(self, name: str) -> type[C]:
        """Return the class of that name; raise ``KeyError`` if there is none.

        Raises ``SettingsError`` for an objective that reports what the record of its method does not declare: sites
        allow reports by that declaration.
        """
        if name in self._plain:
            return self._plain[name]
        method = METHODS.find(name)
        if method is None or (found := method.class_of(self.role)) is None:
            raise KeyError(name)
        report = found.report if self.role == "objective" else None
        if report is not None and report not in method.reports:
            whose = f"objective {self._name_of(method)!r}"
            expected = "one of which the method's record has a Leaving"
            public = f"{whose} is brought by a plug-in that cannot be used here."
            raise SettingsError(site=whose, field="report", value=report, expected=expected, public=public)
        return found

    def __iter__(self) -> Iterator[str]:
        """Yield every name once; of installed plug-ins, only those already requested, since no others are loaded."""
        yield from self._plain
        yield from (self._name_of(method) for method in METHODS.loaded() if method.class_of(self.role) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _name_of(self, method: Method) -> str:
        return method.key if self.role == "aggregator" else method.part_name

    def known(self, name: Any) -> type[C]:
        """Return the class of that name; raise ``SettingsError`` if there is none."""
        if name not in self:
            public = f"{self.role} {shorten(name)} is unknown here: no installed plug-in brings it."
            raise SettingsError(f"{self.role} is {shorten(name)}, {did_you_mean(name, sorted(self))}", public=public)
        return self[name]

    def settings_of(self, name: Any) -> list[str]:
        """Return the names of a class's settings, in order."""
        return parameters_of(self.known(name))

    def read(self, name: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return the ``settings`` of a class; text, as from the environment, becomes the type of a setting's default.

        Raises ``SettingsError`` for an unknown name or setting.
        """
        check_settings_known(f"{self.role} {name!r}", sorted(settings, key=str), self.settings_of(name))
        parameters = inspect.signature(self.known(name)).parameters
        return {setting: read_like(value, parameters[setting].default) for setting, value in settings.items()}

    def make(self, spec: str | Mapping[str, Any]) -> C:
        """Return the object specified by ``spec``: a name, or ``{"name": ..., <its settings>}``."""
        name, settings = read_spec(self.role, spec)
        class_, known = self.known(name), self.settings_of(name)
        check_settings_known(f"{self.role} {name!r}", sorted(settings, key=str), known)
        parameters = inspect.signature(class_).parameters if known else {}
        for one, parameter in parameters.items():
            if one not in settings and parameter.default is parameter.empty:
                raise SettingsError(f"{self.role} {name!r} has no default of its setting {one!r}.")
        return class_(**settings)


def parameters_of(class_: type[Any]) -> list[str]:
    """Return the names of the constructor's parameters: the settings of a class."""
    return [] if class_.__init__ is object.__init__ else list(inspect.signature(class_).parameters)


def read_spec(what: str, spec: Any) -> tuple[str, dict[str, Any]]:
    """Return name and settings of ``spec``, a name or a mapping with one; raise ``SettingsError`` for anything else."""
    given = spec if isinstance(spec, Mapping) else {"name": spec}
    if not isinstance(name := given.get("name"), str):
        raise SettingsError(field=what, value=spec, expected="a name or a mapping with a name")
    return name, {key: value for key, value in given.items() if key != "name"}


def name_in(spec: Any) -> str | None:
    """Return the name in ``spec``, a name or a mapping with one; None if it has none."""
    name = spec.get("name") if isinstance(spec, Mapping) else spec
    return name if isinstance(name, str) else None
