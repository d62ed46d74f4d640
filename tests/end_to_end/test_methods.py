# SPDX-License-Identifier: Apache-2.0
"""Every other method's job, for two rounds at toy size: in one process, or by the bare command where that matters."""

import json
import shutil
from pathlib import Path

import pytest

from fdg_plugins.recipes import make_recipe
from fdg_plugins.storage import load_tensors
from fdg_plugins.testing.inputs import same_bits

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


DIGITS = {
    "FDG_DATASET": "rotateddigits",
    "FDG_TARGET": "angle_0",
    "FDG_IMAGE_SIZE": "16",
    "FDG_MAX_SAMPLES_PER_DOMAIN": "40",
    "FDG_ROUNDS": "2",
    "FDG_LOCAL_EPOCHS": "1",
    "FDG_THREADS": "1",
}


def run_here(simulator: Simulator, job: str, data_root: Path | None, **settings: str) -> Simulation:
    """Run a job in one process, which gives the bits of the simulator."""
    toy = {**TOY, "FDG_DATA_ROOT": str(data_root)} if data_root else DIGITS
    done = simulator.run_in_one_process(f"jobs/{job}", {**toy, **settings})
    assert done.returncode == 0, done.log
    return done


def torn_and_whole(simulator: Simulator, method: str, data_root: Path) -> tuple[Simulation, Simulation]:
    """Run a method by the bare command, where each task of each site has a process of its own, and in one process.

    There are two sources, since every turn of a site takes seconds there.
    """
    recipe = make_recipe(method, "pacs", name="job", target="photo", sites=["photo", "art_painting", "sketch"])
    recipe.export(str(simulator.folder))
    settings = {**TOY, "FDG_DATA_ROOT": str(data_root)}
    torn, whole = simulator.run("job", settings=settings), simulator.run_in_one_process("job", settings)
    for done in (torn, whole):
        assert done.returncode == 0, done.log
    assert same_models(torn, whole)
    assert [r.aggregation for r in torn.record().rounds] == [r.aggregation for r in whole.record().rounds]
    return torn, whole


def same_models(one: Simulation, other: Simulation) -> bool:
    models = [load_tensors(done.folder / "global_model.safetensors") for done in (one, other)]
    return same_bits(models[0], models[1])


def assert_gaps_moved_the_weights(done: Simulation) -> None:
    first, second = (finished.aggregation for finished in done.record().rounds)
    sources = done.record().sources
    assert first is not None
    assert second is not None
    assert first.gaps == dict.fromkeys(sources), "in the first round no site has a model of its own to compare with"
    assert set(first.weights.values()) == {1 / len(sources)}
    assert second.gaps is not None
    gaps = {site: gap for site, gap in second.gaps.items() if gap is not None}
    assert sorted(gaps) == sorted(sources)
    largest = max(gaps, key=gaps.__getitem__)
    assert second.weights[largest] == max(second.weights.values()) > 1 / len(sources)


def test_fedavg_runs(simulator: Simulator, data_root: Path) -> None:
    record = run_here(simulator, "pacs_fedavg", data_root).record()
    assert record.method.aggregator == "FedAvgAggregator"
    assert [finished.aggregation is not None for finished in record.rounds] == [True, True]


def test_fedga_moves_weights_by_the_gaps_that_the_sites_report(simulator: Simulator, data_root: Path) -> None:
    done = run_here(simulator, "pacs_fedga", data_root)
    assert_gaps_moved_the_weights(done)
    state = json.loads((done.folder / "server_state.json").read_text())
    assert state["after_round"] == 2
    second = done.record().rounds[1].aggregation
    assert second is not None
    assert state["aggregator"]["weighting"]["weights"] == pytest.approx(second.weights)


