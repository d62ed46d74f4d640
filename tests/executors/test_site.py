# SPDX-License-Identifier: Apache-2.0
"""The executor as FLARE calls it: each task answered, each error with its reason, each process as good as another."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import EventScope, FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal
from nvflare.app_common.app_constant import AppConstants
from nvflare.fuel.utils import fobs

from fdg_plugins.data.stand_in import ensure_stand_in
from fdg_plugins.executors import SiteExecutor
from fdg_plugins.executors.work import CENSUS_FILE
from fdg_plugins.messages import (
    HEADER_REASON,
    META_REPORT,
    META_REQUEST,
    META_SAMPLES,
    TASK_CENSUS,
    TASK_EVALUATE,
    TASK_PROBE,
    TASK_STATISTICS,
    TASK_TRAIN,
    CensusReply,
    Precision,
    TrainReport,
)
from fdg_plugins.models import build_model
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.testing.inputs import same_bits
from fdg_plugins.training.precision import Suited
from fdg_plugins.training.session import SiteSession
from tests.flare_runner import SiteWorkspace, run_task, site_context

PROTOCOL = Protocol(model="convnet", target="sketch", image_size=16, local_epochs=2, batch_size=8, rounds=10)
LOOKS_OF_A_TRAINING = 1 + 2 * 3 + 1  # one batch before, three in each of two epochs, one after

pytestmark = pytest.mark.usefixtures("wire")


class CountedSignal(Signal):
    """A signal that is given from the look after ``looks`` looks on, and counts all of them."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self.looks = looks
        self.count = 0

    @property
    def triggered(self) -> bool:
        self.count += 1
        return self.count > self.looks

    @triggered.setter
    def triggered(self, value: bool) -> None:
        pass


class Site:
    """One site's folder and its executor, which :meth:`restart` replaces as a new process would."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        self.executor = SiteExecutor()

    def restart(self) -> None:
        self.executor = SiteExecutor()

    def configure(self, **entry: Any) -> None:
        (self.folder / "local").mkdir(exist_ok=True)
        (self.folder / "local" / "fdg_site.json").write_text(json.dumps({self.name: entry}))

    def context(self, job: str = "job") -> FLContext:
        return site_context(self.name, SiteWorkspace(self.folder), job)

    def ask(self, task: str, shareable: Shareable, signal: Signal | None = None, job: str = "job") -> Shareable:
        """Return the reply as the server gets it: request and reply both cross the wire."""
        sent = fobs.loads(fobs.dumps(shareable))
        return fobs.loads(fobs.dumps(run_task(self.executor, task, sent, self.context(job), signal)))


@pytest.fixture
def make_site(tmp_path: Path, data_root: Path) -> Callable[..., Site]:
    def make(name: str = "photo", root: Path = data_root) -> Site:
        folder = tmp_path / f"site-{name}"
        folder.mkdir()
        site = Site(name, folder)
        site.configure(data_root=str(root), device="cpu")
        return site

    return make


@pytest.fixture
def photo(make_site: Callable[..., Site]) -> Site:
    return make_site()


def census_request(protocol: Protocol = PROTOCOL, stand_in: Protocol = PROTOCOL) -> Shareable:
    request = {
        "protocol": protocol.model_dump(mode="json"),
        "stand_in_protocol": stand_in.model_dump(mode="json"),
        "run": "run-1",
    }
    return DXO(DataKind.WEIGHTS, data={}, meta={META_REQUEST: request}).to_shareable()


def task_request(
    protocol: Protocol = PROTOCOL, *, classes: int = 7, round_number: int = 0, stand_in: bool = False
) -> Shareable:
    request = {"protocol": protocol.model_dump(mode="json"), "stand_in": stand_in, "run": "run-1"}
    state = build_model("convnet", classes, seed=protocol.seed).state_dict()
    shareable = DXO(DataKind.WEIGHTS, data=dict(state), meta={META_REQUEST: request}).to_shareable()
    shareable.set_header(AppConstants.CURRENT_ROUND, round_number)
    return shareable


def reason(reply: Shareable) -> str:
    assert reply.get_return_code() == ReturnCode.EXECUTION_EXCEPTION
    text = reply.get_header(HEADER_REASON)
    assert isinstance(text, str)
    assert text
    assert "\n" not in text
    return text


def number_in(text: str) -> str:
    """Return the id under which the site's log says what a reason does not."""
    (number,) = re.findall(r"details in the site's own log under ([0-9a-f]{8})\)\.$", text)
    return number


