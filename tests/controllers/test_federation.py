# SPDX-License-Identifier: Apache-2.0
"""The workflow from end to end in one process: real sites on small images, FLARE's handling of results between."""

import errno
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.widgets.info_collector import GroupInfoCollector, InfoCollector

from fdg_plugins import storage
from fdg_plugins.data import PACS
from fdg_plugins.messages import HEADER_REASON, HEADER_STOP, TASK_CENSUS, TASK_EVALUATE, TASK_TRAIN
from fdg_plugins.record.run_files import LAST_FILE
from fdg_plugins.storage import load_tensors
from tests.controllers.federation_stubs import context_of
from tests.controllers.jobs import PROTOCOL, Job

pytestmark = pytest.mark.usefixtures("wire", "images_at_sites")


def test_a_site_that_the_job_names_and_that_is_not_connected_stops_the_job(tmp_path: Path) -> None:
    """FLARE starts a job without it as soon as min_clients others are there."""
    job = Job(tmp_path)
    job.deploy_map = {"app_server": ["server"], "app_site": ["ward_1", *PACS.domains, "ward_2"]}
    job.run()
    assert job.asked == []
    (told,) = job.panics
    assert told.startswith("site ward_1 of the job's deploy_map does not take part (2 in all)")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"protocol": "rounds=3"}, "protocol"),
        ({"aggregator": ["fedavg"]}, "aggregator"),
        ({"aggregator": {"name": "fedomg", "weighting": "foo"}}, "weighting"),
        ({"resume": "../other"}, "run"),
        ({"resume": "never"}, "no checkpoint"),
    ],
)
def test_a_wrong_job_stops_before_any_site_is_asked(tmp_path: Path, arguments: dict[str, Any], named: str) -> None:
    job = Job(tmp_path, **arguments)
    job.run()
    (told,) = job.panics
    assert named in told
    assert "\n" not in told
    assert job.asked == []


def test_an_aborted_run_is_recorded_as_stopped_without_a_panic(tmp_path: Path) -> None:
    def meddle(site: str, task: str, count: int) -> None:
        if task == TASK_TRAIN:
            job.signal.trigger(True)

    job = Job(tmp_path, meddle=meddle)
    job.finished()
    assert job.record.status == "stopped"
    assert str(job.record.stopped_because).startswith("the job was aborted")


def test_a_site_that_takes_no_further_part_is_asked_no_more_and_the_others_go_on(tmp_path: Path) -> None:
    def meddle(site: str, asked: str, count: int) -> Shareable | None:
        if (site, asked) != ("photo", TASK_TRAIN):
            return None
        headers = {HEADER_REASON: "site photo: its privacy budget is spent.", HEADER_STOP: True}
        return make_reply(ReturnCode.EXECUTION_EXCEPTION, headers)

    job = Job(tmp_path, meddle=meddle).finished()
    assert [len(finished.drawn) for finished in job.record.rounds] == [3, 2]
    assert job.record.rounds[0].failures == {"photo": "its privacy budget is spent."}
    assert job.record.left_out == {"photo": "takes no further part: its privacy budget is spent."}
    assert "photo" not in job.record.evaluations[-1].sites
    assert job.record.status == "finished"


@pytest.mark.parametrize(
    ("arguments", "report"),
    [
        ({"aggregator": "fedga"}, "gap"),
        ({"protocol": {**PROTOCOL, "objective": "dim"}}, "class_means"),
        ({"protocol": {**PROTOCOL, "batch_norm": "reestimate"}}, "normalization_statistics"),
    ],
)
def test_forbidden_report_fails_at_the_census(tmp_path: Path, arguments: dict[str, Any], report: str) -> None:
    job = Job(tmp_path, **arguments)
    folder = tmp_path / "sites" / "cartoon" / "local"
    folder.mkdir(parents=True)
    (folder / "fdg_site.json").write_text('{"cartoon": {"allowed_reports": []}}')
    job.run()
    (told,) = job.panics
    assert told.startswith(f"site cartoon forbids the report {report!r}")
    assert {task for task, _ in job.asked} == {TASK_CENSUS}


def test_full_disk_at_the_server_keeps_the_last_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job, made = Job(tmp_path), 0
    temporary = storage._temporary

    def full(place: Path, private: bool) -> AbstractContextManager[Path]:
        nonlocal made
        made += "sites" not in place.parts
        if made > 9:
            raise OSError(errno.ENOSPC, "No space left on device")
        return temporary(place, private)

    monkeypatch.setattr(storage, "_temporary", full)
    job.run()
    assert len(job.panics) == 1
    assert job.panics[0].endswith("cannot be written: No space left on device.")
    assert load_tensors(tmp_path / LAST_FILE)
    assert job.record.status == "running"


def test_flares_stats_tell_where_the_run_stands(tmp_path: Path) -> None:
    job, seen = Job(tmp_path), []

    def look(site: str, task: str, count: int) -> None:
        context, collector = context_of(job.engine), GroupInfoCollector()
        context.set_prop(InfoCollector.CTX_KEY_STATS_COLLECTOR, collector, private=True, sticky=False)
        job.controller.handle_event(InfoCollector.EVENT_TYPE_GET_STATS, context)
        seen.append((task, collector.info["FederationController"]))

    job.meddle = look
    job.run()
    assert seen[0] == (TASK_CENSUS, {"phase": "census"})
    task, stats = seen[-1]
    assert task == TASK_EVALUATE
    assert (stats["phase"], stats["current_round"], stats["num_rounds"]) == ("running", 2, 2)
    assert 0 <= stats["source_validation_accuracy"] <= 1
