# SPDX-License-Identifier: Apache-2.0
"""``nvflare simulator jobs/pacs_fedomg`` at toy size: as it is, on the stand-in, and when something goes wrong."""

import json
import shutil
from pathlib import Path

import pytest
from safetensors import safe_open

from .conftest import Simulator

pytestmark = pytest.mark.slow

JOB = "jobs/pacs_fedomg"
TOY = {
    "FDG_MODEL": "convnet",
    "FDG_IMAGE_SIZE": "16",
    "FDG_ROUNDS": "2",
    "FDG_LOCAL_EPOCHS": "2",
    "FDG_TARGET": "sketch",
    "FDG_LEARNING_RATE": "0.02",
    "FDG_SERVER_LR": "1",
}


def test_the_bare_command_prints_a_line_per_round_and_epoch(simulator: Simulator, data_root: Path) -> None:
    # With one thread, every task of every site has a process of its own.
    bare = simulator.run(JOB, settings={**TOY, "FDG_DATA_ROOT": str(data_root)})
    assert bare.returncode == 0, bare.log
    assert len(bare.lines("round 1/2 |", "sites 3/3", "source val", "target sketch", "ETA")) == 1
    assert len(bare.lines("round 2/2 |", "sites 3/3", "model after round 1")) == 1
    for site in ("photo", "art_painting", "cartoon"):
        assert len(bare.lines(f"site {site} |", "epoch", "train loss")) == 4
    assert not bare.lines("site sketch |", "epoch"), "the held-out site trained"
    assert len(bare.lines("selected by source validation (round")) == 1
    assert not bare.lines("STAND-IN")
    # From FLARE: the simulator is deprecated, no number of threads was given. From us: no ImageNet weights.
    assert len(bare.lines("WARNING")) <= 3
    assert "Traceback" not in bare.log


def tags_in(folder: Path) -> dict[str, int]:
    """Return how often each of TensorBoard's tags was written below ``folder``."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # takes seconds

    tags: dict[str, int] = {}
    for path in (folder / "tb_events").rglob("events.out.tfevents.*"):
        events = EventAccumulator(str(path.parent))
        events.Reload()
        tags |= {tag: len(events.Scalars(tag)) for tag in events.Tags()["scalars"]}
    return tags


def test_without_data_the_stand_in_is_used_and_said_in_every_line(simulator: Simulator, tmp_path: Path) -> None:
    settings = {"FDG_ROUNDS": "1", "FDG_LOCAL_EPOCHS": "1", "FDG_THREADS": "1", "FDG_CACHE": str(tmp_path / "cache")}
    run = simulator.run_in_one_process(JOB, settings)
    assert run.returncode == 0, run.log
    assert run.record().stand_in
    assert run.record().data == "STAND-IN for PACS"
    for words in (["site", "epoch"], ["round 1/1 |"], ["Accuracy of the global model"], ["domain photo"]):
        lines = run.lines(*words)
        assert lines, words
        assert all("STAND-IN" in line for line in lines), lines
    with safe_open(run.folder / "global_model.safetensors", framework="pt") as file:
        assert "STAND-IN" in file.metadata()["dataset"]
    tags = tags_in(run.folder)
    assert tags
    assert all(tag.startswith("STAND-IN/") for tag in tags)


SHORT = {"FDG_MODEL": "convnet", "FDG_IMAGE_SIZE": "16", "FDG_ROUNDS": "1", "FDG_LOCAL_EPOCHS": "1", "FDG_THREADS": "1"}


def test_unreadable_image_is_named(simulator: Simulator, data_root: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(data_root, damaged)
    (damaged / "pacs" / "cartoon" / "dog" / "000.png").write_bytes(b"not an image")
    local = tmp_path / "simulator_workspace" / "local"
    local.mkdir(parents=True)
    sites = ("photo", "art_painting", "cartoon", "sketch")
    config = {site: {"data_root": str(damaged if site == "cartoon" else data_root)} for site in sites}
    (local / "fdg_site.json").write_text(json.dumps(config))
    # The site's own config wins: the environment names a folder that does not exist.
    run = simulator.run(JOB, "-t", "4", settings={**SHORT, "FDG_DATA_ROOT": str(tmp_path / "nowhere")})
    assert run.returncode != 0
    assert run.lines("site cartoon cannot take part", "cartoon/dog/000.png"), "a simulation names the file"
    assert run.lines("site cartoon | task 'census' failed", "cartoon/dog/000.png")
    assert not run.lines("site photo cannot take part")
