# SPDX-License-Identifier: Apache-2.0
"""Asking sites through FLARE's own handling of results: every site ends with an answer or with a reason."""

from collections.abc import Callable
from pathlib import Path

import pytest
from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType

from fdg_plugins.controllers.messenger import Aborted, Messenger, Request, StragglerTimeout
from fdg_plugins.errors import ContributionError
from fdg_plugins.messages import HEADER_NOT_FINITE, HEADER_REASON, TASK_EVALUATE, TASK_TRAIN
from tests.controllers.federation_stubs import BUSY, Engine, Line, context_of

Reply = Callable[[str, str, Shareable], Shareable | None]


class Asking(Messenger):
    """A messenger whose workflow is the test."""

    def run(self) -> None:
        """Do nothing."""


def answer(accuracy: float = 0.5) -> Shareable:
    return DXO(DataKind.METRICS, data={"accuracy": accuracy}).to_shareable()


def connect(folder: Path, reply: Reply) -> tuple[Asking, Line]:
    messenger, line = Asking(), Line(reply)
    messenger.set_communicator(line)
    messenger.abort_signal = Signal()
    messenger.start_controller(context_of(Engine(folder)))
    return messenger, line


def data() -> FLModel:
    return FLModel(params_type=ParamsType.FULL, params={}, current_round=0)


def ask(folder: Path, reply: Reply, *sites: str) -> tuple[dict[str, str], dict[str, FLModel]]:
    messenger, _ = connect(folder, reply)
    answers: dict[str, FLModel] = {}
    failures = messenger.ask([Request(TASK_EVALUATE, sites, data(), answers.__setitem__)], 9)
    return failures, answers


def test_all_requests_are_sent_before_any_answer_is_waited_for(tmp_path: Path) -> None:
    order: list[str] = []

    def answered(site: str, task: str, request: Shareable) -> Shareable:
        order.append(f"{len(line.sent)} {site}")
        return answer()

    messenger, line = connect(tmp_path, answered)
    requests = [
        Request(TASK_TRAIN, ("a", "b"), data(), lambda site, model: None),
        Request(TASK_EVALUATE, ("c",), data(), lambda site, model: None),
    ]
    assert messenger.ask(requests, 9) == {}
    assert line.sent == [(TASK_TRAIN, ("a", "b"), 9), (TASK_EVALUATE, ("c",), 9)]
    assert order == ["2 a", "2 b", "2 c"]


HOSTILE = "out of memory\n2030-01-01 INFO site honest: ruined it\x1b[31m\r\u202e" + "x" * 20_000_000


@pytest.mark.parametrize("reason", [HOSTILE, {"a": HOSTILE}])
def test_reason_becomes_one_short_line(tmp_path: Path, caplog: pytest.LogCaptureFixture, reason: object) -> None:
    reply = make_reply(ReturnCode.EXECUTION_EXCEPTION, {HEADER_REASON: reason})
    failures, _ = ask(tmp_path, lambda site, task, request: reply, "liar")
    assert failures["liar"].isprintable()
    assert len(failures["liar"]) < 460
    assert all(line.isprintable() and len(line) < 700 for line in caplog.text.splitlines())
    assert len(caplog.text.splitlines()) == 1


def test_an_answer_that_breaks_its_reader_or_is_no_answer_at_all_is_a_failure_too(tmp_path: Path) -> None:
    def break_on_a(site: str, model: FLModel) -> None:
        if site == "a":
            raise KeyError("unforeseen")

    messenger, _ = connect(tmp_path, lambda site, *_: Shareable() if site == "b" else answer())
    failures = messenger.ask([Request(TASK_TRAIN, ("a", "b", "c"), data(), break_on_a)], 9)
    assert failures["a"].startswith("its answer cannot be read: KeyError: ")
    assert failures["b"].startswith("its answer cannot be read: ValueError: ")
    assert failures["b"].endswith(".")
    assert "c" not in failures


def test_an_abort_ends_the_wait_at_once_and_names_those_who_were_waited_for(tmp_path: Path) -> None:
    asked: list[str] = []

    def reply(site: str, task: str, request: Shareable) -> Shareable:
        asked.append(site)
        if site == "b":
            messenger.abort_signal.trigger(True)
        return make_reply(ReturnCode.TASK_ABORTED) if site == "b" else answer()

    messenger, _ = connect(tmp_path, reply)
    with pytest.raises(Aborted, match=r"the job was aborted while it waited for c, d\.$"):
        messenger.ask([Request(TASK_TRAIN, ("a", "b", "c", "d"), data(), lambda site, model: None)], 9)
    assert asked == ["a", "b"]


def test_who_is_lost_too_late_or_diverged_is_told_as_such(tmp_path: Path) -> None:
    diverged = make_reply(ReturnCode.EXECUTION_EXCEPTION, {HEADER_REASON: "NaN.", HEADER_NOT_FINITE: True})
    replies = {"a": diverged, "lost": None, "slow": BUSY}
    messenger, line = connect(tmp_path, lambda site, *_: replies.get(site, answer()))
    line.lost.add("lost")
    request = Request(TASK_TRAIN, ("a", "b", "lost", "slow"), data(), lambda site, model: None)
    failures = messenger.ask([request], 9, StragglerTimeout(0.0, 1, TASK_TRAIN))
    assert failures.pop("slow") == "did not answer within 0 s after 1 others had."
    assert failures == {"a": "NaN.", "lost": "is lost: there is no sign of life from it."}
    assert messenger.not_finite == {"a"}


def test_patience_begins_with_enough_usable_answers_to_the_task_it_is_for(tmp_path: Path) -> None:
    looks = 0

    def reply(site: str, task: str, request: Shareable) -> Shareable:
        nonlocal looks
        looks += site == "slow"
        return BUSY if site == "slow" and looks < 100 else answer()

    def refuse(site: str, model: FLModel) -> None:
        if site == "b":
            raise ContributionError("site b: no.")

    messenger, _ = connect(tmp_path, reply)
    requests = [
        Request(TASK_TRAIN, ("a", "b", "slow"), data(), refuse),
        Request(TASK_EVALUATE, ("c", "d"), data(), lambda site, model: None),
    ]
    assert messenger.ask(requests, 9, StragglerTimeout(0.0, 3, TASK_TRAIN)) == {"b": "no."}
