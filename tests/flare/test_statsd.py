# SPDX-License-Identifier: Apache-2.0
"""Metrics reach StatsD by FLARE's own reporter, if the operator's environment asks for it, and cost no run anything."""

import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from nvflare.apis.fl_constant import ReservedTopic
from nvflare.app_common.abstract.fl_model import FLModel
from nvflare.fuel.data_event.data_bus import DataBus

from fdg_plugins.controllers.tracking import round_counters, round_gauges
from fdg_plugins.errors import SettingsError
from fdg_plugins.flare import metrics
from fdg_plugins.flare.metrics import publish, publish_at_site, start_reporting
from tests.controllers.rounds_stubs import UPDATES, Answer, all_well, make_rounds, trained
from tests.scripts import load_script

MONITORING = Path(__file__).parents[2] / "deploy" / "monitoring"
PAGE = MONITORING.parents[1] / "docs" / "monitoring.md"
ON_THE_PAGE = {
    name
    for names in re.findall(r"^\| (`fdg_[^|]+) \| (?:gauge|counter)", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    for name in re.findall(r"fdg_\w+", names)
}
TAGS = {"run": "job-1", "method": "fedomg"}


class StatsD:
    """Listens as StatsD does, by UDP."""

    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.settimeout(10)
        self.address = f"127.0.0.1:{self.socket.getsockname()[1]}"

    def read(self, count: int) -> list[tuple[str, str, float, dict[str, str]]]:
        """Return the next ``count`` metrics of ours as name, kind, value and tags."""
        found: list[tuple[str, str, float, dict[str, str]]] = []
        while len(found) < count:
            for line in self.socket.recv(65536).decode().splitlines():
                if match := re.fullmatch(r"(fdg_\w+):([^|]+)\|([cg])\|#(.*)", line):
                    name, value, kind, tags = match.groups()
                    labels = dict(tag.split(":", 1) for tag in tags.split(","))
                    found.append((name, kind, float(value), labels))
        return found


@pytest.fixture
def statsd(monkeypatch: pytest.MonkeyPatch) -> Iterator[StatsD]:
    """StatsD, to which this process may report."""
    listener = StatsD()
    monkeypatch.setenv("FDG_STATSD", listener.address)
    yield listener
    DataBus().subscribers.pop(ReservedTopic.APP_METRICS, None)
    metrics._start_reporter.cache_clear()
    listener.socket.close()


def test_metrics_arrive_once_with_kind_value_and_labels(statsd: StatsD) -> None:
    start_reporting()
    start_reporting()  # a second run in this process: still one reporter
    publish("gauge", {"fdg_round": 3, "fdg_gap": None}, TAGS)
    publish("counter", {"fdg_bytes_up": {"Zürich-1": 70, "Bern": None}}, TAGS)
    publish("gauge", {"fdg_rounds": 9.0}, TAGS)
    assert statsd.read(3) == [
        ("fdg_round", "g", 3.0, TAGS),
        ("fdg_bytes_up", "c", 70.0, {**TAGS, "site": "Zürich-1"}),
        ("fdg_rounds", "g", 9.0, TAGS),
    ]


def test_missing_package_stops_a_server(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("fdg_plugins.errors.find_spec", lambda name: None)
    monkeypatch.setenv("FDG_STATSD", "localhost:9125")
    with pytest.raises(SettingsError):
        start_reporting()
    publish_at_site({"fdg_round": 3}, TAGS)
    assert "needs the package datadog" in caplog.text
    monkeypatch.setenv("FDG_STATSD", "localhost")
    with pytest.raises(SettingsError) as refused:
        start_reporting()
    assert refused.value.field == "FDG_STATSD"


def test_a_lost_site_a_refused_update_and_the_others_are_told_apart(tmp_path: Path) -> None:
    def script(task: str, site: str, number: int, sent: FLModel) -> Answer:
        if task == "train" and site == "photo-2":
            return "is lost."
        if task == "train" and site == "cartoon":
            return trained(site, {**UPDATES[site], "w": UPDATES[site]["w"] * float("nan")}, samples=1)
        return all_well()(task, site, number, sent)

    rounds, _ = make_rounds(tmp_path, script, min_sites=1)
    finished, _ = rounds.run_round(1)
    found = {**round_counters(finished), **round_gauges(rounds.run.record, finished)}
    assert (found["fdg_updates_used"], found["fdg_updates_missing"]) == (1, 2)
    assert found["fdg_site_takes_part"] == {"cartoon": 0, "photo-1": 1, "photo-2": 0}
    assert found["fdg_bytes_up"] == finished.bytes_up > 0
    assert found.keys() <= ON_THE_PAGE


def test_the_dashboard_asks_for_each_metric_of_the_page() -> None:
    dashboard = (MONITORING / "dashboard.json").read_text(encoding="utf-8")
    assert json.loads(dashboard) == load_script(MONITORING / "make_dashboard.py").dashboard()
    assert {*re.findall(r"fdg_\w+", dashboard)} == ON_THE_PAGE
