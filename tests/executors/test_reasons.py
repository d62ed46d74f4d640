# SPDX-License-Identifier: Apache-2.0
"""Whatever goes wrong at a site: the server reads a category, the site's log has the rest under the same id."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import Shareable
from PIL import Image

from fdg_plugins.errors import LONGEST_QUOTE, DataError, FDGError, SettingsError, one_line
from fdg_plugins.executors.work import CENSUS_FILE
from fdg_plugins.messages import HEADER_REASON, TASK_CENSUS, TASK_EVALUATE, TASK_TRAIN
from fdg_plugins.privacy.reasons import reason_of
from fdg_plugins.training.session import SiteSession
from tests.executors.test_site import Site, census_request, counted, task_request

SECRET = "anna_smith"  # in the path of all that the site has
ID = re.compile(r"details in the site's own log under ([0-9a-f]{8})\)\.$")

pytestmark = pytest.mark.usefixtures("wire")


class Patient:
    """A site whose folders and images are named after a person."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / SECRET / "data"
        home = folder / SECRET / "site"
        home.mkdir()
        self.images = self.root / "pacs" / "photo" / "dog"
        self.site = Site("photo", home)
        self.configure()

    def configure(self, **entry: object) -> None:
        self.site.configure(**{"data_root": str(self.root), "device": "cpu", **entry})

    @property
    def state(self) -> Path:
        return self.site.folder / "fdg_state" / "run-1"

    def train(self) -> Shareable:
        return self.site.ask(TASK_TRAIN, task_request(round_number=1))


@pytest.fixture
def patient(tmp_path: Path, own_data_root: Path) -> Patient:
    (tmp_path / SECRET).mkdir()
    shutil.move(own_data_root, tmp_path / SECRET / "data")
    return Patient(tmp_path)


def damage_images(patient: Patient) -> Shareable:
    counted(patient.site)
    for path in patient.images.iterdir():
        Image.effect_noise((64, 64), 50).save(path)
        path.write_bytes(path.read_bytes()[:200])
    return patient.train()


def lose_the_data(patient: Patient) -> Shareable:
    shutil.rmtree(patient.root)
    return patient.site.ask(TASK_CENSUS, census_request())


def lose_the_data_after_the_census(patient: Patient) -> Shareable:
    patient.configure(image_memory=0)
    counted(patient.site)
    shutil.rmtree(patient.root)
    return patient.site.ask(TASK_EVALUATE, task_request())


def add_a_class(patient: Patient) -> Shareable:
    (patient.images.parent / SECRET).mkdir()
    return patient.site.ask(TASK_CENSUS, census_request())


def block_the_state(patient: Patient) -> Shareable:
    (patient.site.folder / "fdg_state").write_text("a file where the folder should be")
    return patient.site.ask(TASK_CENSUS, census_request())


def garble_the_census(patient: Patient) -> Shareable:
    counted(patient.site)
    (patient.state / CENSUS_FILE).write_text("{")
    return patient.train()


def garble_the_memory(patient: Patient) -> Shareable:
    counted(patient.site)
    (patient.state / "fdg_trained_0.safetensors").write_bytes(b"no tensors")
    return patient.train()


def fail_unforeseen(patient: Patient, monkeypatch: pytest.MonkeyPatch) -> Shareable:
    def fail(*_: object) -> None:
        raise RuntimeError(f"{patient.root}: it broke")

    counted(patient.site)
    monkeypatch.setattr(SiteSession, "train", fail)
    return patient.train()


Accident = Callable[[Patient], Shareable]
ACCIDENTS: list[Accident] = [
    damage_images,
    lose_the_data,
    lose_the_data_after_the_census,
    add_a_class,
    block_the_state,
    garble_the_census,
    garble_the_memory,
]


def assert_names_nothing(reply: Shareable) -> str:
    """Return the id in the reason of an error reply, in which no path, file or person is."""
    assert reply.get_return_code() == ReturnCode.EXECUTION_EXCEPTION
    told = str(reply.get_header(HEADER_REASON))
    assert SECRET not in str(dict(reply))
    assert not re.search(r"[/\\\n]|\.(png|json|jsonl|safetensors)", told.replace("data or a file", "")), told
    (number,) = ID.findall(told)
    return str(number)


@pytest.mark.parametrize("accident", ACCIDENTS, ids=lambda one: one.__name__)
def test_the_reason_names_nothing_and_the_log_everything(
    patient: Patient, accident: Accident, caplog: pytest.LogCaptureFixture
) -> None:
    number = assert_names_nothing(accident(patient))
    (line,) = [record.getMessage() for record in caplog.records if f"[{number}]" in record.getMessage()]
    assert SECRET in line


def test_the_operator_may_let_names_leave(patient: Patient) -> None:
    patient.configure(report_names=True)
    told = str(damage_images(patient).get_header(HEADER_REASON))
    assert SECRET in told
    assert not ID.search(told)


def test_an_unforeseen_error_names_its_kind_alone(
    patient: Patient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reply = fail_unforeseen(patient, monkeypatch)
    number = assert_names_nothing(reply)
    assert reply.get_header(HEADER_REASON).startswith("unforeseen error (RuntimeError)")
    assert f"{patient.root}: it broke (in " in caplog.text
    assert f") [{number}]" in caplog.text
    assert "Traceback" in caplog.text


def test_skipped_files_are_counted_and_named_where_the_operator_allows_it(
    patient: Patient, monkeypatch: pytest.MonkeyPatch
) -> None:
    init = SiteSession.__init__

    def with_skipped(self: SiteSession, *arguments: Any) -> None:
        init(self, *arguments)
        self.images.data = self.data.__class__(**{**vars(self.data), "skipped": (f"dog/{SECRET}.png",)})

    monkeypatch.setattr(SiteSession, "__init__", with_skipped)
    reply = counted(patient.site)
    assert (reply.skipped, reply.num_skipped) == ((), 1)
    patient.configure(report_names=True)
    patient.site.restart()
    reply = counted(patient.site)
    assert (reply.skipped, reply.num_skipped) == ((f"dog/{SECRET}.png",), 1)


@given(
    text=st.text(max_size=40),
    kind=st.sampled_from([DataError, SettingsError, FDGError, RuntimeError, ValueError]),
    names=st.booleans(),
)
def test_an_error_tells_its_text_only_if_it_may(text: str, kind: type[Exception], names: bool) -> None:
    error = kind(f"<{text}>")
    reason = reason_of(error, names=names)
    assert reason.told.isprintable()
    assert reason.logged.isprintable()
    assert (reason.told == reason.logged) == names
    if not names:
        assert f"[{ID.findall(reason.told)[0]}]" in reason.logged
        assert "<" not in reason.told
    elif text.isprintable():
        assert f"<{text}>" in reason.told


def test_what_everybody_may_know_is_told_as_it_is() -> None:
    public = DataError("3 images of 40 cannot be read.", public=True)
    assert reason_of(public) == ("3 images of 40 cannot be read.",) * 2
    counts = DataError("a.png cannot be read.", public="1 image of 40 cannot be read (photo).")
    assert reason_of(counts).told.startswith("1 image of 40 cannot be read (photo) (details in the site's own log")


@pytest.mark.parametrize("length", [10, 145, 70_000])
def test_the_id_is_in_the_part_of_a_reason_that_the_server_reads(length: int) -> None:
    reason = reason_of(DataError("x", public=f"{'a' * length}."))
    (number,) = ID.findall(one_line(reason.told, LONGEST_QUOTE))
    assert f"[{number}]" in reason.logged
    assert reason.told.startswith("a" * min(length, 100))
