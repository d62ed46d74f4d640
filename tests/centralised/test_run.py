# SPDX-License-Identifier: Apache-2.0
"""Whole runs on a few real digits: the record and the models that they leave, twice the same, and how they fail."""

from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import Result

from fdg_plugins.controllers import RunRecord
from fdg_plugins.data import DomainData, open_domain
from fdg_plugins.lab.analysis import find_runs
from fdg_plugins.lab.centralised import ALGORITHMS
from fdg_plugins.lab.centralised.algorithm import CentralisedERM
from fdg_plugins.lab.centralised.plan import make_plan
from fdg_plugins.lab.centralised.run import PooledTraining, endless_batches, run_centralised
from fdg_plugins.record.run_files import LAST_FILE, RESULTS_FILE, SELECTED_FILE
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.settings.site_config import SiteConfig
from fdg_plugins.storage import load_tensors
from fdg_plugins.training.global_model import initial_model
from fdg_plugins.training.loop import DevicePolicy
from tests.centralised.contract import adam, equal, own_batches, small_network
from tests.cli.commands import fdg
from tests.finished_runs import record_in

pytestmark = pytest.mark.usefixtures("no_fdg_variables")

TARGET = "angle_0"
RUN = ("erm", "fish", "fishr")  # one term, steps of its own, a state; the contract has all of them
TINY = {"steps": 4, "checkpoint_every": 2, "max_samples_per_domain": 20, "batch_size": 3, "image_size": 16}


def carry_out(folder: Path, algorithm: str = "erm", seed: int = 0, **given: Any) -> RunRecord:
    plan = make_plan(algorithm, "rotateddigits", TARGET, seed, {**TINY, **given})
    return run_centralised(plan, SiteConfig(device="cpu", compile=True), None, folder)


def same_tensors(one: Path, other: Path) -> bool:
    """Return whether two files hold the same bits; what they say of themselves may stand in another order."""
    first, second = load_tensors(one), load_tensors(other)
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of finished runs, each in a folder of its algorithm's name."""
    folder = tmp_path_factory.mktemp("runs")
    for algorithm in RUN:
        carry_out(folder / algorithm, algorithm)
    return folder


@pytest.mark.parametrize("algorithm", RUN)
def test_the_record_is_that_of_a_finished_run(folder: Path, algorithm: str) -> None:
    record = record_in(folder / algorithm)
    assert (record.status, record.stopped_because) == ("finished", None)
    assert (record.method.aggregator, record.method.objective) == (ALGORITHMS[algorithm].__name__, {"name": "erm"})
    assert (record.method.settings["steps"], record.method.settings["optimizer"]) == (4, "adam")
    assert (record.held_out, len(record.sources), record.protocol.rounds) == ((TARGET,), 5, 2)
    assert [evaluation.after_round for evaluation in record.evaluations] == [0, 1, 2]
    for finished in record.rounds:
        assert finished.sites == record.sources
        assert {(local.steps, bool(local.epoch_losses)) for local in finished.local.values()} == {(2, True)}
    for evaluation in record.evaluations:
        assert {name for name, score in evaluation.sites.items() if score.split == "test"} == {TARGET}
    for domain, reply in record.census.items():  # as a site of a federated run has it
        data = open_domain(None, "rotateddigits", domain, seed=0, max_samples=20)
        assert (reply.split, reply.split_hash, reply.compiled) == (data.name, data.digest, False)
    start = initial_model(record.protocol, 10).model.state
    last, selected = (load_tensors(folder / algorithm / file) for file in (LAST_FILE, SELECTED_FILE))
    chosen = {choice.rule: choice.after_round for choice in record.choices}["source_validation"]
    assert start.keys() == last.keys()
    for after, state in ((0, start), (2, last)):
        assert chosen != after or all(torch.equal(state[name], selected[name]) for name in state)
    assert record.evaluations[0] == record_in(folder / "erm").evaluations[0], "all start from one model"


def test_one_seed_gives_the_same_bits(folder: Path, tmp_path: Path) -> None:
    algorithm = "fishr"
    again = carry_out(tmp_path / "again", algorithm)
    for file in (LAST_FILE, SELECTED_FILE):
        assert same_tensors(tmp_path / "again" / file, folder / algorithm / file)
    assert again.evaluations == record_in(folder / algorithm).evaluations
    carry_out(tmp_path / "seldom", algorithm, checkpoint_every=4)
    assert same_tensors(tmp_path / "seldom" / LAST_FILE, folder / algorithm / LAST_FILE)
    carry_out(tmp_path / "other", algorithm, seed=1)
    assert not same_tensors(tmp_path / "other" / LAST_FILE, folder / algorithm / LAST_FILE)


