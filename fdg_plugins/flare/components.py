# SPDX-License-Identifier: Apache-2.0
"""The components that a job of this package names, by exact class path, end (server or site) and method.

This is the list that an operator is asked to allow. It is derived from the method records without loading their code or
torch: a class path here is text, and the tests compare it with the classes. All paths are exact, because FLARE reads
``fdg_plugins.`` as "every callable reachable below this package", which includes anything that a module imports.
"""

from collections.abc import Iterable
from typing import NamedTuple

from fdg_plugins.plugins.composition import parse_method, published
from fdg_plugins.plugins.method import Method
from fdg_plugins.plugins.methods import METHODS

SERVER = "server"
SITE = "site"
GAP = "gap"  # the only report with its own filters; the reports of objectives share the exchange filters
_FILTERS = "fdg_plugins.filters"


class Component(NamedTuple):
    """One public component: its exact class path, the ends that build it, and the methods that need it (None: all)."""

    path: str
    ends: tuple[str, ...]
    methods: tuple[str, ...] | None = None


def components() -> list[Component]:
    """Return every component that jobs of this package name, including those of plug-ins that have been loaded.

    A job refers to plug-in components by name, so a participant that uses no plug-in loads none.
    """
    records = METHODS.loaded()
    gaps = tuple(record.key for record in records if GAP in record.reports)
    exchanging = tuple(record.key for record in records if record.objective is not None and record.reports)
    return [
        Component("fdg_plugins.controllers.FederationController", (SERVER,)),
        Component("fdg_plugins.controllers.EvaluationController", (SERVER,)),
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
        # The only FLARE component that this package's jobs name.
        Component("nvflare.app_opt.tracking.tb.tb_receiver.TBAnalyticsReceiver", (SERVER,)),
    ]


def filters_of(method: str) -> list[str]:
    """Return the class names of the method-specific filters that jobs of ``method`` (a key) have."""
    paths = [component.path for component in components() if method in (component.methods or ())]
    return [path.rpartition(".")[2] for path in paths if path.startswith(_FILTERS)]


def class_paths(end: str, methods: Iterable[str] = ()) -> list[str]:
    """Return the class paths that ``end`` needs for ``methods`` (empty: all methods), in list order.

    A method is a published method or a composition. Raises ``SettingsError`` for an unknown method.
    """
    keys = {record.key for text in methods for record in parse_method(text).records}
    return [
        one.path
        for one in components()
        if end in one.ends and (not keys or one.methods is None or not keys.isdisjoint(one.methods))
    ]


def _aggregators(records: Iterable[Method]) -> list[Component]:
    """Return the aggregators, each with the methods that use it when they are not composed with others."""
    made = published()
    users: dict[str, list[str]] = {}
    for record in records:
        class_ = METHODS.get(made[record.key].aggregator).aggregator
        assert class_ is not None
        users.setdefault(f"{class_.__module__}.{class_.__qualname__}", []).append(record.key)
    return [Component(path, (SERVER,), tuple(keys)) for path, keys in users.items()]
