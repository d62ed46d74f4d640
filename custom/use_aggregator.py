# SPDX-License-Identifier: Apache-2.0
"""Let a job use an aggregator of one's own: its class becomes a component, and the name of ours is taken out.

python custom/use_aggregator.py JOB clipped_fedavg.ClippedFedAvgAggregator ['{"weighting": "uniform"}']
"""

import json
import sys
from pathlib import Path
from typing import Any

CONFIG = Path("app_server", "config", "config_fed_server.json")


def use_aggregator(job: Path, class_path: str, arguments: dict[str, Any]) -> None:
    """Change the server's config of ``job``."""
    config = json.loads((job / CONFIG).read_text(encoding="utf-8"))
    config["workflows"][0]["args"].pop("aggregator", None)
    others = [component for component in config["components"] if component["id"] != "aggregator"]
    config["components"] = [*others, {"id": "aggregator", "path": class_path, "args": arguments}]
    (job / CONFIG).write_text(json.dumps(config, indent=4), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4) or not (Path(sys.argv[1]) / CONFIG).is_file():
        sys.exit(f"usage: python {sys.argv[0]} JOB MODULE.CLASS [ARGUMENTS AS JSON]; JOB is a folder that has {CONFIG}")
    use_aggregator(Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]) if len(sys.argv) == 4 else {})
