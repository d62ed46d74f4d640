# SPDX-License-Identifier: Apache-2.0
"""What the workflow does, round by round, with what a method shares beside the updates."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from nvflare.app_common.abstract.fl_model import FLModel

from fdg_plugins.controllers.messenger import Messenger
from fdg_plugins.errors import SettingsError
from fdg_plugins.filters import EXCHANGE_PROP, ExchangeRound
from fdg_plugins.messages import META_REPORT_CHECK
from fdg_plugins.objectives import Exchange, SiteFacts
from fdg_plugins.storage import save_tensors
from fdg_plugins.training.global_model import count_bytes

TENSORS_FILE = "server_state.safetensors"


class Exchanger:
    """The exchange of a run, or nothing if the method shares nothing: every call is then without effect."""

    def __init__(self, messenger: Messenger, exchange: Exchange | None) -> None:
        self.messenger = messenger
        self.exchange = exchange
        self._unchecked: tuple[str, str] | None = None

    def begin(
        self, round_number: int, state: Mapping[str, torch.Tensor], facts: Mapping[str, SiteFacts] | None = None
    ) -> None:
        """Start a round, counted from 0: drop the reports of the last one, and let the filters know.

        ``facts``: what is known of each site in it.
        """
        if self.exchange is not None:
            self.exchange.begin_round(state, facts)
            current = ExchangeRound(self.exchange, round_number)
            self.messenger.fl_ctx.set_prop(EXCHANGE_PROP, current, private=True, sticky=True)

    @property
    def sends(self) -> bool:
        """Whether something goes down beside the model in this round."""
        return self.bytes_down > 0

    @property
    def bytes_down(self) -> int:
        """Size of what goes down to one site."""
        return 0 if self.exchange is None else count_bytes(self.exchange.down())

    def take(self, task: str, site: str, answer: FLModel) -> tuple[str | None, int]:
        """Return why the report beside an answer was refused, None if it was not, and its size in bytes."""
        if self.exchange is None or self.exchange.phase != task:
            return None, 0
        check = (answer.meta or {}).get(META_REPORT_CHECK)
        if check is None:
            self._unchecked = (task, site)
            return None, 0
        return check["refused"], check["bytes"]

    def require_checks(self) -> None:
        """Raise ``SettingsError`` if an answer came whose report no filter had looked at."""
        if self._unchecked is not None:
            task, site = self._unchecked
            raise SettingsError(
                f"the answer of site {site} came without the check of its report: "
                f"the job's server config needs ExchangeCheckFilter for the task {task!r}."
            )

    def forget(self, sites: Iterable[str]) -> None:
        """Drop the reports of sites whose update was refused."""
        if self.exchange is not None:
            for site in sites:
                self.exchange.forget(site)

    def finish(self, task: str, sites: Iterable[str]) -> None:
        """Learn from the reports that came with the answers of ``sites`` to ``task``."""
        if self.exchange is not None and self.exchange.phase == task:
            self.exchange.finish(sorted(sites))

    def save(self, folder: Path, after_round: int) -> dict[str, Any] | None:
        """Write what it has learned as tensors; return the rest, as a value for JSON."""
        if self.exchange is None:
            return None
        save_tensors(folder / TENSORS_FILE, self.exchange.tensors(), {"after_round": str(after_round)})
        return self.exchange.state()
