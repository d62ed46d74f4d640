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
        if taken := {*record.names} & {*REFERENCES}:
            raise SettingsError(f"method {min(taken)!r} of {origin} has the name of a reference, expected another.")
        for other in self.loaded():
            same = _class_name(other) == _class_name(record) is not None
            if same and other.key != record.key and other.aggregator != record.aggregator:
                raise SettingsError(
                    f"aggregator {_class_name(record)} of method {record.key!r} ({origin}) is called as that of "
                    f"method {other.key!r}, expected another name: the record of a run tells methods apart by it."
                )
        super().add(record, origin)


def _class_name(record: Method) -> str | None:
    return None if record.aggregator is None else public_path(record.aggregator).rpartition(".")[2]


METHODS = Methods("method", "fdg_plugins.methods", ["fdg_plugins.methods"], Method)
