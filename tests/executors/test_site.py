# SPDX-License-Identifier: Apache-2.0
"""The executor as FLARE calls it: each task answered, each error with its reason, each process as good as another."""

import json
import os
import re
import shutil
import stat
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
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
from PIL import Image

from fdg_plugins.data import PACS
from fdg_plugins.data.stand_in import ensure_stand_in
from fdg_plugins.executors import SiteExecutor
from fdg_plugins.executors.counted import CENSUS_FILE
from fdg_plugins.flare.simulator import WORKER
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
    Evaluation,
    Precision,
    TrainReport,
)
from fdg_plugins.models import build_model
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.state.site_memory import OWN_MODEL, Kept, has_memory, write_kept, write_round
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


def test_the_census_is_answered_with_what_the_site_holds(photo: Site) -> None:
    reply = counted(photo)
    assert (reply.domain, reply.classes, reply.stand_in) == ("photo", PACS.classes, False)
    assert (reply.num_train, reply.num_validation, reply.num_test) == (21, 7, 28)


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


@pytest.mark.parametrize(("name", "split", "count"), [("photo", "validation", 7), ("sketch", "test", 28)])
def test_sources_are_judged_on_their_validation_split_and_the_held_out_domain_on_all(
    make_site: Callable[..., Site], name: str, split: str, count: int
) -> None:
    site = make_site(name)
    counted(site)
    reply = site.ask(TASK_EVALUATE, task_request())
    assert reply.get_return_code() == ReturnCode.OK
    dxo = from_shareable(reply)
    assert dxo.data_kind == DataKind.METRICS
    evaluation = Evaluation.model_validate(dxo.data)
    assert (evaluation.split, evaluation.count) == (split, count)


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


