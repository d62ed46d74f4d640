# SPDX-License-Identifier: Apache-2.0
"""``nvflare simulator jobs/pacs_fedomg`` at toy size: with four threads, and in the slow suite without any flag."""

from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from fdg_plugins.storage import load_tensors

from .conftest import Simulation, Simulator

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


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory, data_root: Path) -> Simulation:
    """The bare command: one thread, so every task of every site has a process of its own."""
    simulator = Simulator(tmp_path_factory.mktemp("bare"))
    return simulator.run(JOB, settings={**TOY, "FDG_DATA_ROOT": str(data_root)})


@pytest.fixture(scope="module")
def threaded(tmp_path_factory: pytest.TempPathFactory, data_root: Path) -> Simulation:
    """The same with four threads, so every site has one process for the whole run."""
    simulator = Simulator(tmp_path_factory.mktemp("threaded"))
    return simulator.run(JOB, "-t", "4", settings={**TOY, "FDG_DATA_ROOT": str(data_root)})


def test_the_bare_command_ends_well_and_prints_a_line_per_round_and_epoch(bare: Simulation) -> None:
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


def test_one_thread_and_four_threads_give_the_same_bits(bare: Simulation, threaded: Simulation) -> None:
    assert threaded.returncode == 0, threaded.log
    for name in ("global_model.safetensors", "global_model_selected.safetensors"):
        one, four = load_tensors(bare.folder / name), load_tensors(threaded.folder / name)
        assert one.keys() == four.keys()
        for key, value in one.items():
            assert torch.equal(value, four[key]), key
    for one_round, four_round in zip(bare.record().rounds, threaded.record().rounds, strict=True):
        assert one_round.aggregation == four_round.aggregation
    assert bare.record().evaluations == threaded.record().evaluations


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
