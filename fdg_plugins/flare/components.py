# SPDX-License-Identifier: Apache-2.0
"""The components that a job of this package names, by exact class path, end and method.

This is the list that an operator is asked to allow. It imports nothing: a class path here is text, and the tests
hold it against the classes. Exact paths only: FLARE reads ``fdg_plugins.`` as "every callable that can be reached
below this package", which includes what a module happens to import.
"""

from collections.abc import Iterable
from typing import NamedTuple

from fdg_plugins.errors import SettingsError

SERVER = "server"
SITE = "site"
_UNDER_FEDAVG = (
    *("feddim", "fediir", "fedprox", "fedsam", "mofedsam", "scaffold"),
    *("harmofl", "arfl", "am", "rsc", "fedsr"),
)
METHODS = ("fedavg", "fedga", "fedomg", "fednova", "fedcsa", *_UNDER_FEDAVG)
EXCHANGING = ("feddim", "fediir", "mofedsam", "scaffold")  # methods that send tensors beside model and update


class Component(NamedTuple):
    """One public component: its exact class path, the ends that build it, and the methods that need it."""

    path: str
    ends: tuple[str, ...]
    methods: tuple[str, ...] = METHODS


COMPONENTS = (
    Component("fdg_plugins.controllers.FederationController", (SERVER,)),
    Component("fdg_plugins.executors.SiteExecutor", (SITE,)),
    Component("fdg_plugins.aggregators.FedAvgAggregator", (SERVER,), ("fedavg", *_UNDER_FEDAVG)),
    Component("fdg_plugins.aggregators.FedGAAggregator", (SERVER,), ("fedga",)),
    Component("fdg_plugins.aggregators.FedOMGAggregator", (SERVER,), ("fedomg",)),
    Component("fdg_plugins.aggregators.FedNovaAggregator", (SERVER,), ("fednova",)),
    Component("fdg_plugins.aggregators.FedCSAAggregator", (SERVER,), ("fedcsa",)),
    Component("fdg_plugins.filters.DifferentialPrivacyFilter", (SITE,)),
    Component("fdg_plugins.filters.RoundedUpdateSendFilter", (SITE,)),
    Component("fdg_plugins.filters.RoundedUpdateReceiveFilter", (SERVER,)),
    Component("fdg_plugins.filters.GapReportFilter", (SITE,), ("fedga",)),
    Component("fdg_plugins.filters.GapCheckFilter", (SERVER,), ("fedga",)),
    Component("fdg_plugins.filters.ExchangeSendFilter", (SERVER,), EXCHANGING),
    Component("fdg_plugins.filters.ExchangeReceiveFilter", (SITE,), EXCHANGING),
    Component("fdg_plugins.filters.ExchangeReportFilter", (SITE,), EXCHANGING),
    Component("fdg_plugins.filters.ExchangeCheckFilter", (SERVER,), EXCHANGING),
    # The one component of FLARE's that this package's jobs name.
    Component("nvflare.app_opt.tracking.tb.tb_receiver.TBAnalyticsReceiver", (SERVER,)),
)


def class_paths(end: str, methods: Iterable[str] = ()) -> list[str]:
    """Return the class paths that ``end`` needs for ``methods`` (none: all of them), in the order of the list."""
    wanted = tuple(methods) or METHODS
    for method in wanted:
        if method not in METHODS:
            raise SettingsError(f"method is {method!r}, expected one of {', '.join(METHODS)}.")
    return [
        component.path for component in COMPONENTS if end in component.ends and set(wanted) & set(component.methods)
    ]
