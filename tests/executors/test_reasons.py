# SPDX-License-Identifier: Apache-2.0
"""Whatever goes wrong at a site: the server reads a category, the site's log has the rest under the same id."""

import ast
import json
import os
import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.filter import Filter
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.apis.utils.event import fire_event_to_components
from nvflare.widgets.info_collector import InfoCollector
from PIL import Image

from fdg_plugins.data import PACS
from fdg_plugins.errors import LONGEST_QUOTE, DataError, FDGError, SettingsError, one_line
from fdg_plugins.executors.work import CENSUS_FILE
from fdg_plugins.filters import DifferentialPrivacyFilter, GapReportFilter, RoundedUpdateSendFilter
from fdg_plugins.messages import META_REPORT, TASK_CENSUS, TASK_TRAIN
from fdg_plugins.models import build_model
from fdg_plugins.privacy.reasons import make_reason, texts_of
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.settings.site_config import SiteConfig, read_site_config
from fdg_plugins.training.session import SiteSession
from tests.executors.sites import Site, census_request, reason, task_request
from tests.flare_runner import SiteWorkspace, site_context
from tests.source_trees import nodes

SECRET = "anna_smith"  # in the path of all that the site has
ID = re.compile(r"details in the site's own log under ([0-9a-f]{8})\)\.$")
FIRING = ("log_warning", "log_error", "log_critical")  # unless told otherwise, these fire an event with the text

pytestmark = pytest.mark.usefixtures("wire")


class Patient:
    """A site whose folders and images are named after a person."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / SECRET / "data"
        self.images = self.root / "pacs" / "photo" / "dog"
        (folder / SECRET / "site").mkdir()
        self.site = Site("photo", folder / SECRET / "site", data_root=str(self.root), device="cpu")

    def train(self) -> Shareable:
        return self.site.ask(TASK_TRAIN, task_request(round_number=1))


@pytest.fixture
def patient(tmp_path: Path, own_data_root: Path) -> Patient:
    (tmp_path / SECRET).mkdir()
    shutil.move(own_data_root, tmp_path / SECRET / "data")
    return Patient(tmp_path)


def damage_images(patient: Patient) -> Shareable:
    patient.site.count()
    for path in patient.images.iterdir():
        Image.effect_noise((64, 64), 50).save(path)
        path.write_bytes(path.read_bytes()[:200])
    return patient.train()


def block_the_state(patient: Patient) -> Shareable:
    (patient.site.folder / "fdg_state").write_text("a file where the folder should be")
    return patient.site.ask(TASK_CENSUS, census_request())


def garble_the_census(patient: Patient) -> Shareable:
    patient.site.count()
    (patient.site.state / CENSUS_FILE).write_text("{")
    return patient.train()


def garble_the_memory(patient: Patient) -> Shareable:
    patient.site.count()
    (patient.site.state / "fdg_trained_0.safetensors").write_bytes(b"no tensors")
    return patient.train()


@pytest.fixture
def collector() -> InfoCollector:
    """The component of a site's job that keeps the texts of events for FLARE's ``show_errors``."""
    return InfoCollector()


def listening(context: FLContext, collector: InfoCollector) -> FLContext:
    """Return the context, of which every event reaches the collector, as in FLARE."""
    context.get_engine().fire_event = lambda event, fl_ctx: fire_event_to_components(event, [collector], fl_ctx)
    return context


@pytest.mark.parametrize(
    "accident", [damage_images, block_the_state, garble_the_census, garble_the_memory], ids=lambda one: one.__name__
)
def test_the_reason_names_nothing_and_the_sites_own_log_alone_everything(
    patient: Patient,
    accident: Callable[[Patient], Shareable],
    collector: InfoCollector,
    caplog: pytest.LogCaptureFixture,
) -> None:
    make = patient.site.context
    patient.site.context = lambda job="job": listening(make(job), collector)  # type: ignore[method-assign]
    told = reason(accident(patient))
    assert SECRET not in told
    assert not re.search(r"[/\\\n]|\.(png|json|jsonl|safetensors)", told), told
    (number,) = ID.findall(told)
    (line,) = [record.getMessage() for record in caplog.records if f"[{number}]" in record.getMessage()]
    assert SECRET in line
    assert collector.get_errors() is None


def test_the_operator_may_let_names_leave(patient: Patient) -> None:
    patient.site.configure(data_root=str(patient.root), device="cpu", report_names=True)
    told = reason(damage_images(patient))
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
    patient.site.configure(data_root=str(patient.root), device="cpu", report_names=True)
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


def domain(root: Path) -> Path:
    return root / "pacs" / "photo"


def image(root: Path) -> Path:
    return domain(root) / "dog" / f"{SECRET}-0.png"


def fill(root: Path) -> Path:
    """Write the domain photo below ``root``, with images of a person's name."""
    for name in PACS.classes:
        (domain(root) / name).mkdir(parents=True)
        for number in range(3):
            Image.new("RGB", (16, 16), (number, 90, 40)).save(domain(root) / name / f"{SECRET}-{number}.png")
    return root


