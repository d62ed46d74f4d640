# SPDX-License-Identifier: Apache-2.0
"""A thousand sites in one process: ten of them train in each round, all are counted and judged in the end."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fdg_plugins.data import PACS
from fdg_plugins.lab.sweep.kinds import ONE_PROCESS
from fdg_plugins.recipes import make_recipe
from fdg_plugins.record.run_files import RESULTS_FILE, SIMULATOR_FOLDER
from fdg_plugins.storage import read_json, write_json
from tests.processes import printed_by

pytestmark = [pytest.mark.nightly, pytest.mark.usefixtures("no_fdg_variables")]

SITES, DRAWN, ROUNDS, PIXELS = 1000, 10, 2, 16
SOURCES = ("art_painting", "cartoon", "photo")
PER_CLASS = 500  # images of a source; a tenth validates, so that each of 334 parts has one


def draw_images(root: Path) -> None:
    """Draw a data root in PACS' layout: a file of noise for each image, of the colour of its class."""
    generator = np.random.default_rng(0)
    for domain in (*SOURCES, "sketch"):
        for name in PACS.classes:
            folder = root / "pacs" / domain / name
            folder.mkdir(parents=True)
            for number in range(PER_CLASS if domain in SOURCES else 4):
                pixels = generator.integers(0, 256, size=(PIXELS, PIXELS, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{number:03d}.png", compress_level=0)


def write_job(folder: Path) -> None:
    """Write the job of a thousand sources and a held-out site, and what each of them holds."""
    entries = {"sketch": {"domain": "sketch"}}
    for at, domain in enumerate(SOURCES):
        count = len(range(at, SITES, len(SOURCES)))
        entries |= {f"{domain}-{n}": {"domain": domain, "part": f"{n}/{count}"} for n in range(1, count + 1)}
    settings: dict[str, Any] = {"rounds": ROUNDS, "local_epochs": 1, "sites_per_round": DRAWN, "image_size": PIXELS}
    settings |= {"target": "sketch", "model": "convnet", "pretrained": "none"}
    recipe = make_recipe("fedavg", "pacs", sites=list(entries), name="job", **settings)
    recipe.export(str(folder))
    write_json(folder / "workspace" / "local" / "fdg_site.json", entries)


def test_a_thousand_sites_finish(tmp_path: Path) -> None:
    draw_images(tmp_path / "data")
    write_job(tmp_path)
    given = {"FDG_DATA_ROOT": str(tmp_path / "data"), "FDG_THREADS": "1"}
    printed_by(*ONE_PROCESS, tmp_path / "job", tmp_path / "workspace", **given)
    record = read_json(tmp_path / "workspace" / SIMULATOR_FOLDER / RESULTS_FILE)
    assert record["status"] == "finished"
    assert [len(one["local"]) for one in record["rounds"]] == [DRAWN] * ROUNDS
