# SPDX-License-Identifier: Apache-2.0
"""Metrics reach StatsD by FLARE's own reporter, if the operator's environment asks for it, and cost no run anything."""

import os
import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from nvflare.apis.fl_constant import ReservedTopic
from nvflare.fuel.data_event.data_bus import DataBus

from fdg_plugins.controllers.monitoring import SERVER_METRICS
from fdg_plugins.errors import SettingsError
from fdg_plugins.flare import metrics
from fdg_plugins.flare.metrics import Metric, publish, publish_at_site, start_reporting, statsd_address
from fdg_plugins.lab.sweep.kinds import ONE_PROCESS
from fdg_plugins.recipes import make_recipe
from fdg_plugins.record.run_files import RESULTS_FILE, SIMULATOR_FOLDER
from fdg_plugins.storage import read_json

TAGS = {"run": "job-1", "method": "fedomg"}
SENT = (Metric("fdg_round", "gauge", 3.0), Metric("fdg_bytes_up", "counter", 70.0, {"site": "Zürich-1"}))


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
    publish(SENT, TAGS)
    publish([Metric("fdg_rounds", "gauge", 9.0)], TAGS)
    assert statsd.read(3) == [
        ("fdg_round", "g", 3.0, TAGS),
        ("fdg_bytes_up", "c", 70.0, {**TAGS, "site": "Zürich-1"}),
        ("fdg_rounds", "g", 9.0, TAGS),
    ]


def test_a_site_reports_as_its_own_operator_says(statsd: StatsD) -> None:
    publish_at_site(SENT[:1], {"site": "photo"})
    assert statsd.read(1) == [("fdg_round", "g", 3.0, {"site": "photo"})]


def test_without_an_address_nothing_is_sent_and_a_reporter_of_the_operators_own_gets_the_metrics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("FDG_STATSD", raising=False)
    start_reporting()
    seen: list[dict[str, Any]] = []
    bus = DataBus()
    listen = lambda topic, data, bus: seen.extend(data)  # noqa: E731
    bus.subscribe([ReservedTopic.APP_METRICS], listen)
    publish(SENT, TAGS)
    bus.unsubscribe(ReservedTopic.APP_METRICS, listen)
    assert [one["metric_name"] for one in seen] == ["fdg_round", "fdg_bytes_up"]


@pytest.mark.parametrize("text", ["localhost", ":9125", "localhost:", "a:b", "a:-1"])
def test_an_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match=r"^FDG_STATSD is .*, expected HOST:PORT, as in localhost:9125\.$"):
        statsd_address({"FDG_STATSD": text})


def test_addresses_are_read() -> None:
    assert statsd_address({}) is None
    assert statsd_address({"FDG_STATSD": " "}) is None
    assert statsd_address({"FDG_STATSD": "[::1]:9125"}) == ("::1", 9125)


def test_a_missing_package_stops_a_server_with_one_sentence_and_no_site(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(metrics, "find_spec", lambda name: None)
    monkeypatch.setenv("FDG_STATSD", "localhost:9125")
    wanted = r"FDG_STATSD needs the package datadog: pip install 'fdg-plugins\[monitoring\]'\."
    with pytest.raises(SettingsError, match=f"^{wanted}$"):
        start_reporting()
    publish_at_site(SENT, TAGS)
    assert re.search(wanted, caplog.text)


@pytest.mark.slow
@pytest.mark.usefixtures("no_fdg_variables")
def test_a_whole_run_is_seen_by_statsd_as_its_record_says(tmp_path: Path, data_root: Path) -> None:
    make_recipe("fedomg+ga", "pacs", name="job", model="convnet", image_size=16, rounds=2, local_epochs=1).export(
        str(tmp_path)
    )
    listener = StatsD()
    done = subprocess.run(
        [*ONE_PROCESS, str(tmp_path / "job"), str(tmp_path / "workspace")],
        env={**os.environ, "FDG_DATA_ROOT": str(data_root), "FDG_THREADS": "1", "FDG_STATSD": listener.address},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:]
    record = read_json(tmp_path / "workspace" / SIMULATOR_FOLDER / RESULTS_FILE)
    # For each round: ten numbers, whether each of three sites takes part, a duality gap and two scores; from the second
    # round on a gap for each site; and the scores of the last model.
    found = listener.read(2 * (10 + 3 + 1 + 2) + 3 + 2)
    assert {name for name, *_ in found} == SERVER_METRICS.keys() - {"fdg_site_left_out"}
    assert {tags["method"] for *_, tags in found} == {"fedomg_ga"}, "no label may hold a plus"
    seconds = [value for name, _, value, _ in found if name == "fdg_round_seconds"]
    assert seconds == pytest.approx([one["seconds"] for one in record["rounds"]], rel=1e-3)
    bytes_up = sum(value for name, _, value, _ in found if name == "fdg_bytes_up")
    assert bytes_up == sum(one["bytes_up"] for one in record["rounds"])
