# SPDX-License-Identifier: Apache-2.0
"""Writes Grafana's dashboard, ``dashboard.json`` beside it: ``python deploy/monitoring/make_dashboard.py``."""

import json
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("dashboard.json")
RUN = '{run=~"$run"}'
SOURCE = {"type": "prometheus", "uid": "fdg-prometheus"}
WIDTH, HEIGHT = 12, 8

PANELS = (
    ("Round", "short", {"{{method}} on {{target}}": f"fdg_round{RUN}", "of": f"fdg_rounds{RUN}"}),
    ("Score", "percentunit", {"sources": f"fdg_source_score{RUN}", "held-out domain": f"fdg_target_score{RUN}"}),
    ("Seconds of a round", "s", {"round": f"fdg_round_seconds{RUN}", "combining": f"fdg_aggregation_seconds{RUN}"}),
    ("Sites that take part", "short", {"{{site}}": f"fdg_site_takes_part{RUN}"}),
    (
        "Updates in five minutes",
        "short",
        {
            "used": f"increase(fdg_updates_used{RUN}[5m])",
            "lost, late, failed or refused": f"increase(fdg_updates_missing{RUN}[5m])",
            "reports refused": f"increase(fdg_reports_refused{RUN}[5m])",
            "rounds without a step": f"increase(fdg_model_unchanged{RUN}[5m])",
        },
    ),
    ("Sites left out for good", "short", {"{{site}}": f"fdg_site_left_out{RUN}"}),
    (
        "Bytes a second",
        "Bps",
        {"to sites": f"rate(fdg_bytes_down{RUN}[5m])", "from sites": f"rate(fdg_bytes_up{RUN}[5m])"},
    ),
    ("Gaps", "short", {"{{site}}": f"fdg_gap{RUN}"}),
    ("Duality gap of the matching", "sci", {"{{method}}": f"fdg_duality_gap{RUN}"}),
    (
        "Privacy budget",
        "short",
        {"{{site}}: spent": f"fdg_epsilon_spent{RUN}", "{{site}}: left": f"fdg_epsilon_left{RUN}"},
    ),
)


def dashboard() -> dict[str, Any]:
    """Return the dashboard."""
    run = {
        "name": "run",
        "type": "query",
        "datasource": SOURCE,
        "query": "label_values(fdg_round, run)",
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "current": {"text": "All", "value": "$__all"},
    }
    return {
        "uid": "fdg",
        "title": "Federated domain generalization",
        "schemaVersion": 39,
        "refresh": "5s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [run]},
        "panels": [_panel(number, *panel) for number, panel in enumerate(PANELS)],
    }


def _panel(number: int, title: str, unit: str, lines: dict[str, str]) -> dict[str, Any]:
    row, column = divmod(number, 2)
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": title,
        "datasource": SOURCE,
        "gridPos": {"x": column * WIDTH, "y": row * HEIGHT, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": unit}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + at), "datasource": SOURCE, "expr": query, "legendFormat": legend}
            for at, (legend, query) in enumerate(lines.items())
        ],
    }


if __name__ == "__main__":
    FILE.write_text(json.dumps(dashboard(), indent=1) + "\n", encoding="utf-8")
