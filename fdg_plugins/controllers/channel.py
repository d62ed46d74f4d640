# SPDX-License-Identifier: Apache-2.0
"""Holds the reports that accompany the updates for one round, so that the workflow commits both together.

The server's filters validate the reports and attach the result to the answers. A refused answer leaves nothing here.
A refused report does not invalidate its update.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from nvflare.app_common.abstract.fl_model import FLModel

from fdg_plugins.controllers.messenger import Messenger
from fdg_plugins.errors import ContributionError, calling
from fdg_plugins.filters import EXCHANGE_PROP, ExchangeRound
from fdg_plugins.messages import META_CHECKED_REPORTS
from fdg_plugins.objectives import Exchange, SiteFacts
from fdg_plugins.plugins.reports import CheckedReports
from fdg_plugins.storage import save_tensors
from fdg_plugins.training.global_model import count_bytes

TENSORS_FILE = "server_state.safetensors"


class ReportChannel:
    """The method's exchange and this round's reports for it, by site; does nothing if ``exchange`` is None."""

    def __init__(self, messenger: Messenger, exchange: Exchange | None) -> None:
        self.messenger = messenger
        self.exchange = exchange
        self.reports: dict[str, Any] = {}
        self._current: ExchangeRound | None = None

    def begin(
        self, round_number: int, state: Mapping[str, torch.Tensor], facts: Mapping[str, SiteFacts] | None = None
    ) -> None:
        """Start round ``round_number``, counted from 0: drop the previous round's reports and notify the filters.

        ``facts``: what is known about each site in this round.
        """
        self.reports = {}
        if self.exchange is not None:
            self.exchange.begin_round(state, facts)
            self._current = ExchangeRound(self.exchange, round_number)
            self.messenger.fl_ctx.set_prop(EXCHANGE_PROP, self._current, private=True, sticky=True)

    def by_receipt(self, sites: tuple[str, ...]) -> dict[bool, tuple[str, ...]]:
        """Return those of ``sites`` that receive tensors in addition to the model in this round, and those that do not.

        A method may have something for some of them only, such as another site's report.
        """
        given = {site for site in sites if self.bytes_down((site,))}
        return {receives: tuple(site for site in sites if (site in given) == receives) for receives in (True, False)}

    def bytes_down(self, sites: Iterable[str]) -> int:
        """Return the size of the additional tensors sent to all of ``sites``, in bytes."""
        exchange = self.exchange
        return 0 if exchange is None else sum(count_bytes(exchange.broadcast(site)) for site in sites)

    @staticmethod
    def read(answer: FLModel) -> CheckedReports:
        """Return the reports that the server's filters validated in an answer, without keeping them."""
        return CheckedReports.of((answer.meta or {}).get(META_CHECKED_REPORTS))

    def take(self, task: str, site: str, checked: CheckedReports) -> None:
        """Keep a site's report until the end of the round; call this once its answer to ``task`` has been accepted.

        Raises ``ContributionError`` for a second report in the same round.
        """
        exchange = self._exchange_in(task)
        if exchange is None or exchange.report not in checked:
            return
        if site in self.reports:
            raise ContributionError(f"site {site}: sent a second report in the same round.")
        self.reports[site] = checked[exchange.report]

    def _exchange_in(self, task: str) -> Exchange | None:
        """Return the exchange if its reports come with the answers to ``task``."""
        return self.exchange if self.exchange is not None and self.exchange.phase == task else None

    def raise_if_broken(self) -> None:
        """Raise ``PartError`` if the exchange itself failed on a report."""
        if self._current is not None and self._current.broken is not None:
            raise self._current.broken

    def drop(self, site: str) -> None:
        """Exclude a site's report from the round; has no effect if there is none."""
        self.reports.pop(site, None)

    def commit(self, task: str) -> None:
        """Let the exchange learn from the remaining reports that came with the answers to ``task``."""
        if (exchange := self._exchange_in(task)) is not None:
            exchange.finish(self.reports)
            self.reports = {}

    def check_model(self, state: Mapping[str, torch.Tensor]) -> None:
        """Raise ``FDGError`` if the exchange could not begin a round with ``state``, the global model after a step."""
        if self.exchange is not None:
            with calling("exchange", self.exchange):
                self.exchange.read_model(state)

    def save(self, folder: Path, after_round: int) -> dict[str, Any] | None:
        """Write what the exchange publishes to ``folder``, the results; return its state, but tensors, as a JSON value.

        Its other tensors are in the checkpoint alone.
        """
        if self.exchange is None:
            return None
        if published := self.exchange.published():
            save_tensors(folder / TENSORS_FILE, published, {"after_round": str(after_round)})
        return self.exchange.state()