@pytest.fixture(scope="module")
def domain() -> DomainData:
    """A domain of real digits, of which 20 train."""
    return open_domain(None, "rotateddigits", "angle_15", seed=3, max_samples=30)


def batches(domain: DomainData, count: int, size: int = 6, seed: int = 3) -> list[list[bytes]]:
    """Return the images of so many batches."""
    protocol = Protocol(dataset="rotateddigits", target=TARGET, batch_size=size, seed=seed, image_size=16)
    found = islice(endless_batches(domain, protocol), count)
    return [[image.numpy().tobytes() for image in images] for images, _ in found]


@pytest.mark.parametrize(("size", "per_pass"), [(6, 3), (19, 1), (64, 1)])
def test_batches_have_one_size_and_a_seeded_order(domain: DomainData, size: int, per_pass: int) -> None:
    found = batches(domain, 3 * per_pass, size)
    assert {len(batch) for batch in found} == {min(size, 20)}
    parts = (found[number * per_pass : (number + 1) * per_pass] for number in range(3))
    passes = [[image for batch in part for image in batch] for part in parts]
    assert all(len(set(shown)) == len(shown) for shown in passes)
    assert passes[0] != passes[1]
    assert batches(domain, 1, size) == found[:1] != batches(domain, 1, size, seed=4)


def test_the_mean_risks_are_those_of_the_steps() -> None:
    def training(model: Any) -> PooledTraining:
        policy = DevicePolicy(torch.device("cpu"))
        streams = [own_batches(number, 2) for number in range(2)]
        return PooledTraining(model, CentralisedERM(), streams, partial(adam, model), policy)

    model, other = small_network(), small_network()
    parts = training(model)
    apart = [parts.train(1) for _ in range(4)]
    risks = training(other).train(4)
    assert risks == pytest.approx([sum(values) / 4 for values in zip(*apart, strict=True)])
    assert equal(model, other)


def tiny(folder: Path, algorithm: str = "vrex", *options: object, **settings: object) -> Result:
    given = [part for name, value in {**TINY, **settings}.items() for part in ("--set", f"{name}={value}")]
    return fdg("run", algorithm, "--dataset", "rotateddigits", "--target", TARGET, "--to", folder, *options, *given)


def test_a_run_prints_its_checkpoints_and_the_final_table_and_leaves_record_and_models(tmp_path: Path) -> None:
    plugin = Path(__file__).parents[2] / "custom" / "clipped_fedavg.py"
    result = tiny(tmp_path / "run", "vrex", "--plugin", plugin, strength=3)
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[0].startswith(
        "V-REx on RotatedDigits, held out angle_0, 2 rounds of groupnorm_convnet, in one process"
    )
    assert [line.split(" | ")[0] for line in lines[1:3]] == ["round 1/2", "round 2/2"]
    assert f"fdg report {tmp_path / 'run'} --plugin {plugin}" in result.stdout
    left = {"job", "log.txt", "run.json", RESULTS_FILE, LAST_FILE, SELECTED_FILE}
    assert {path.name for path in (tmp_path / "run").iterdir()} == left
    assert record_in(tmp_path / "run").method.settings["strength"] == 3
    table = fdg("report", tmp_path).stdout.splitlines()
    assert table[table.index("References (pooled source data, or each site alone):") + 1].startswith("V-REx ")


def test_a_run_that_fails_after_it_has_begun_has_a_record_and_begins_anew(tmp_path: Path) -> None:
    result = tiny(tmp_path / "run", "erm", learning_rate="1e30")
    record = record_in(tmp_path / "run")
    assert (result.exit_code, record.status) == (1, "stopped")
    assert "learning_rate" in str(record.stopped_because)
    assert len(find_runs([tmp_path]).left_out) == 1
    assert tiny(tmp_path / "run", "erm").exit_code == 2, "its folder is not empty"
    file = tmp_path / "run" / "run.json"
    file.write_text(file.read_text().replace('"learning_rate": 1e+30', '"learning_rate": 0.001'))
    done = fdg("resume", tmp_path / "run")
    assert (done.exit_code, record_in(tmp_path / "run").status) == (0, "finished")
