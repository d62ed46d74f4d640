# SPDX-License-Identifier: Apache-2.0
"""A site that comes back: who is found, what is done in which order, and what happens when something is refused.

FLARE's engine is a stub here; that the real one has what is used is held by ``test_internals.py``.
"""

import logging
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest
from nvflare.apis.client import Client
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import RunProcessKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.job_def import Job, JobMetaKey
from nvflare.apis.shareable import ReturnCode, Shareable, make_reply
from nvflare.private.admin_defs import Message, MsgHeader
from nvflare.private.admin_defs import ReturnCode as AdminReturnCode
from nvflare.private.defs import ERROR_MSG_PREFIX
from nvflare.private.fed.server.server_commands import ServerCommands

from fdg_plugins.flare.rejoin import TOPIC, ReturningSites, welcome_returning_sites

JOB = "11111111-2222-3333-4444-555555555555"
WAIT_S = 120


def reply(body: Any = "OK", code: str = AdminReturnCode.OK) -> Message:
    message = Message(topic="reply", body=body)
    message.set_header(MsgHeader.RETURN_CODE, code)
    return message


class StubEngine:
    """The engine of the server's own process: one running job of photo and sketch, and what is asked of them."""

    def __init__(self) -> None:
        known = [Client("photo", "old"), Client("sketch", "s")]
        self.connected = [Client("photo", "new"), Client("sketch", "s")]
        self.job = Job(JOB, {}, {"app_server": ["server"], "app_site": ["photo", "sketch"]}, {}, 1)
        self.job.get_application = lambda app, fl_ctx: b"zip"
        self.job_runner = SimpleNamespace(
            running_jobs={JOB: self.job},
            resolve_client_outcome=lambda job, site: self.calls.append(("resolve", site)),
            _make_deploy_message=lambda job, data, app, fl_ctx: Message(topic="deploy", body=app),
        )
        self.run_processes = {JOB: {RunProcessKey.PARTICIPANTS: {client.token: client for client in known}}}
        self.server = SimpleNamespace(
            admin_server=SimpleNamespace(timeout=1.0, send_requests_and_get_reply_dict=self._deploy)
        )
        self.calls: list[tuple[str, Any]] = []
        self.told: Any = Shareable()
        self.resources: tuple[bool, str] = (True, "reserved")
        self.deployed: Message | None = reply()
        self.started: Message | None = reply()

    def new_context(self) -> FLContext:
        return FLContext()

    def get_clients(self) -> list[Client]:
        return self.connected

    def check_client_resources(self, job: Job, needed: dict[str, Any], fl_ctx: FLContext) -> dict[str, Any]:
        self.calls.append(("resources", needed))
        return dict.fromkeys(needed, self.resources)

    def send_app_command(self, job_id: str, topic: str, data: Any, timeout: float) -> Any:
        self.calls.append(("tell", (topic, set(self.tokens))))
        return self.told

    def _deploy(self, requests: dict[str, Message], timeout_secs: float) -> dict[str, Message | None]:
        self.calls.append(("deploy", {token: message.body for token, message in requests.items()}))
        return dict.fromkeys(requests, self.deployed)

    def start_client_job(self, job: Job, sites: dict[str, Any], fl_ctx: FLContext) -> list[Any]:
        self.calls.append(("start", {site: (info.app_name, info.token) for site, info in sites.items()}))
        return [SimpleNamespace(client_name=site, reply=self.started) for site in sites]

    def notify_dead_job(self, job_id: str, site: str, reason: str) -> None:
        self.calls.append(("dead", site))

    @property
    def tokens(self) -> list[str]:
        return list(self.run_processes[JOB][RunProcessKey.PARTICIPANTS])


@pytest.fixture
def engine() -> StubEngine:
    return StubEngine()


def heartbeat(component: ReturningSites, engine: Any) -> None:
    """Let a heartbeat come in, and wait for the thread that it may have started."""
    fl_ctx = FLContext()
    fl_ctx.set_prop("__engine__", engine, private=True)
    fl_ctx.get_engine = lambda: engine
    component.handle_event(EventType.CLIENT_HEARTBEAT_PROCESSED, fl_ctx)
    deadline = time.monotonic() + WAIT_S
    while any(thread.name == "fdg_rejoin" for thread in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_token_is_known_before_the_start(engine: StubEngine, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        heartbeat(ReturningSites(), engine)
    assert engine.calls == [
        ("resolve", "photo"),
        ("tell", (TOPIC, {"new", "s"})),
        ("resources", {"photo": {}}),
        ("deploy", {"new": "app_site"}),
        ("start", {"photo": ("app_site", "reserved")}),
    ]
    assert sorted(engine.tokens) == ["new", "s"]
    assert sorted(client["name"] for client in engine.job.meta[JobMetaKey.JOB_CLIENTS]) == ["photo", "sketch"]
    assert f"site photo is back: job {JOB} was started there again" in caplog.text


@pytest.mark.parametrize(
    ("attribute", "value", "reason", "is_final"),
    [
        ("told", None, "the job's process at the server did not answer", False),
        ("resources", (False, ""), "it lacks the resources (no answer)", False),
        ("deployed", None, "it did not answer the deployment", False),
        ("started", None, "it did not answer the start", False),
        ("told", make_reply(ReturnCode.BAD_REQUEST_DATA), "the job's workflow takes no site back.", True),
        ("deployed", reply("BYOC not permitted", AdminReturnCode.ERROR), "failed: BYOC not permitted", True),
        ("started", reply(f"{ERROR_MSG_PREFIX}: no launcher."), "its start failed: no launcher.", True),
    ],
)
def test_the_next_heartbeat_tries_again_unless_the_site_is_refused_for_good(
    engine: StubEngine, caplog: pytest.LogCaptureFixture, attribute: str, value: Any, reason: str, is_final: bool
) -> None:
    component, good = ReturningSites(), getattr(engine, attribute)
    setattr(engine, attribute, value)
    heartbeat(component, engine)
    assert reason in caplog.text
    assert (f"takes no further part in job {JOB}: " in caplog.text) is is_final
    assert (engine.calls[-1] == ("dead", "photo")) is is_final
    assert is_final or sorted(engine.tokens) == ["old", "s"], "all is as before"
    count = len(engine.calls)
    setattr(engine, attribute, good)
    heartbeat(component, engine)
    assert (len(engine.calls) == count) is is_final
    assert is_final or sorted(engine.tokens) == ["new", "s"]


def test_the_process_of_the_job_fetches_the_new_tokens_when_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ServerCommands, "app_cmd_registry", {})
    synced: list[bool] = []
    engine = SimpleNamespace(
        register_app_command=ServerCommands.register_app_command,
        sync_clients_from_main_process=lambda: synced.append(True),
    )
    welcome_returning_sites(engine)
    welcome_returning_sites(engine)  # a second job in the same process, as in the simulator
    function, _, _ = ServerCommands.get_app_command(TOPIC)
    fl_ctx = FLContext()
    fl_ctx.get_engine = lambda: engine
    assert function(TOPIC, {}, fl_ctx) == {}
    assert synced == [True]
