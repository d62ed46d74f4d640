# SPDX-License-Identifier: Apache-2.0
"""The registry of methods: those of ``fdg_plugins.methods``, of installed plug-ins, and of plug-in files."""

from operator import attrgetter

from fdg_plugins.errors import SettingsError
from fdg_plugins.plugins.method import Method
from fdg_plugins.plugins.registry import FILE, Registry

REFERENCES = ("erm", "irm", "groupdro", "vrex", "iga", "fish", "fishr", "local")
"""The names of the references, which share commands and tables with methods: on pooled data, and each site alone."""


class Methods(Registry[Method]):
    """The registry of methods, whose names and aggregators tell runs apart in commands, records and tables."""

    def add(self, record: Method, origin: str = FILE) -> None:
        """Add a method; raise ``SettingsError`` for a name, or a name of an aggregator's class, that is taken."""
        if taken := {*record.names} & {*REFERENCES}:
            raise SettingsError(f"method {min(taken)!r} of {origin} has the name of a reference, expected another.")
        for other in self.loaded():
            name = getattr(other.aggregator, "__name__", None)
            if name == getattr(record.aggregator, "__name__", "") and other.aggregator is not record.aggregator:
                expected = f"another name than that of method {other.key!r}: the record of a run tells methods by it"
                raise SettingsError(field=f"aggregator of {record.key} ({origin})", value=name, expected=expected)
        super().add(record, origin)


METHODS = Methods("method", "fdg_plugins.methods", ["fdg_plugins.methods"], Method, order=attrgetter("rank"))
