# SPDX-License-Identifier: Apache-2.0
"""What an operator sees of a run agrees with its record, and the dashboard asks for what is sent."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from nvflare.app_common.abstract.fl_model import FLModel

from fdg_plugins.controllers.monitoring import COUNTERS, SERVER_METRICS, SITE_METRICS, round_metrics
from tests.controllers.rounds_stubs import UPDATES, Answer, all_well, make_rounds, trained
from tests.scripts import load_script

ROOT = Path(__file__).parents[2]
MONITORING = ROOT / "deploy" / "monitoring"


def test_a_lost_site_a_refused_update_and_the_others_are_told_apart(tmp_path: Path) -> None:
    def script(task: str, site: str, number: int, sent: FLModel) -> Answer:
        if task == "train" and site == "photo-2":
            return "is lost."
        if task == "train" and site == "cartoon":
            return trained(site, {**UPDATES[site], "w": UPDATES[site]["w"] * float("nan")}, samples=1)
        return all_well()(task, site, number, sent)

    rounds, _ = make_rounds(tmp_path, script, min_sites=1)
    finished, _ = rounds.run_round(1)
    found = {(one.name, one.tags.get("site")): one.value for one in round_metrics(rounds.record, finished)}
    assert found["fdg_round", None] == 1
    assert (found["fdg_updates_used", None], found["fdg_updates_missing", None]) == (1, 2)
    takes_part = {site: found["fdg_site_takes_part", site] for site in ("cartoon", "photo-1", "photo-2")}
    assert takes_part == {"cartoon": 0, "photo-1": 1, "photo-2": 0}
    assert found["fdg_bytes_up", None] == finished.bytes_up > 0


def test_the_dashboard_asks_for_each_metric_that_is_sent_and_for_no_other() -> None:
    queries = dashboard_queries()
    assert {name for query in queries for name in re.findall(r"fdg_\w+", query)} == {*SERVER_METRICS, *SITE_METRICS}
    for query in queries:
        (name,) = re.findall(r"fdg_\w+", query)
        assert ("rate(" in query or "increase(" in query) is (name in COUNTERS), query


def test_the_dashboard_kept_is_the_one_that_its_program_makes() -> None:
    program = load_script(MONITORING / "make_dashboard.py")
    assert json.loads((MONITORING / "dashboard.json").read_text()) == program.dashboard()


def test_the_page_names_every_metric() -> None:
    page = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
    assert {*SERVER_METRICS, *SITE_METRICS} <= set(re.findall(r"`(fdg_\w+)`", page))


def test_the_alerts_are_those_of_the_page_and_ask_for_metrics_that_are_sent() -> None:
    page = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
    rules = yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"][0]["rules"]
    on_the_page = dict(re.findall(r"^\| `(\w+)`.*\| `(.+)` \|$", page, re.MULTILINE))
    assert {rule["alert"]: rule["expr"] for rule in rules}.items() <= on_the_page.items()
    assert len(rules) == 3
    for rule in rules:
        assert set(re.findall(r"fdg_\w+", rule["expr"])) <= {*SERVER_METRICS, *SITE_METRICS}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool, of Prometheus, is not installed")
def test_prometheus_takes_the_queries_and_raises_the_alerts(tmp_path: Path) -> None:
    queries = [
        {"record": f"query_{number}", "expr": query.replace("$run", ".*")}
        for number, query in enumerate(dashboard_queries())
    ]
    (tmp_path / "queries.yml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": queries}]}))
    for command in (
        ["test", "rules", "alerts_test.yml"],
        ["check", "config", "prometheus.yml"],
        ["check", "rules", str(tmp_path / "queries.yml")],
    ):
        ended = subprocess.run(["promtool", *command], cwd=MONITORING, capture_output=True, text=True, timeout=60)
        assert ended.returncode == 0, ended.stdout + ended.stderr


def dashboard_queries() -> list[str]:
    """Return what the panels ask Prometheus for."""
    panels = json.loads((MONITORING / "dashboard.json").read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel["targets"]]