def counted(site: Site) -> CensusReply:
    reply = site.ask(TASK_CENSUS, census_request())
    assert reply.get_return_code() == ReturnCode.OK
    dxo = from_shareable(reply)
    assert dxo.data_kind == DataKind.METRICS
    return CensusReply.model_validate(dxo.data)


# --- the tasks --------------------------------------------------------------------------------------


def test_training_is_answered_with_update_report_and_number_of_samples(photo: Site) -> None:
    counted(photo)
    reply = photo.ask(TASK_TRAIN, task_request(round_number=9))
    assert reply.get_return_code() == ReturnCode.OK
    dxo = from_shareable(reply)
    assert dxo.data_kind == DataKind.WEIGHT_DIFF
    expected = build_model("convnet", 7, seed=0).state_dict()
    assert {name: value.shape for name, value in dxo.data.items()} == {n: v.shape for n, v in expected.items()}
    assert int(dxo.data["extractor.1.num_batches_tracked"]) == 6
    report = TrainReport.model_validate(dxo.meta[META_REPORT])
    assert report.received is not None
    assert (report.domain, report.steps, report.received.split) == ("photo", 6, "validation")
    assert report.learning_rate == pytest.approx(0.1 * PROTOCOL.learning_rate), (
        "the header names the tenth of ten rounds"
    )
    assert dxo.meta[META_SAMPLES] == 21
    assert dxo.meta[MetaKey.INITIAL_METRICS] == {"val_accuracy": report.received.value("accuracy")}


def test_a_new_process_after_the_census_trains_to_the_same_bits(photo: Site) -> None:
    counted(photo)
    first = from_shareable(photo.ask(TASK_TRAIN, task_request(round_number=2)))
    photo.restart()
    torch.rand(5)
    second = from_shareable(photo.ask(TASK_TRAIN, task_request(round_number=2)))
    assert first.data.keys() == second.data.keys()
    assert same_bits(first.data, second.data)
    one, other = (TrainReport.model_validate(dxo.meta[META_REPORT]) for dxo in (first, second))
    assert one.model_copy(update={"seconds": 0.0}) == other.model_copy(update={"seconds": 0.0})


