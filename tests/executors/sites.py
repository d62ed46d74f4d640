# SPDX-License-Identifier: Apache-2.0
"""A site's folder with its executor, and the server's requests to it."""

import json
from pathlib import Path
from typing import Any

from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal
from nvflare.app_common.app_constant import AppConstants
from nvflare.fuel.utils import fobs

from fdg_plugins.executors import SiteExecutor
from fdg_plugins.executors.work import SiteTask
from fdg_plugins.messages import (
    HEADER_REASON,
    META_REQUEST,
    TASK_CENSUS,
    TASK_TRAIN,
    CensusReply,
    CensusRequest,
    TaskRequest,
)
from fdg_plugins.models import build_model
from fdg_plugins.settings.protocol import Protocol
from tests.flare_runner import run_task, site_context

PROTOCOL = Protocol(model="convnet", target="sketch", image_size=16, local_epochs=2, batch_size=8, rounds=10)


class Site:
    """One site's folder and its executor, which :meth:`restart` replaces as a new process would."""

    def __init__(self, name: str, folder: Path, **entry: Any) -> None:
        self.name = name
        self.folder = folder
        self.executor = SiteExecutor()
        self.entry = entry
        self.configure()

    @property
    def state(self) -> Path:
        return self.folder / "fdg_state" / "run-1"

    def restart(self) -> None:
        self.executor = SiteExecutor()

    def configure(self, **changes: Any) -> None:
        """Write the site's settings: those it began with, and ``changes``."""
        (self.folder / "local").mkdir(exist_ok=True)
        (self.folder / "local" / "fdg_site.json").write_text(json.dumps({self.name: {**self.entry, **changes}}))

    def context(self, job: str = "job") -> FLContext:
        return site_context(self.name, self.folder, job)

    def ask(self, task: str, shareable: Shareable, signal: Signal | None = None, job: str = "job") -> Shareable:
        """Return the reply as the server gets it: request and reply both cross the wire."""
        sent = fobs.loads(fobs.dumps(shareable))
        return fobs.loads(fobs.dumps(run_task(self.executor, task, sent, self.context(job), signal)))

    def count(self) -> CensusReply:
        reply = self.ask(TASK_CENSUS, census_request())
        assert reply.get_return_code() == ReturnCode.OK
        return CensusReply.model_validate(from_shareable(reply).data)


def census_request(protocol: Protocol = PROTOCOL, stand_in: Protocol = PROTOCOL) -> Shareable:
    protocols = {"protocol": protocol.model_dump(mode="json"), "stand_in_protocol": stand_in.model_dump(mode="json")}
    return DXO(DataKind.WEIGHTS, data={}, meta={META_REQUEST: {**protocols, "run": "run-1"}}).to_shareable()


def task_request(protocol: Protocol = PROTOCOL, *, round_number: Any = 0, stand_in: bool = False) -> Shareable:
    request = {"protocol": protocol.model_dump(mode="json"), "stand_in": stand_in, "run": "run-1"}
    state = build_model("convnet", 7, seed=protocol.seed).state_dict()
    shareable = DXO(DataKind.WEIGHTS, data=dict(state), meta={META_REQUEST: request}).to_shareable()
    shareable.set_header(AppConstants.CURRENT_ROUND, round_number)
    return shareable


def census_order(site: str = "photo") -> SiteTask:
    return SiteTask(TASK_CENSUS, site, CensusRequest(protocol=PROTOCOL, stand_in_protocol=PROTOCOL, run="run-1"))


def order(task: str = TASK_TRAIN, protocol: Protocol = PROTOCOL, site: str = "photo", classes: int = 7) -> SiteTask:
    """Return the order of another task of the same run, with a model."""
    state = build_model("convnet", classes, seed=0).state_dict()
    return SiteTask(task, site, TaskRequest(protocol=protocol, stand_in=False, run="run-1"), 2, dict(state))


def reason(reply: Shareable) -> str:
    assert reply.get_return_code() == ReturnCode.EXECUTION_EXCEPTION
    assert "DXO" not in reply
    return str(reply.get_header(HEADER_REASON))
