# SPDX-License-Identifier: Apache-2.0
"""Whatever goes wrong at a site: the server reads a category, the site's log has the rest under the same id."""

import ast
import os
import re
import shutil
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.apis.utils.event import fire_event_to_components
from nvflare.widgets.info_collector import InfoCollector
from PIL import Image

from fdg_plugins.data import PACS
from fdg_plugins.errors import LONGEST_QUOTE, DataError, FDGError, SettingsError, one_line
from fdg_plugins.executors.work import CENSUS_FILE
from fdg_plugins.flare.context import WORKER
from fdg_plugins.messages import TASK_CENSUS, TASK_TRAIN
from fdg_plugins.privacy.reasons import make_reason, texts_of
from fdg_plugins.training.session import SiteSession
from tests.executors.sites import Site, census_request, reason, task_request
from tests.source_trees import nodes

SECRET = "anna_smith"  # in the path of all that the site has
ID = re.compile(r"details in the site's own log under ([0-9a-f]{8})\)\.$")
FIRING = ("log_warning", "log_error", "log_critical")  # unless told otherwise, these fire an event with the text

pytestmark = pytest.mark.usefixtures("wire")


class Patient:
    """A site whose folders and images are named after a person."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / SECRET / "data"
        self.images = self.root / "pacs" / "photo"
        for name in PACS.classes:
            (self.images / name).mkdir(parents=True)
            for number in range(3):
                Image.new("RGB", (16, 16), (number, 90, 40)).save(self.images / name / f"{SECRET}-{number}.png")
        (folder / SECRET / "site").mkdir()
        self.site = Site("photo", folder / SECRET / "site", data_root=str(self.root), device="cpu")

    def census(self) -> Shareable:
        return self.site.ask(TASK_CENSUS, census_request())

    def train(self) -> Shareable:
        return self.site.ask(TASK_TRAIN, task_request(round_number=1))

    def lists(self, train: bytes) -> None:
        (self.root / "pacs" / "photo_train_kfold.txt").write_bytes(train)
        (self.root / "pacs" / "photo_crossval_kfold.txt").write_text(f"photo/cat/{SECRET}-1.png 1\n")


@pytest.fixture
def patient(tmp_path: Path) -> Patient:
    return Patient(tmp_path)


Accident: TypeAlias = Callable[[Patient], object]
# What happens before the census, in the site's data, config or state, and what after it.
BEFORE: dict[str, Accident] = {
    "no data set": lambda of: (of.root / "pacs").rename(of.root / SECRET),
    "no domain": lambda of: of.images.rename(of.root / "pacs" / SECRET),
    "unknown class": lambda of: (of.images / SECRET).mkdir(),
    "empty class": lambda of: [file.rename(file.with_suffix(".heic")) for file in (of.images / "horse").iterdir()],
    "link that leads out": lambda of: (of.images / "dog" / f"{SECRET}-9.png").symlink_to("/etc/hostname"),
    "no UTF-8": lambda of: Path(os.fsdecode(os.fsencode(of.images / "dog" / SECRET) + b"\xe9\xff.png")).touch(),
    "control characters": lambda of: (of.images / "dog" / f"a\nsite x | well {SECRET}\x1b[2J.png").touch(),
    "no image": lambda of: (of.images / "dog" / f"{SECRET}-0.png").write_text(f"{SECRET}: not an image"),
    "list that is no text": lambda of: of.lists(b"\xff\xfe\xff"),
    "list of unknown images": lambda of: of.lists(f"photo/dog/{SECRET}-77.png 1\n".encode()),
    "lists that overlap": lambda of: of.lists(f"photo/cat/{SECRET}-1.png 1\n".encode()),
    "no data root": lambda of: of.site.configure(data_root=str(of.root / "nowhere")),
    "another domain": lambda of: of.site.configure(domain=SECRET),
    "few pixels": lambda of: of.site.configure(max_image_pixels=255),
    "unknown setting": lambda of: of.site.configure(**{SECRET: 1}),
    "config that is no JSON": lambda of: (of.site.folder / "local" / "fdg_site.json").write_text(f'{{"{SECRET}'),
    "no place for state": lambda of: (of.site.folder / "fdg_state").write_text("a file where the folder should be"),
}
AFTER: dict[str, Accident] = {
    "damaged images": lambda of: [path.write_bytes(path.read_bytes()[:60]) for path in of.images.glob("dog/*")],
    "lost images": lambda of: shutil.rmtree(of.images / "dog"),
    "garbled census": lambda of: (of.site.state / CENSUS_FILE).write_text("{"),
    "garbled memory": lambda of: (of.site.state / "fdg_trained_0.safetensors").write_bytes(b"no tensors"),
}


@pytest.fixture
def collector() -> InfoCollector:
    """The component of a site's job that keeps the texts of events for FLARE's ``show_errors``."""
    return InfoCollector()


def listening(context: FLContext, collector: InfoCollector) -> FLContext:
    """Return the context, of which every event reaches the collector, as in FLARE."""
    context.get_engine().fire_event = lambda event, fl_ctx: fire_event_to_components(event, [collector], fl_ctx)
    return context


@pytest.mark.parametrize("accident", [*BEFORE, *AFTER])
def test_the_reason_names_nothing_and_the_sites_own_log_alone_everything(
    patient: Patient, accident: str, collector: InfoCollector, caplog: pytest.LogCaptureFixture
) -> None:
    make = patient.site.context
    patient.site.context = lambda job="job": listening(make(job), collector)  # type: ignore[method-assign]
    if accident in AFTER:
        patient.site.count()
    (BEFORE | AFTER)[accident](patient)
    told = reason(patient.train() if accident in AFTER else patient.census())
    assert SECRET not in told
    assert told.isprintable()
    assert not re.search(r"\.(png|json|jsonl|safetensors|txt)|pytest-of", told), told
    (number,) = ID.findall(told)
    (line,) = [record.getMessage() for record in caplog.records if f"[{number}]" in record.getMessage()]
    assert SECRET in line
    assert line.isprintable()
    assert collector.get_errors() is None


def test_an_image_lost_while_workers_read_is_told_without_its_name(patient: Patient) -> None:
    patient.site.configure(workers=1, image_memory=0)
    patient.site.count()
    AFTER["lost images"](patient)
    assert SECRET not in reason(patient.train())


def test_names_leave_in_a_simulation_or_as_the_operator_says(patient: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    BEFORE["no image"](patient)
    with monkeypatch.context() as patch:
        patch.setattr(sys.modules["__main__"], "__spec__", ModuleSpec(WORKER, None))
        simulated = reason(patient.census())
    patient.site.configure(report_names=True)
    for told in (simulated, reason(patient.census())):
        assert SECRET in told
        assert not ID.search(told)


def test_unforeseen_error_tells(photo: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("first line\nsecond line")

    photo.count()
    with monkeypatch.context() as patch:
        patch.setattr(SiteSession, "train", fail)
        told = reason(photo.ask(TASK_TRAIN, task_request()))
    (number,) = ID.findall(told)
    assert told == f"unforeseen error (RuntimeError) (details in the site's own log under {number})."
    assert "RuntimeError: first line (in fail, test_reasons.py:" in caplog.text
    assert f") [{number}]" in caplog.text
    assert "Traceback" in caplog.text
    assert "DXO" in photo.ask(TASK_TRAIN, task_request())
    assert texts_of(KeyError()) == ("KeyError: no message", "unforeseen error (KeyError).")


def test_skipped_files_are_counted_and_named_on_demand(patient: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    init = SiteSession.__init__

    def with_skipped(self: SiteSession, *arguments: Any) -> None:
        init(self, *arguments)
        self.images.data = self.data.__class__(**{**vars(self.data), "skipped": (f"dog/{SECRET}.png",)})

    monkeypatch.setattr(SiteSession, "__init__", with_skipped)
    reply = patient.site.count()
    assert (reply.skipped, reply.num_skipped) == ((), 1)
    patient.site.configure(report_names=True)
    reply = patient.site.count()
    assert (reply.skipped, reply.num_skipped) == ((f"dog/{SECRET}.png",), 1)


@given(
    text=st.text(max_size=40),
    kind=st.sampled_from([DataError, SettingsError, FDGError, RuntimeError, ValueError]),
    names=st.booleans(),
)
def test_an_error_tells_its_text_only_if_it_may(text: str, kind: type[Exception], names: bool) -> None:
    made = make_reason(*texts_of(kind(f"<{text}>")), names=names)
    assert made.told.isprintable()
    assert made.logged.isprintable()
    assert (made.told == made.logged) == names
    if not names:
        assert f"[{ID.findall(made.told)[0]}]" in made.logged
        assert "<" not in made.told
    elif text.isprintable():
        assert f"<{text}>" in made.told


@pytest.mark.parametrize("length", [10, 145, 70_000])
def test_the_id_is_in_the_part_of_a_reason_that_the_server_reads(length: int) -> None:
    public = DataError(f"{'a' * length}.", public=True)
    assert make_reason(*texts_of(public), names=False) == (str(public),) * 2, "everybody may know it"
    made = make_reason("x", public.public, names=False)
    (number,) = ID.findall(one_line(made.told, LONGEST_QUOTE))
    assert f"[{number}]" in made.logged
    assert made.told.startswith("a" * min(length, 100))


def test_no_component_of_a_site_logs_with_an_event() -> None:
    found = []
    for path, calls in nodes(ast.Call).items():
        for call in calls if path.parts[0] != "controllers" else ():
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in FIRING:
                silent = any(one.arg == "fire_event" and not ast.literal_eval(one.value) for one in call.keywords)
                found += [] if silent else [str(path)]
    assert sorted(found) == ["filters/exchange.py", "filters/gap.py"], "those that check at the server"
