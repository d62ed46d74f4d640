# SPDX-License-Identifier: Apache-2.0
"""Metrics for the operators of a federation, through FLARE's metrics collection, and by StatsD where they ask for it.

Every metric is published on FLARE's data bus, where any reporter of FLARE's that an operator has set up finds it. The
operator's environment can ask for one: ``FDG_STATSD=HOST:PORT`` starts FLARE's ``StatsDReporter``, for which the extra
``monitoring`` is needed. No job can set it, so no job can make a server or a site talk to anyone.
"""

import logging
import os
from collections.abc import Mapping
from functools import cache
from typing import Literal

from fdg_plugins.errors import FDGError, SettingsError, check_extra
from fdg_plugins.flare.internals import fetch

VARIABLE = "FDG_STATSD"

Values = Mapping[str, float | Mapping[str, float | None] | None]
"""Metrics by name: a number, or one for each site; None is not known, and left out."""


def statsd_address(environment: Mapping[str, str]) -> tuple[str, int] | None:
    """Return host and port in the operator's environment; None without them.

    Raises ``SettingsError`` for text that is not an address, and if the package that sends is not installed.
    """
    if not (text := environment.get(VARIABLE, "").strip()):
        return None
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdigit():
        raise SettingsError(field=VARIABLE, value=text, expected="HOST:PORT, as in localhost:9125")
    check_extra("datadog", VARIABLE, "monitoring")
    return host.strip("[]"), int(port)


def start_reporting() -> None:
    """Start the reporter that this process's environment asks for; raise as :func:`statsd_address` does."""
    if (address := statsd_address(os.environ)) is not None:
        _start_reporter(*address)


@cache
def _start_reporter(host: str, port: int) -> object:
    """Return FLARE's reporter for an address; it subscribes to the data bus, so a process has one for each."""
    from nvflare.fuel_opt.statsd.statsd_reporter import StatsDReporter  # imports the package, which is optional

    reporter: object = StatsDReporter(host=host, port=port)
    return reporter


def publish(kind: Literal["gauge", "counter"], values: Values, tags: Mapping[str, str]) -> None:
    """Publish metrics; ``tags`` become labels. A counter's values are added up, a gauge has the last one."""
    send, bus = fetch("publish_app_metrics"), fetch("DataBus")()
    for name, given in values.items():
        for site, value in (given if isinstance(given, Mapping) else {"": given}).items():
            if value is not None:
                send({"type": kind, name: float(value)}, "", {**tags, **({"site": site} if site else {})}, bus)


def publish_at_site(gauges: Values, tags: Mapping[str, str]) -> None:
    """Publish a site's metrics, and start the reporter that its operator asks for, of which no answer may depend."""
    try:
        start_reporting()
        publish("gauge", gauges, tags)
    except (FDGError, ImportError, OSError) as error:
        logging.getLogger(__name__).warning(f"metrics were not published: {type(error).__name__}: {error}")