@pytest.mark.parametrize(
    "job",
    [
        *("pacs_feddim", "pacs_fedomg_iir", "pacs_fedomg_ga_dim"),
        *(pytest.param(job, marks=pytest.mark.nightly) for job in ("pacs_fediir", "pacs_fedomg_dim")),
    ],
)
def test_a_method_and_its_compositions_run(simulator: Simulator, data_root: Path, job: str) -> None:
    record = run_here(simulator, job, data_root).record()
    assert record.method.objective["name"] == ("iir" if "iir" in job else "dim")
    assert record.method.aggregator == ("FedOMGAggregator" if "omg" in job else "FedAvgAggregator")
    for finished in record.rounds:
        assert (set(finished.sites), finished.failures, finished.refused_reports) == (SOURCES, {}, {})
        assert finished.aggregation is not None
        assert (finished.aggregation.gaps is None) == ("_ga" not in job)
    assert (record.rounds[1].bytes_down > record.rounds[0].bytes_down) == ("dim" in job)


@pytest.mark.parametrize(
    "method", ["fedomg", *(pytest.param(name, marks=pytest.mark.nightly) for name in ("fedavg", "feddim", "fediir"))]
)
def test_the_jobs_of_rotatedmnist_run_on_digits_that_need_no_download(simulator: Simulator, method: str) -> None:
    record = run_here(simulator, f"rotatedmnist_{method}", None).record()
    assert (record.data, record.stand_in) == ("RotatedDigits", False)
    assert all(len(finished.sites) == 5 for finished in record.rounds)


def test_without_mnist_the_jobs_of_rotatedmnist_fall_back_to_the_digits_and_say_so(simulator: Simulator) -> None:
    settings = {name: value for name, value in DIGITS.items() if name != "FDG_DATASET"}
    done = simulator.run_in_one_process("jobs/rotatedmnist_fedavg", settings)
    assert done.record().data == "STAND-IN for RotatedMNIST"
    assert done.lines("STAND-IN", "round 2/2")


@pytest.mark.nightly
@pytest.mark.parametrize(("job", "objective"), [("pacs_feddim", "dim"), ("pacs_fediir", "iir")])
def test_strength_zero_is_fedavg_bit_for_bit_in_the_simulator(
    tmp_path_factory: pytest.TempPathFactory, data_root: Path, job: str, objective: str
) -> None:
    settings = {"FDG_WEIGHTING": "uniform"}
    plain = run_here(Simulator(tmp_path_factory.mktemp("plain")), "pacs_fedavg", data_root, **settings)
    zeroed = {"FDG_STRENGTH": "0", "FDG_BATCH_NORM": "average"}  # FedIIR's own rule is another
    zero = run_here(Simulator(tmp_path_factory.mktemp("zero")), job, data_root, **zeroed)
    assert zero.record().method.objective["strength"] == 0.0
    assert same_models(plain, zero)


@pytest.mark.nightly
def test_three_methods_in_one_give_the_same_bits_in_torn_down_processes(simulator: Simulator, data_root: Path) -> None:
    torn, _ = torn_and_whole(simulator, "fedomg+ga+dim", data_root)
    assert_gaps_moved_the_weights(torn)


@pytest.mark.nightly
def test_a_probe_gives_the_same_bits_in_torn_down_processes(simulator: Simulator, data_root: Path) -> None:
    torn_and_whole(simulator, "fedomg+iir", data_root)


def test_what_sites_keep_for_scaffold_outlives_their_processes(simulator: Simulator, data_root: Path) -> None:
    torn, _ = torn_and_whole(simulator, "scaffold", data_root)
    sent = [finished.bytes_down for finished in torn.record().rounds]
    assert sent[1] > sent[0], "the server's control variate goes down from the second round on"
    settings = {**TOY, "FDG_DATA_ROOT": str(data_root), "FDG_OBJECTIVE": "erm"}
    shutil.rmtree(simulator.folder / "one_process")
    plain = simulator.run_in_one_process("job", settings)
    assert plain.returncode == 0, plain.log
    assert not same_models(torn, plain)
