# SPDX-License-Identifier: Apache-2.0
"""Every other method's job, as the bare command runs it, for two rounds at toy size."""

import json
from pathlib import Path

import pytest
import torch

from fdg_plugins.storage import load_tensors

from .conftest import Simulation, Simulator

pytestmark = pytest.mark.slow

TOY = {
    "FDG_MODEL": "convnet",
    "FDG_IMAGE_SIZE": "16",
    "FDG_THREADS": "1",
    "FDG_ROUNDS": "2",
    "FDG_LOCAL_EPOCHS": "1",
    "FDG_TARGET": "photo",
    "FDG_LEARNING_RATE": "0.02",
    "FDG_SERVER_LR": "1",
}
SOURCES = {"art_painting", "cartoon", "sketch"}


def run(simulator: Simulator, job: str, data_root: Path, *flags: str) -> Simulation:
    done = simulator.run(f"jobs/{job}", *flags, settings={**TOY, "FDG_DATA_ROOT": str(data_root)})
    assert done.returncode == 0, done.log
    return done


def assert_gaps_moved_the_weights(done: Simulation) -> None:
    first, second = (finished.aggregation for finished in done.record().rounds)
    assert first is not None
    assert second is not None
    assert first.gaps == dict.fromkeys(SOURCES), "in the first round no site has a model of its own to compare with"
    assert set(first.weights.values()) == {1 / 3}
    assert second.gaps is not None
    assert all(gap is not None for gap in second.gaps.values())
    largest = max(SOURCES, key=lambda site: second.gaps[site])
    assert second.weights[largest] == max(second.weights.values()) > 1 / 3


def test_fedavg_runs(simulator: Simulator, data_root: Path) -> None:
    record = run(simulator, "pacs_fedavg", data_root, "-t", "4").record()
    assert record.method.aggregator == "FedAvgAggregator"
    assert [finished.aggregation is not None for finished in record.rounds] == [True, True]


def test_fedga_moves_weights_by_the_gaps_that_the_sites_report(simulator: Simulator, data_root: Path) -> None:
    done = run(simulator, "pacs_fedga", data_root, "-t", "4")
    assert_gaps_moved_the_weights(done)
    state = json.loads((done.folder / "server_state.json").read_text())
    assert state["after_round"] == 2
    assert state["aggregator"]["weighting"]["weights"] == pytest.approx(done.record().rounds[1].aggregation.weights)


def test_fedomg_with_ga_gives_the_same_bits_in_torn_down_processes(
    tmp_path_factory: pytest.TempPathFactory, data_root: Path
) -> None:
    one = run(Simulator(tmp_path_factory.mktemp("one")), "pacs_fedomg_ga", data_root)
    four = run(Simulator(tmp_path_factory.mktemp("four")), "pacs_fedomg_ga", data_root, "-t", "4")
    assert_gaps_moved_the_weights(one)
    models = [load_tensors(done.folder / "global_model.safetensors") for done in (one, four)]
    assert all(torch.equal(value, models[1][name]) for name, value in models[0].items())
    assert [r.aggregation for r in one.record().rounds] == [r.aggregation for r in four.record().rounds]
