# SPDX-License-Identifier: Apache-2.0
"""Stands in for FLARE's simulator in the tests of a run: writes prepared records one after the other, trains nothing.

``fake_run.py RECORDS END``: ``finishes`` leaves what a run leaves; ``dies late`` does too, and then ends badly;
``dies`` ends without a word; ``hangs`` never ends, and has a process in a session of its own, as FLARE's sites have.
"""

import shutil
import subprocess
import sys
import time
from pathlib import Path


def main() -> None:
    records, end = Path(sys.argv[1]), sys.argv[2]
    folder = Path("workspace", "server", "simulate_job")
    folder.mkdir(parents=True)
    (folder / "app_server").mkdir()
    sys.stdout.write("the log of the run\n")
    sys.stdout.flush()
    for record in sorted(records.glob("*.json")):
        shutil.copyfile(record, folder / "next")
        (folder / "next").rename(folder / "results.json")
        time.sleep(0.02)
    if end == "dies":
        sys.exit(3)
    if end == "hangs":
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
        time.sleep(600)
    for name in ("global_model.safetensors", "global_model_selected.safetensors", "server_state.json"):
        (folder / name).write_bytes(b"{}")
    for name in ("local_models", "tb_events"):
        (folder / name).mkdir()
        (folder / name / "file").write_bytes(b"content")
    if end == "dies late":
        sys.exit(3)


if __name__ == "__main__":
    main()
