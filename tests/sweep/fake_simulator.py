# SPDX-License-Identifier: Apache-2.0
"""Stands in for the one-process engine in the tests of a sweep: does to a run's folder what its seed says.

Nothing is trained. Seed 0 and others finish at once; 5 finishes, and its process is killed; 6 finishes, and its process
goes on; 7 stops for a reason that it records; 8 dies without a word; 9 never ends, and has a process of its own
session, as FLARE's sites have.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

CRASHES, LINGERS, STOPS, DIES, HANGS = 5, 6, 7, 8, 9
FAKE = (sys.executable, __file__)
REASON = "site photo: its disk is full."


def read_protocol(job: Path) -> dict[str, Any]:
    """Return the protocol of a federation's job, or what the plan of a reference has of it."""
    if (job / "plan.json").is_file():
        return {"seed": json.loads((job / "plan.json").read_text())["seed"], "rounds": 4}
    config = json.loads((job / "app_server" / "config" / "config_fed_server.json").read_text())
    protocol: dict[str, Any] = config["workflows"][0]["args"]["protocol"]
    return protocol


def main() -> None:
    protocol, folder = read_protocol(Path(sys.argv[1])), Path(sys.argv[2], "server", "simulate_job")
    folder.mkdir(parents=True)
    record: dict[str, Any] = {"status": "running", "stopped_because": None, "rounds": [{}], "protocol": protocol}
    record["environment"] = {name: os.environ.get(name) for name in ("FDG_THREADS", "CUDA_VISIBLE_DEVICES", "PWD")}
    record["arguments"] = sys.argv[1:]
    sys.stdout.write("round 1 of the run\n")
    sys.stdout.flush()
    if protocol["seed"] == DIES:
        sys.exit(3)
    if protocol["seed"] == HANGS:
        (folder / "results.json").write_text(json.dumps(record))
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
        time.sleep(600)
    stops = protocol["seed"] == STOPS
    record |= {"status": "stopped", "stopped_because": REASON} if stops else {"status": "finished"}
    for name in ("global_model.safetensors", "global_model_selected.safetensors"):
        (folder / name).write_bytes(b"model")
    (folder / "local_models").mkdir()
    (folder / "local_models" / "photo.safetensors").write_bytes(b"model")
    (folder / "next").write_text(json.dumps(record))
    (folder / "next").rename(folder / "results.json")
    if protocol["seed"] == CRASHES:
        os.kill(os.getpid(), signal.SIGKILL)
    if protocol["seed"] == LINGERS:
        time.sleep(600)
    sys.exit(2 if stops else 0)


if __name__ == "__main__":
    main()
