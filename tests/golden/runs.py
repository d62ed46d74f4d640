# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.golden.runs FOLDER NAME...``: whole jobs in one process, and the hashes of what they leave.

Prints one JSON object: for each run the SHA-256 of its models, of the server's state after the last round but one, and
of the numbers of its record. ``PLAIN`` is the environment in which the bits depend on no processor; it is read when
torch is loaded. With ``--write`` instead of a folder, all runs are made and ``hashes.json`` is replaced.
"""

import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from PIL import Image

from fdg_plugins.controllers.run_files import ServerRun
from fdg_plugins.data import PACS, SharedDomains
from fdg_plugins.executors.work import SiteWork
from fdg_plugins.lab.engine.one_process import OneProcessJob
from fdg_plugins.recipes import METHODS, make_recipe
from fdg_plugins.record.run_files import LAST_FILE, RESULTS_FILE, SELECTED_FILE, SIMULATOR_FOLDER
from fdg_plugins.storage import load_tensors, read_json
from tests.conftest import write_domain

HASHES = Path(__file__).with_name("hashes.json")
# No vector instructions beyond the oldest, in torch's own code and in MKL's; one process, one thread.
PLAIN = {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE", "OMP_NUM_THREADS": "1", "FDG_ISOLATE": "false"}
ROUNDS = 3
TOY = {"rounds": ROUNDS, "local_epochs": 1, "batch_size": 8, "learning_rate": 0.02, "pretrained": "none"}
PHOTOS = {**TOY, "image_size": 16, "model": "convnet"}
MASKS = {**TOY, "image_size": 32, "model": "monai_unet"}
SKEWED = {
    **{**TOY, "model": "cnn", "sites_per_domain": 3, "partition": "dirichlet", "dirichlet_alpha": 0.5},
    **{"sites_per_round": 4, "max_samples_per_domain": 60, "least_images": 4, "batch_size": 16},
}
RESUMED = "resumed "
RUNS: dict[str, tuple[str, str, dict[str, Any]]] = {
    **{method: (method, "pacs", PHOTOS) for method in METHODS},
    "resumed fedomg+ga+dim": ("fedomg+ga+dim", "pacs", PHOTOS),
    "resumed scaffold": ("scaffold", "pacs", PHOTOS),
    "segmentation fedomg": ("fedomg", "vessels", MASKS),
    "segmentation feddim": ("feddim", "vessels", MASKS),
    "skewed fedavg": ("fedavg", "rotateddigits", SKEWED),
    "skewed fedomg+ga": ("fedomg+ga", "rotateddigits", SKEWED),
}
QUICK = ("fedavg", "fedomg+ga+dim", "resumed scaffold")
NO_NUMBERS = {"seconds", "aggregation_seconds", "bytes_down", "bytes_up", "bytes_in_files"}
NO_NUMBERS |= {"gradient_divergence", "gap_variance", "classifier_disagreement"}  # version 0.2.0 did not record them


class ServerKilled(BaseException):
    """The server's process is gone."""


def write_data(root: Path) -> None:
    """Write noise around colours as PACS, and crosses on noise with their masks as vessels.

    The domains of PACS differ in size and in the sizes of their classes, so that no method is FedAvg by accident.
    """
    for count, domain in enumerate(PACS.domains):
        write_domain(root, domain)
        for name in PACS.classes[: 2 * count]:
            for number in ("002", "003"):
                (root / "pacs" / domain / name / f"{number}.png").unlink()
    generator = np.random.default_rng(7)
    for domain in ("chase_db1", "drive", "hrf", "stare"):
        for kind in ("images", "masks"):
            (root / "vessels" / domain / kind).mkdir(parents=True)
        for index in range(8):
            row, column = generator.integers(4, 28, size=2)
            mask = np.zeros((32, 32), dtype=np.uint8)
            mask[row - 1 : row + 2] = mask[:, column - 1 : column + 2] = 255
            noise = generator.integers(0, 90, size=(32, 32, 3), dtype=np.uint8)
            Image.fromarray(noise + mask[:, :, None] // 2).save(root / "vessels" / domain / "images" / f"{index}.png")
            Image.fromarray(mask).save(root / "vessels" / domain / "masks" / f"{index}.png")


def tensors_hash(tensors: dict[str, torch.Tensor]) -> str:
    """Return the SHA-256 of names, shapes and bytes of all tensors, in the order of the names."""
    digest = hashlib.sha256()
    for name, value in sorted(tensors.items()):
        digest.update(f"{name} {value.dtype} {list(value.shape)}\n".encode())
        digest.update(value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def numbers(value: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """Yield the numbers of a record with their places in it, but for times and bytes sent."""
    if isinstance(value, dict):
        for name in sorted(value.keys() - NO_NUMBERS):
            yield from numbers(value[name], f"{path}/{name}")
    elif isinstance(value, list):
        for index, one in enumerate(value):
            yield from numbers(one, f"{path}/{index}")
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield path, value


def text_hash(value: Any) -> str:
    """Return the SHA-256 of a value's JSON."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def execute(name: str, folder: Path) -> dict[str, str]:
    """Run one of ``RUNS`` in a folder of its own and return its hashes; a resumed one is killed after two rounds."""
    method, dataset, settings = RUNS[name]
    make_recipe(method, dataset, name="job", **settings).export(str(folder))
    states: dict[int, str] = {}
    dies = resumed = name.startswith(RESUMED)
    save = ServerRun.save

    def watched(self: ServerRun) -> None:
        nonlocal dies
        save(self)
        exchange = (None, {}) if self.exchange is None else (self.exchange.state(), self.exchange.learned)
        state = [self.aggregator.state(), exchange[0], tensors_hash(dict(exchange[1]))]
        states[len(self.record.rounds)] = text_hash(state)
        if dies and len(self.record.rounds) == ROUNDS - 1:
            dies = False
            raise ServerKilled

    workspace = folder / "workspace"
    with mock.patch.object(ServerRun, "save", watched), mock.patch.dict(os.environ, FDG_STATE=str(folder / "state")):
        if resumed:
            with suppress(ServerKilled):
                OneProcessJob(folder / "job", folder / "killed", SiteWork(SharedDomains())).run()
        OneProcessJob(folder / "job", workspace, SiteWork(SharedDomains())).run()
    left = workspace / SIMULATOR_FOLDER
    record = read_json(left / RESULTS_FILE)
    assert record["status"] == "finished", record["stopped_because"]
    return {
        "model": tensors_hash(load_tensors(left / LAST_FILE)),
        "selected": tensors_hash(load_tensors(left / SELECTED_FILE)),
        "state": states[ROUNDS - 1],
        "record": text_hash([list(numbers(record[part], part)) for part in ("rounds", "evaluations")]),
    }


def main(folder: Path, names: list[str]) -> dict[str, dict[str, str]]:
    """Run what is named."""
    torch.backends.mkldnn.set_flags(_enabled=False, _fp32_precision=None)
    torch.backends.nnpack.set_flags(False)  # its tiles, and so its rounding, depend on the sizes of the caches
    torch.set_num_threads(1)
    os.environ["FDG_DATA_ROOT"] = str(folder / "data")
    write_data(folder / "data")
    return {name: execute(name, folder / name.replace(" ", "_")) for name in names}


if __name__ == "__main__":
    if sys.argv[1] == "--write":
        with tempfile.TemporaryDirectory() as folder_name:
            kept = {"torch": torch.__version__.partition("+")[0], "runs": main(Path(folder_name), list(RUNS))}
        HASHES.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    else:
        sys.stdout.write("\n" + json.dumps(main(Path(sys.argv[1]), sys.argv[2:])) + "\n")
