# SPDX-License-Identifier: Apache-2.0
"""Methods by the bare command, where each task of each site has a process of its own, against one process."""

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
    "FDG_LEARNING_RATE": "0.02",
    "FDG_SERVER_LR": "1",
}


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


def test_without_mnist_the_jobs_of_rotatedmnist_fall_back_to_the_digits_and_say_so(simulator: Simulator) -> None:
    settings = {**TOY, "FDG_MAX_SAMPLES_PER_DOMAIN": "40", "FDG_MODEL": "cnn"}
    done = simulator.run_in_one_process("jobs/rotatedmnist_fedavg", settings)
    assert done.returncode == 0, done.log
    assert done.record().data == "STAND-IN for RotatedMNIST"
    assert done.lines("STAND-IN", "round 2/2")


@pytest.mark.nightly
@pytest.mark.parametrize("method", ["fedomg+ga+dim", "fedomg+iir"])
def test_three_methods_in_one_give_the_same_bits_in_torn_down_processes(
    simulator: Simulator, data_root: Path, method: str
) -> None:
    torn_and_whole(simulator, method, data_root)


def test_what_sites_keep_for_scaffold_outlives_their_processes(simulator: Simulator, data_root: Path) -> None:
    torn, _ = torn_and_whole(simulator, "scaffold", data_root)
    sent = [finished.bytes_down for finished in torn.record().rounds]
    assert sent[1] > sent[0], "the server's control variate goes down from the second round on"
    settings = {**TOY, "FDG_DATA_ROOT": str(data_root), "FDG_OBJECTIVE": "erm"}
    shutil.rmtree(simulator.folder / "one_process")
    plain = simulator.run_in_one_process("job", settings)
    assert plain.returncode == 0, plain.log
    assert not same_models(torn, plain)
