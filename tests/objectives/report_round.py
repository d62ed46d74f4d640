# SPDX-License-Identifier: Apache-2.0
"""The workflow's part in a round of an exchange: it keeps what was read, and hands over the reports that count."""

from collections.abc import Iterable, Mapping
from typing import Any

from fdg_plugins.objectives import Exchange, SiteFacts
from fdg_plugins.objectives.exchange import Tensors


class ReportRound:
    """One round of ``exchange`` that starts from the global model ``state``."""

    def __init__(self, exchange: Exchange, state: Tensors, facts: Mapping[str, SiteFacts] | None = None) -> None:
        self.exchange = exchange
        self.reports: dict[str, Any] = {}
        exchange.begin_round(state, facts)

    def accept(self, site: str, report: Any, update: Tensors | None) -> None:
        """Read one site's report, and keep it."""
        self.reports[site] = self.exchange.read(site, report, update)

    def finish(self, sites: Iterable[str]) -> None:
        """Let the exchange learn from the reports of ``sites``."""
        self.exchange.finish({site: self.reports[site] for site in sites if site in self.reports})
