# SPDX-License-Identifier: Apache-2.0
"""The components that a job of this package names, by exact class path, end and method.

This is the list that an operator is asked to allow. It follows from the records of methods and loads none of their
code, nor torch: a class path here is text, and the tests hold it against the classes. Exact paths only: FLARE reads
``fdg_plugins.`` as "every callable that can be reached below this package", which includes what a module happens to
import.
"""

from collections.abc import Iterable
from typing import NamedTuple

from fdg_plugins.plugins.composition import parse_method, published
from fdg_plugins.plugins.method import Method
from fdg_plugins.plugins.methods import METHODS
from fdg_plugins.plugins.target import public_path

SERVER = "server"
SITE = "site"
GAP = "gap"  # the one report that has filters of its own; what objectives report shares the other ones
_FILTERS = "fdg_plugins.filters"


class Component(NamedTuple):
    """One public component: its exact class path, the ends that build it, and the methods that need it (None: all)."""

    path: str
    ends: tuple[str, ...]
    methods: tuple[str, ...] | None = None


def components() -> list[Component]:
    """Return every component that jobs of this package name, and of plug-ins those that have been asked for.

    A job names what plug-ins bring by name, so that a participant who asks for nothing of one loads nothing of it.
    """
    records = METHODS.loaded()
    gaps = tuple(record.key for record in records if GAP in record.reports)
    exchanging = tuple(record.key for record in records if record.objective is not None and record.reports)
    return [
        Component("fdg_plugins.controllers.FederationController", (SERVER,)),
        Component("fdg_plugins.executors.SiteExecutor", (SITE,)),
        *_aggregators(records),
        Component(f"{_FILTERS}.DifferentialPrivacyFilter", (SITE,)),
        Component(f"{_FILTERS}.RoundedUpdateSendFilter", (SITE,)),
        Component(f"{_FILTERS}.RoundedUpdateReceiveFilter", (SERVER,)),
        Component(f"{_FILTERS}.GapReportFilter", (SITE,), gaps),
        Component(f"{_FILTERS}.GapCheckFilter", (SERVER,), gaps),
        Component(f"{_FILTERS}.ExchangeSendFilter", (SERVER,), exchanging),
        Component(f"{_FILTERS}.ExchangeReceiveFilter", (SITE,), exchanging),
        Component(f"{_FILTERS}.ExchangeReportFilter", (SITE,), exchanging),
        Component(f"{_FILTERS}.ExchangeCheckFilter", (SERVER,), exchanging),
        # The one component of FLARE's that this package's jobs name.
        Component("nvflare.app_opt.tracking.tb.tb_receiver.TBAnalyticsReceiver", (SERVER,)),
    ]


def filters_of(method: str) -> list[str]:
    """Return the names of the filters that only jobs of some methods have, ``method``, by its key, among them."""
    paths = [component.path for component in components() if method in (component.methods or ())]
    return [path.rpartition(".")[2] for path in paths if path.startswith(_FILTERS)]


def class_paths(end: str, methods: Iterable[str] = ()) -> list[str]:
    """Return the class paths that ``end`` needs for ``methods`` (none: all of them), in the order of the list.

    A method is a published one or a composition. Raises ``SettingsError`` for one that does not exist.
    """
    keys = {record.key for text in methods for record in parse_method(text).records}
    return [
        component.path
        for component in components()
        if end in component.ends and (not keys or component.methods is None or keys & set(component.methods))
    ]


def _aggregators(records: Iterable[Method]) -> list[Component]:
    """Return the aggregators, each with the methods that have it when they stand alone."""
    made = published()
    users: dict[str, list[str]] = {}
    for record in records:
        target = METHODS.get(made[record.key].aggregator).aggregator
        users.setdefault(public_path(target), []).append(record.key)
    return [Component(path, (SERVER,), tuple(keys)) for path, keys in users.items()]
