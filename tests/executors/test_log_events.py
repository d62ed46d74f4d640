# SPDX-License-Identifier: Apache-2.0
"""What FLARE's ``show_errors`` shows of a site: nothing that this package logs there, whoever asks."""

import ast
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import torch
from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.filter import Filter
from nvflare.apis.fl_context import FLContext
from nvflare.apis.utils.event import fire_event_to_components
from nvflare.widgets.info_collector import InfoCollector

import fdg_plugins
from fdg_plugins.filters import DifferentialPrivacyFilter, GapReportFilter, RoundedUpdateSendFilter
from fdg_plugins.flare.components import SERVER, class_paths
from fdg_plugins.messages import META_REPORT
from tests.executors.test_reasons import ACCIDENTS, Accident, Patient, patient
from tests.flare_runner import SiteWorkspace, site_context

__all__ = ["patient"]  # a fixture

pytestmark = pytest.mark.usefixtures("wire")

SOURCES = Path(fdg_plugins.__file__).parent
FIRING = ("log_warning", "log_error", "log_critical")  # unless told otherwise, these fire an event with the text
SILENT = ("log_debug", "log_info", "log_exception")  # these do so only if they are told to


@pytest.fixture
def collector() -> InfoCollector:
    """The component of a site's job that keeps the texts of events for ``show_errors``."""
    return InfoCollector()


def listening(context: FLContext, collector: InfoCollector) -> FLContext:
    """Return the context, of which every event reaches the collector, as in FLARE."""

    def fire(event: str, fl_ctx: FLContext) -> None:
        fire_event_to_components(event, [collector], fl_ctx)

    context.get_engine().fire_event = fire
    return context


@pytest.fixture
def overheard(patient: Patient, collector: InfoCollector) -> Patient:
    make = patient.site.context
    patient.site.context = lambda job="job": listening(make(job), collector)  # type: ignore[method-assign]
    return patient


@pytest.mark.parametrize("accident", ACCIDENTS, ids=lambda one: one.__name__)
def test_errors_of_a_site_are_in_its_own_log_alone(
    overheard: Patient, collector: InfoCollector, accident: Accident, caplog: pytest.LogCaptureFixture
) -> None:
    accident(overheard)
    assert "failed: " in caplog.text
    assert collector.get_errors() is None


@pytest.mark.parametrize(
    "make", [partial(DifferentialPrivacyFilter, 1.0, 8.0, 10.0), GapReportFilter, RoundedUpdateSendFilter]
)
def test_a_filter_that_refuses_an_answer_tells_nothing_through_events(
    make: Callable[[], Filter], tmp_path: Path, collector: InfoCollector, caplog: pytest.LogCaptureFixture
) -> None:
    context = listening(site_context("photo", SiteWorkspace(tmp_path)), collector)
    update = DXO(DataKind.WEIGHT_DIFF, data={"w": torch.tensor([float("nan")])}, meta={META_REPORT: "none"})
    reply = make().process(update.to_shareable(), context)
    assert "DXO" not in reply
    assert caplog.records
    assert collector.get_errors() is None


def test_no_component_of_a_site_logs_with_an_event() -> None:
    at_server = {path.rpartition(".")[2] for path in class_paths(SERVER)} | {"RunReceiver"}
    modules = (path for path in SOURCES.rglob("*.py") if path.parent != SOURCES / "controllers")
    found = {site for path in modules for site in firing_calls(path)}
    assert {place for place in found if place[1] not in at_server} == set()
    assert ("filters/gap.py", "GapCheckFilter") in found, "the search finds calls"


def firing_calls(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the module and the class of every call that logs with an event."""
    for one in ast.walk(ast.parse(path.read_text())):
        if isinstance(one, ast.ClassDef):
            for call in ast.walk(one):
                if isinstance(call, ast.Call) and fires(call):
                    yield str(path.relative_to(SOURCES)), one.name


def fires(call: ast.Call) -> bool:
    """Return whether a call logs with an event, for all that its text says."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if name not in (*FIRING, *SILENT):
        return False
    told = {argument.arg: argument.value for argument in call.keywords}.get("fire_event")
    if told is None:
        return name in FIRING or len(call.args) > 2
    return not (isinstance(told, ast.Constant) and told.value is False)
