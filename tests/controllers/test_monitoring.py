# SPDX-License-Identifier: Apache-2.0
"""What an operator sees of a run agrees with its record, and the dashboard asks for what is sent."""

import importlib.util
import json
import re
from pathlib import Path

from nvflare.app_common.abstract.fl_model import FLModel

from fdg_plugins.controllers.monitoring import COUNTERS, SERVER_METRICS, SITE_METRICS, round_metrics
from tests.controllers.rounds_stubs import UPDATES, Answer, all_well, make_rounds, trained

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
    panels = json.loads((MONITORING / "dashboard.json").read_text())["panels"]
    queries = [target["expr"] for panel in panels for target in panel["targets"]]
    assert {name for query in queries for name in re.findall(r"fdg_\w+", query)} == {*SERVER_METRICS, *SITE_METRICS}
    for query in queries:
        (name,) = re.findall(r"fdg_\w+", query)
        assert ("rate(" in query or "increase(" in query) is (name in COUNTERS), query


def test_the_dashboard_kept_is_the_one_that_its_program_makes() -> None:
    spec = importlib.util.spec_from_file_location("make_dashboard", MONITORING / "make_dashboard.py")
    assert spec is not None
    assert spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    assert json.loads((MONITORING / "dashboard.json").read_text()) == program.dashboard()


def test_the_page_names_every_metric() -> None:
    page = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
    assert {*SERVER_METRICS, *SITE_METRICS} <= set(re.findall(r"`(fdg_\w+)`", page))
