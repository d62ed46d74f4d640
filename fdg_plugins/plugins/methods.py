# SPDX-License-Identifier: Apache-2.0
"""The registry of methods: those of ``fdg_plugins.methods``, of installed plug-ins, and of plug-in files."""

from fdg_plugins.errors import SettingsError
from fdg_plugins.plugins.method import Method
from fdg_plugins.plugins.registry import FILE, Registry
from fdg_plugins.plugins.target import public_path

REFERENCES = ("erm", "irm", "groupdro", "vrex", "iga", "fish", "fishr")
"""The names of the centralised references, which share commands and tables with methods."""


class Methods(Registry[Method]):
    """The registry of methods, whose names and aggregators tell runs apart in commands, records and tables."""

    def add(self, record: Method, origin: str = FILE) -> None:
        """Add a method; raise ``SettingsError`` for a name, or a name of an aggregator's class, that is taken."""
        for name in record.names:
            if name in REFERENCES:
                raise SettingsError(
                    f"method {name!r} of {origin} has the name of a centralised reference, expected another."
                )
        self._check_aggregator(record, origin)
        super().add(record, origin)

    def _check_aggregator(self, record: Method, origin: str) -> None:
        """Raise ``SettingsError`` if another method's aggregator has a class of the same name: a record has no more."""
        if record.aggregator is None:
            return
        path = public_path(record.aggregator)
        for other in self.loaded():
            if other.key == record.key or other.aggregator is None:
                continue
            other_path = public_path(other.aggregator)
            if other_path != path and _class_name(other_path) == _class_name(path):
                raise SettingsError(
                    f"aggregator {_class_name(path)} of method {record.key!r} ({origin}) is called as that of method "
                    f"{other.key!r}, expected another name: the record of a run tells methods apart by it."
                )


def _class_name(path: str) -> str:
    return path.rpartition(".")[2]


METHODS = Methods("method", "fdg_plugins.methods", ["fdg_plugins.methods"], Method)