def test_the_data_are_opened_once_for_all_tasks_of_a_process(photo: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    init = SiteSession.__init__

    def init_noted(self: SiteSession, site: str, *rest: Any) -> None:
        opened.append(site)
        init(self, site, *rest)

    monkeypatch.setattr(SiteSession, "__init__", init_noted)
    counted(photo)
    photo.ask(TASK_EVALUATE, task_request())
    photo.ask(TASK_EVALUATE, task_request(round_number=1))
    assert opened == ["photo"]
    photo.ask(TASK_EVALUATE, task_request(PROTOCOL.model_copy(update={"seed": 1})))
    assert opened == ["photo", "photo"], "another protocol is another session"


def test_threads_of_the_site_config_are_set(photo: Site, data_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    photo.configure(data_root=str(data_root), threads=3)
    counted(photo)
    assert asked == [3]


def test_on_the_stand_in_its_own_protocol_counts(tmp_path: Path, photo: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FDG_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(
        "fdg_plugins.data.roots.ensure_stand_in", lambda *place: ensure_stand_in(*place, images_per_class=3)
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


def test_the_signal_is_looked_at_before_every_batch(photo: Site) -> None:
    counted(photo)
    signal = CountedSignal(1000)
    assert photo.ask(TASK_TRAIN, task_request(), signal).get_return_code() == ReturnCode.OK
    assert signal.count == LOOKS_OF_A_TRAINING


def test_an_aborted_evaluation_ends_before_its_first_batch(photo: Site) -> None:
    counted(photo)
    signal = Signal()
    signal.trigger(True)
    assert photo.ask(TASK_EVALUATE, task_request(), signal).get_return_code() == ReturnCode.TASK_ABORTED


# --- errors -----------------------------------------------------------------------------------------


def test_an_unknown_task_is_answered_as_such(photo: Site) -> None:
    reply = photo.ask("validate", task_request())
    assert reply.get_return_code() == ReturnCode.TASK_UNKNOWN
    assert reply.get_header(HEADER_REASON) == "unknown task 'validate'."


def test_an_unknown_model_is_named_in_the_log(photo: Site, caplog: pytest.LogCaptureFixture) -> None:
    counted(photo)
    reason(photo.ask(TASK_TRAIN, task_request(PROTOCOL.model_copy(update={"model": "vgg"}))))
    assert "model 'vgg' is unknown" in caplog.text


def test_a_missing_data_root_is_named_where_the_operator_allows_it(photo: Site, tmp_path: Path) -> None:
    photo.configure(data_root=str(tmp_path / "nowhere"), report_names=True)
    text = reason(photo.ask(TASK_CENSUS, census_request()))
    assert text.startswith(f"data root {tmp_path / 'nowhere'} is not a folder")


def test_a_simulation_names_files_unless_told_otherwise_and_no_job_can_feign_one(
    photo: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = {"data_root": str(tmp_path / "nowhere"), "isolate": False}
    photo.configure(**missing)
    number_in(reason(photo.ask(TASK_CENSUS, census_request(), job="simulate_job")))
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", ModuleSpec(WORKER, None))
    assert str(tmp_path / "nowhere") in reason(photo.ask(TASK_CENSUS, census_request()))
    photo.configure(**missing, report_names=False)
    number_in(reason(photo.ask(TASK_CENSUS, census_request())))


def test_a_wrong_site_config_allows_no_names_and_is_named_in_the_log(
    photo: Site, caplog: pytest.LogCaptureFixture
) -> None:
    photo.configure(device="abacus", report_names=True)
    told = reason(photo.ask(TASK_CENSUS, census_request()))
    assert told.startswith(
        "its config, of file or environment, has a value of 'device' that is not as expected (details"
    )
    assert "site photo: config fdg_site.json: device is 'abacus'" in caplog.text
    assert f"[{number_in(told)}]" in caplog.text


def test_a_model_with_another_number_of_classes_is_answered_with_its_parameter(photo: Site) -> None:
    counted(photo)
    text = reason(photo.ask(TASK_TRAIN, task_request(classes=8)))
    assert text.startswith("parameter 'classifier.bias' of the model received has shape (8,)")


@pytest.mark.parametrize("task", [TASK_TRAIN, TASK_EVALUATE])
def test_an_image_that_breaks_after_the_census_is_named_where_the_operator_allows_it(
    make_site: Callable[..., Site], own_data_root: Path, task: str
) -> None:
    site = make_site(root=own_data_root)
    site.configure(data_root=str(own_data_root), device="cpu", report_names=True)
    counted(site)
    for path in (own_data_root / "pacs" / "photo" / "dog").iterdir():
        Image.effect_noise((64, 64), 50).save(path)
        path.write_bytes(path.read_bytes()[:200])  # a sound header, half the pixels
    assert "/photo/dog/" in reason(site.ask(task, task_request()))


def test_images_that_come_after_the_census_are_refused_by_a_new_process_and_ignored_by_the_old_one(
    make_site: Callable[..., Site], own_data_root: Path
) -> None:
    site = make_site(root=own_data_root)
    census = counted(site)
    folder = own_data_root / "pacs" / "photo" / "dog"
    shutil.copy(folder / "000.png", folder / "900.png")
    reply = from_shareable(site.ask(TASK_TRAIN, task_request()))
    assert reply.meta[META_SAMPLES] == census.num_train
    site.restart()
    text = reason(site.ask(TASK_TRAIN, task_request()))
    assert text.endswith(f"but the census counted {census.split_hash}: the data folder has changed.")


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


def test_a_census_file_that_is_something_else_counts_as_none(photo: Site) -> None:
    counted(photo)
    (path,) = photo.folder.rglob(CENSUS_FILE)
    path.write_text("[]")
    photo.restart()
    assert reason(photo.ask(TASK_TRAIN, task_request())) == NO_CENSUS


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
    ("name", "role", "task"), [("photo", "source", TASK_TRAIN), ("sketch", "held_out", TASK_EVALUATE)]
)
def test_a_site_does_the_tasks_of_its_own_role(
    make_site: Callable[..., Site], data_root: Path, name: str, role: str, task: str
) -> None:
    site = make_site(name)
    site.configure(data_root=str(data_root), device="cpu", role=role)
    counted(site)
    assert site.ask(task, task_request()).get_return_code() == ReturnCode.OK


def test_real_data_are_not_trained_on_where_the_server_expects_the_stand_in(photo: Site) -> None:
    counted(photo)
    text = reason(photo.ask(TASK_TRAIN, task_request(stand_in=True)))
    assert text == "the data changed between the real data set and the STAND-IN since the census."


def test_the_held_out_domain_refuses_to_train(make_site: Callable[..., Site]) -> None:
    sketch = make_site("sketch")
    counted(sketch)
    assert reason(sketch.ask(TASK_TRAIN, task_request())) == "domain 'sketch' is held out in this run and never trains."


@pytest.mark.parametrize("task", [TASK_CENSUS, TASK_TRAIN, TASK_EVALUATE])
def test_a_request_that_cannot_be_read_is_answered_with_the_field(photo: Site, task: str) -> None:
    shareable = DXO(DataKind.WEIGHTS, data={}, meta={META_REQUEST: {"protocol": {"rounds": 0}}}).to_shareable()
    assert "request: protocol.rounds is 0, but " in reason(photo.ask(task, shareable))
    shareable = DXO(DataKind.WEIGHTS, data={}).to_shareable()
    assert "request: value is None, but " in reason(photo.ask(task, shareable))


def test_something_else_than_a_model_is_refused_by_its_kind(photo: Site) -> None:
    counted(photo)
    shareable = task_request()
    dxo = from_shareable(shareable)
    dxo.data_kind = DataKind.WEIGHT_DIFF
    text = reason(photo.ask(TASK_TRAIN, dxo.update_shareable(shareable)))
    assert text == f"the server sent {DataKind.WEIGHT_DIFF}, expected the global model (WEIGHTS)."


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


def test_a_message_that_is_no_task_at_all_is_answered_with_a_reason(photo: Site) -> None:
    assert reason(photo.ask(TASK_TRAIN, Shareable()))


# --- start of a run ---------------------------------------------------------------------------------


def test_the_start_of_a_run_teaches_the_serializer_about_tensors(photo: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr("fdg_plugins.executors.site.fobs.register", lambda kind: done.append(kind.__name__))
    photo.executor.handle_event(EventType.END_RUN, photo.context())
    assert done == []
    photo.executor.handle_event(EventType.START_RUN, photo.context())
    assert done == ["TensorDecomposer"]


# --- end of a run -----------------------------------------------------------------------------------


def test_a_run_that_no_task_has_used_for_a_month_goes_when_a_job_starts(photo: Site) -> None:
    counted(photo)
    used = photo.folder / "fdg_state" / "run-1"
    forgotten = used.with_name("run-0")
    forgotten.mkdir()
    os.utime(forgotten, (0, 0))
    photo.executor.handle_event(EventType.START_RUN, photo.context())
    assert used.exists()
    assert not forgotten.exists()


@pytest.mark.parametrize("number", [-1, PROTOCOL.rounds + 1, 10**9, 0.5, "1", True, None])
@pytest.mark.parametrize("task", [TASK_STATISTICS, TASK_PROBE, TASK_TRAIN, TASK_EVALUATE])
def test_a_task_of_a_round_that_the_run_does_not_have_leaves_nothing_at_the_site(
    photo: Site, task: str, number: Any
) -> None:
    counted(photo)
    folder = photo.folder / "fdg_state" / "run-1"
    before = sorted(folder.iterdir())
    shareable = task_request()
    shareable.set_header(AppConstants.CURRENT_ROUND, number)
    expected = f"the task is of round {number!r}, expected an integer from 0 to {PROTOCOL.rounds}."
    assert reason(photo.ask(task, shareable)) == expected
    assert sorted(folder.iterdir()) == before


def test_a_run_that_broke_off_or_goes_on_keeps_its_state(photo: Site) -> None:
    counted(photo)
    photo.ask(TASK_TRAIN, task_request())
    photo.ask(TASK_EVALUATE, task_request())
    photo.ask(TASK_EVALUATE, task_request(round_number=PROTOCOL.rounds))
    for event in (EventType.AFTER_SEND_TASK_RESULT, EventType.ABORT_TASK, EventType.END_RUN):
        photo.executor.handle_event(event, photo.context())
    assert (photo.folder / "fdg_state" / "run-1" / "fdg_census.json").exists()


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_run_that_begins_goes_on_from_nothing_that_another_of_its_name_has_left(photo: Site, goes_on: bool) -> None:
    folder = photo.folder / "fdg_state" / "run-1"
    write_kept(folder, 8, Kept({"control": torch.ones(2)}))
    write_round(folder, OWN_MODEL, 8, {"loss": torch.ones(())})
    sent = census_request()
    from_shareable(sent).meta[META_REQUEST]["goes_on"] = goes_on
    photo.ask(TASK_CENSUS, sent)
    assert has_memory(folder) is goes_on
    assert len(list(folder.glob("*.safetensors"))) == 2 * goes_on


@pytest.mark.parametrize(("package", "is_refused"), [("fdg-plugins", True), ("nvflare", True), ("torch", False)])
def test_a_site_that_comes_back_does_no_task_with_other_code(photo: Site, package: str, is_refused: bool) -> None:
    counted(photo)
    (path,) = photo.folder.rglob(CENSUS_FILE)
    written = json.loads(path.read_text())
    now = written["versions"][package]
    path.write_text(json.dumps({**written, "versions": {**written["versions"], package: "0.0.1"}}))
    assert photo.ask(TASK_EVALUATE, task_request()).get_return_code() == ReturnCode.OK, "the process has not changed"
    photo.restart()
    answer = photo.ask(TASK_EVALUATE, task_request())
    if is_refused:
        said = f"the site runs {package} {now}, but ran '0.0.1' in the census: one job needs one version everywhere."
        assert reason(answer) == said
    else:
        assert answer.get_return_code() == ReturnCode.OK


def test_a_damaged_or_older_census_file_is_replaced_by_the_next_census(photo: Site) -> None:
    counted(photo)
    (path,) = photo.folder.rglob(CENSUS_FILE)
    written = json.loads(path.read_text())
    for content in ("{", "[]", json.dumps({name: value for name, value in written.items() if name != "versions"})):
        path.write_text(content)
        photo.restart()
        counted(photo)
        assert json.loads(path.read_text()) == written


def test_what_a_site_keeps_of_a_run_is_its_owners_alone(photo: Site) -> None:
    previous = os.umask(0)
    try:
        counted(photo)
    finally:
        os.umask(previous)
    folder = photo.folder / "fdg_state" / "run-1"
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.iterdir())} == {
        "run-1": 0o700,
        "fdg_census.json": 0o600,
    }


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