def lists(root: Path, train: bytes) -> None:
    (root / "pacs" / "photo_train_kfold.txt").write_bytes(train)
    (root / "pacs" / "photo_crossval_kfold.txt").write_text(f"photo/cat/{SECRET}-1.png 1\n")


# What happens in a data root.
ACCIDENTS: dict[str, Callable[[Path], object]] = {
    "no data set": lambda root: (root / "pacs").rename(root / SECRET),
    "no domain": lambda root: domain(root).rename(root / "pacs" / SECRET),
    "unknown class": lambda root: (domain(root) / SECRET).mkdir(),
    "empty class": lambda root: [file.rename(file.with_suffix(".heic")) for file in (domain(root) / "horse").iterdir()],
    "link that leads out": lambda root: (domain(root) / "dog" / f"{SECRET}-9.png").symlink_to("/etc/hostname"),
    "no UTF-8": lambda root: Path(os.fsdecode(os.fsencode(domain(root) / "dog" / SECRET) + b"\xe9\xff.png")).touch(),
    "control characters": lambda root: (domain(root) / "dog" / f"a\nsite x | well {SECRET}\x1b[2J.png").touch(),
    "no image": lambda root: image(root).write_text(f"{SECRET}: not an image"),
    "list that is no text": lambda root: lists(root, b"\xff\xfe\xff"),
    "list of unknown images": lambda root: lists(root, f"photo/dog/{SECRET}-77.png 1\n".encode()),
    "lists that overlap": lambda root: lists(root, f"photo/cat/{SECRET}-1.png 1\n".encode()),
}


def census(root: Path, **config: Any) -> FDGError:
    """Return the error of a site's census."""
    site = SiteConfig(**{"data_root": root, "device": "cpu", **config})
    with pytest.raises(FDGError) as caught:
        SiteSession("photo", site, Protocol(model="convnet", target="sketch", image_size=16)).census()
    return caught.value


def assert_told_without_names(error: FDGError) -> None:
    assert SECRET not in error.public
    assert SECRET in str(error)
    assert (str(error) + error.public).isprintable()


@pytest.mark.parametrize("accident", ACCIDENTS)
def test_a_failure_of_a_sites_data_is_told_without_names(tmp_path: Path, accident: str) -> None:
    root = fill(tmp_path / SECRET)
    ACCIDENTS[accident](root)
    assert_told_without_names(census(root))


def test_a_wrong_config_of_a_site_is_told_without_names(tmp_path: Path) -> None:
    root = fill(tmp_path / SECRET)
    for place, wrong in ((root / "nowhere", {}), (root, {"domain": SECRET}), (root, {"max_image_pixels": 255})):
        assert_told_without_names(census(place, **wrong))
    path = root / "fdg_site.json"
    for content in (f'{{"photo": {{"data_root": "/{SECRET}"', json.dumps({"photo": {SECRET: 1}})):
        path.write_text(content)
        with pytest.raises(FDGError) as caught:
            read_site_config("photo", path, {})
        assert_told_without_names(caught.value)


def test_an_image_lost_after_the_census_is_told_without_its_name(tmp_path: Path) -> None:
    root = fill(tmp_path / SECRET)
    config = SiteConfig(data_root=root, device="cpu", workers=1, image_memory=0)
    protocol = Protocol(model="convnet", target="sketch", image_size=16, local_epochs=1, rounds=1)
    session = SiteSession("photo", config, protocol)
    session.census()
    gone, empty = (root / "pacs" / sample.file for sample in session.data.train[:2])
    gone.unlink()
    empty.write_bytes(b"")
    state = build_model("convnet", len(PACS.classes), seed=0).state_dict()
    with pytest.raises(FDGError) as caught:
        session.train(state, 0)
    assert_told_without_names(caught.value)


# --- events, whose texts FLARE tells to anyone who asks ---


@pytest.mark.parametrize(
    "make", [partial(DifferentialPrivacyFilter, 1.0, 8.0, 10.0), GapReportFilter, RoundedUpdateSendFilter]
)
def test_a_filter_that_refuses_an_answer_tells_nothing_through_events(
    make: Callable[[], Filter], tmp_path: Path, collector: InfoCollector, caplog: pytest.LogCaptureFixture
) -> None:
    context = listening(site_context("photo", SiteWorkspace(tmp_path)), collector)
    update = DXO(DataKind.WEIGHT_DIFF, data={"w": torch.tensor([float("nan")])}, meta={META_REPORT: "none"})
    assert "DXO" not in make().process(update.to_shareable(), context)
    assert caplog.records
    assert collector.get_errors() is None


def test_no_component_of_a_site_logs_with_an_event() -> None:
    found = []
    for path, calls in nodes(ast.Call).items():
        for call in calls if path.parts[0] != "controllers" else ():
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in FIRING:
                silent = any(one.arg == "fire_event" and not ast.literal_eval(one.value) for one in call.keywords)
                found += [] if silent else [str(path)]
    assert sorted(found) == ["filters/exchange.py", "filters/gap.py"], "those that check at the server"
