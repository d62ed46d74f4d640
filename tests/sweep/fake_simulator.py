# SPDX-License-Identifier: Apache-2.0
"""Stands in for ``nvflare simulator`` and ``fdg run`` in the tests: does to a run's folder what its seed says.

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


def read_job() -> tuple[dict[str, Any], Path]:
    """Return the protocol of ``job [-w] workspace`` in the working folder, and where its record belongs."""
    job, workspace, *_ = (word for word in sys.argv[1:] if word != "-w")
    config = json.loads(Path(job, "app_server", "config", "config_fed_server.json").read_text())
    return config["workflows"][0]["args"]["protocol"], Path(workspace, "server", "simulate_job")


def read_options() -> tuple[dict[str, Any], Path]:
    """Return the same of ``run ALGORITHM --set seed=N ... --to FOLDER``."""
    (seed,) = (word.partition("=")[2] for word in sys.argv if word.startswith("seed="))
    return {"seed": int(seed), "rounds": 4}, Path(sys.argv[-1])


def main() -> None:
    """Do in the working folder what the command line says."""
    protocol, folder = read_options() if sys.argv[1] == "run" else read_job()
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