def test_on_the_stand_in_its_own_protocol_counts(tmp_path: Path, photo: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FDG_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(
        "fdg_plugins.data.domains.ensure_stand_in", lambda *place: ensure_stand_in(*place, images_per_class=3)
    )
    photo.configure(device="cpu")
    drawn = PROTOCOL.model_copy(update={"seed": 4})
    reply = CensusReply.model_validate(from_shareable(photo.ask(TASK_CENSUS, census_request(stand_in=drawn))).data)
    assert (reply.stand_in, reply.num_test, reply.split) == (True, 21, "pacs/90-10@4")
    assert any((tmp_path / "cache").iterdir())
    accepted = photo.ask(TASK_EVALUATE, task_request(drawn, stand_in=True))
    assert accepted.get_return_code() == ReturnCode.OK
    assert reason(photo.ask(TASK_EVALUATE, task_request(drawn))).startswith(
        "the data changed between the real data set"
    )


# --- abort ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("looks", [0, 1, 3, 5, LOOKS_OF_A_TRAINING - 1])
def test_an_aborted_training_ends_at_the_very_next_batch(photo: Site, looks: int) -> None:
    counted(photo)
    signal = CountedSignal(looks)
    reply = photo.ask(TASK_TRAIN, task_request(), signal)
    assert reply.get_return_code() == ReturnCode.TASK_ABORTED
    assert signal.count == looks + 1


# --- errors -----------------------------------------------------------------------------------------


def test_a_site_that_chose_its_precision_and_then_moved_to_other_hardware_says_so(
    photo: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    protocol = PROTOCOL.model_copy(update={"precision": "auto"})

    def move_to(precision: Precision) -> None:
        photo.restart()
        monkeypatch.setattr("fdg_plugins.training.precision.suited_precision", lambda device: Suited(precision, ""))

    move_to("bfloat16")
    told = from_shareable(photo.ask(TASK_CENSUS, census_request(protocol))).data
    assert told["precision"] == "bfloat16"
    move_to("float32")
    assert reason(photo.ask(TASK_TRAIN, task_request(protocol))) == (
        "precision 'auto' means float32 on this machine, but meant bfloat16 in the census."
    )
    move_to("bfloat16")
    assert photo.ask(TASK_EVALUATE, task_request(protocol)).get_return_code() == ReturnCode.OK


NO_CENSUS = "the site has not answered the census of this job, and does no other task of it before."


@pytest.mark.parametrize("task", [TASK_STATISTICS, TASK_PROBE, TASK_TRAIN, TASK_EVALUATE])
def test_a_task_before_the_census_of_its_own_job_is_refused(photo: Site, task: str) -> None:
    assert reason(photo.ask(task, task_request())) == NO_CENSUS
    counted(photo)
    assert reason(photo.ask(task, task_request(), job="another")) == NO_CENSUS, "of the same run, which goes on in it"
    photo.restart()
    assert photo.ask(TASK_EVALUATE, task_request()).get_return_code() == ReturnCode.OK, "a site that comes back"
    photo.ask(TASK_CENSUS, census_request(), job="another")
    assert photo.ask(TASK_EVALUATE, task_request(), job="another").get_return_code() == ReturnCode.OK
    assert reason(photo.ask(task, task_request())) == NO_CENSUS


@pytest.mark.parametrize(
    ("name", "role", "task", "text"),
    [
        ("photo", "held_out", TASK_TRAIN, "the site accepts only the role 'held_out' and never trains."),
        ("photo", "held_out", TASK_PROBE, "the site accepts only the role 'held_out' and never trains."),
        ("photo", "held_out", TASK_STATISTICS, "the site accepts only the role 'held_out' and never trains."),
        (
            "photo",
            "held_out",
            TASK_EVALUATE,
            "the site accepts only the role 'held_out' and is not judged as a source.",
        ),
        ("sketch", "source", TASK_EVALUATE, "the site accepts only the role 'source' and is not judged as held out."),
    ],
)
def test_a_site_does_no_task_of_a_role_that_its_operator_refuses(
    make_site: Callable[..., Site], data_root: Path, name: str, role: str, task: str, text: str
) -> None:
    site = make_site(name)
    site.configure(data_root=str(data_root), device="cpu", role=role)
    counted(site)
    assert reason(site.ask(task, task_request())) == text


@pytest.mark.parametrize(
    ("error", "text"),
    [(RuntimeError("first line\nsecond line"), "RuntimeError: first line"), (KeyError(), "KeyError: no message")],
)
def test_an_unexpected_error_is_answered_with_its_kind_and_logged_with_its_first_line(
    photo: Site,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    text: str,
) -> None:
    def fail(*_: object) -> None:
        raise error

    counted(photo)
    monkeypatch.setattr(SiteSession, "train", fail)
    told = reason(photo.ask(TASK_TRAIN, task_request()))
    number = number_in(told)
    assert told == f"unforeseen error ({type(error).__name__}) (details in the site's own log under {number})."
    assert f"{text} (in fail, test_site.py:" in caplog.text
    assert f") [{number}]" in caplog.text
    monkeypatch.undo()
    monkeypatch.setenv("FDG_ISOLATE", "no")
    assert photo.ask(TASK_EVALUATE, task_request()).get_return_code() == ReturnCode.OK, "the site must go on"


# --- end of a run -----------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [-1, PROTOCOL.rounds + 1, "1", True])
def test_a_task_of_a_round_that_the_run_does_not_have_leaves_nothing_at_the_site(photo: Site, number: Any) -> None:
    counted(photo)
    folder = photo.folder / "fdg_state" / "run-1"
    before = sorted(folder.iterdir())
    shareable = task_request()
    shareable.set_header(AppConstants.CURRENT_ROUND, number)
    assert reason(photo.ask(TASK_TRAIN, shareable)).startswith(f"the task is of round {number!r}, expected 0 to")
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize(("package", "is_refused"), [("fdg-plugins", True), ("nvflare", True), ("torch", False)])
def test_a_site_that_comes_back_does_no_task_with_other_code(photo: Site, package: str, is_refused: bool) -> None:
    counted(photo)
    (path,) = photo.folder.rglob(CENSUS_FILE)
    written = json.loads(path.read_text())
    path.write_text(json.dumps({**written, "versions": {**written["versions"], package: "0.0.1"}}))
    photo.restart()
    answer = photo.ask(TASK_EVALUATE, task_request())
    assert (answer.get_return_code() != ReturnCode.OK) is is_refused


@pytest.mark.parametrize("event", [EventType.ABORT_TASK, EventType.END_RUN])
@pytest.mark.parametrize(("scope", "ends"), [(EventScope.LOCAL, True), (EventScope.FEDERATION, False)])
def test_an_event_that_another_participant_sent_ends_nothing(photo: Site, event: str, scope: str, ends: bool) -> None:
    class Process:
        closed = False

        def close(self) -> None:
            self.closed = True

    process = Process()
    photo.executor._process = process  # type: ignore[assignment]
    context = FLContext()
    context.set_prop(FLContextKey.EVENT_SCOPE, scope, private=True, sticky=False)
    photo.executor.handle_event(event, context)
    assert process.closed is ends
