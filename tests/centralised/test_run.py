# SPDX-License-Identifier: Apache-2.0
"""Whole runs on a few images: record, models and bits, also of sites that train alone, and how they fail."""

from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors import safe_open
from typer.testing import Result

from fdg_plugins.controllers import RunRecord
from fdg_plugins.data import DomainData, SharedDomains, open_domain, own_data
from fdg_plugins.errors import SettingsError
from fdg_plugins.executors.work import SiteWork
from fdg_plugins.lab.analysis import find_runs
from fdg_plugins.lab.centralised import ALGORITHMS
from fdg_plugins.lab.centralised.algorithm import CentralisedERM
from fdg_plugins.lab.centralised.plan import make_plan
from fdg_plugins.lab.centralised.run import PooledTraining, endless_batches, run_centralised
from fdg_plugins.lab.engine.one_process import OneProcessJob
from fdg_plugins.lab.sweep.jobs import make_job
from fdg_plugins.lab.sweep.plan import Request
from fdg_plugins.lab.sweep.prepare import runs_of
from fdg_plugins.messages import ScoreSum
from fdg_plugins.plugins.own_dataset import DatasetRef
from fdg_plugins.recipes import FDGRecipe
from fdg_plugins.record.run_files import LAST_FILE, LOCAL_FOLDER, RESULTS_FILE, SELECTED_FILE
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.settings.site_config import FILE_NAME, SiteConfig
from fdg_plugins.storage import load_tensors, write_json
from fdg_plugins.training.global_model import initial_model
from fdg_plugins.training.loop import DevicePolicy
from tests.centralised.contract import adam, equal, own_batches, small_network
from tests.cli.commands import fdg
from tests.controllers.jobs import ANGLES
from tests.finished_runs import record_in, same_models

pytestmark = pytest.mark.usefixtures("no_fdg_variables")

TARGET = "angle_0"
RUN = ("erm", "fish", "fishr")  # one term, steps of its own, a state; the contract has all of them
TINY = {"steps": 4, "checkpoint_every": 2, "max_samples_per_domain": 20, "batch_size": 3, "image_size": 16}


def carry_out(folder: Path, algorithm: str = "erm", seed: int = 0, **given: Any) -> RunRecord:
    plan = make_plan(algorithm, "rotateddigits", TARGET, seed, {**TINY, **given})
    return run_centralised(plan, SiteConfig(device="cpu", compile=True), None, folder)


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
    assert same_models(tmp_path / "again", folder / algorithm)
    assert again.evaluations == record_in(folder / algorithm).evaluations
    carry_out(tmp_path / "seldom", algorithm, checkpoint_every=4)
    assert same_models(tmp_path / "seldom", folder / algorithm, LAST_FILE)
    carry_out(tmp_path / "other", algorithm, seed=1)
    assert not same_models(tmp_path / "other", folder / algorithm, LAST_FILE)


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
    assert lines[0].startswith("V-REx on RotatedDigits, held out angle_0, 2 rounds of groupnorm_convnet, in one")
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


SHORT: dict[str, Any] = {"rounds": 2, "local_epochs": 1, "batch_size": 4, "learning_rate": 0.05, "pretrained": "none"}
DIGITS = {**SHORT, "image_size": 16, "max_samples_per_domain": 20}


def alone(folder: Path, dataset: DatasetRef, target: str, settings: dict[str, Any], **config: Any) -> RunRecord:
    plan = make_plan("local", dataset, target, 0, settings)
    return run_centralised(plan, SiteConfig(device="cpu", least_count=1, **config), None, folder)


def test_one_site_is_fedavg_on_images_of_several_classes(tmp_path: Path) -> None:
    """A site alone has the very scores of a federation whose only source it is."""
    rows = ["image,edema,nodule", *(f"{number}.png,{number % 2},{int(number > 6)}" for number in range(12))]
    for domain in ("north", "south", "west"):
        (tmp_path / domain).mkdir()
        (tmp_path / domain / "labels.csv").write_text("\n".join(rows), encoding="utf-8")
        for number in range(12):
            Image.new("RGB", (16, 16), (20 * number, 0, 0)).save(tmp_path / domain / f"{number}.png")
    (tmp_path / "dataset.toml").write_text('task = "multilabel"\nclasses = ["edema", "nodule"]\n', encoding="utf-8")
    settings = {**SHORT, "image_size": 16, "model": "convnet", "scores": "auroc", "batch_norm": "reestimate"}
    dataset = own_data(tmp_path).dataset
    one = alone(tmp_path / "alone", dataset, "south", settings, data_root=tmp_path)
    recipe = FDGRecipe("fedavg", dataset, sites=["north", "south"], target="south", min_sites=1, **settings)
    recipe.export(str(tmp_path / "federated"))
    job, workspace = tmp_path / "federated" / recipe.name, tmp_path / "federated" / "workspace"
    config = {site: {"device": "cpu", "data_root": str(tmp_path)} for site in recipe.sites}
    write_json(workspace / "local" / FILE_NAME, config)
    assert OneProcessJob(job, workspace, SiteWork(SharedDomains())).run()
    mine, other = one.of_site("north"), record_in(workspace)
    chosen = [[(choice.rule, choice.after_round) for choice in record.choices] for record in (mine, other)]
    assert chosen[0] == chosen[1]
    assert [one.model_dump() for one in mine.evaluations] == [one.model_dump() for one in other.evaluations]
    assert len(mine.evaluations) == 3


def test_no_site_learns_from_another_and_each_chooses_by_its_own_images(tmp_path: Path) -> None:
    settings = {**DIGITS, "sites": 7, "sites_per_round": 6}
    record = alone(tmp_path, "rotateddigits", "angle_0", settings)
    first, *later = record.evaluations
    assert all(len({found[at].value("accuracy") for found in first.own.values()}) == 1 for at in first.sites)
    for evaluated in later:
        assert {site: own[site] for site, own in evaluated.own.items()}.items() < evaluated.sites.items()
        on_target = [own["angle_0"].value("accuracy") for own in evaluated.own.values()]
        assert evaluated.target == pytest.approx(sum(on_target) / 7)
    drawn = [record.protocol.draw_sites(record.sources, number) for number in (1, 2)]
    assert [finished.sites for finished in record.rounds] == drawn
    assert {path.stem for path in (tmp_path / LOCAL_FOLDER).iterdir()} == {*record.sources}
    for site, mine in zip(record.sources, record.alone, strict=True):
        with safe_open(tmp_path / LOCAL_FOLDER / f"{site}.safetensors", framework="pt") as file:
            assert int(file.metadata()["after_round"]) == mine.choices[1].after_round
    other = record.model_copy(deep=True)
    for own in (own for evaluated in other.evaluations for own in evaluated.own.values()):
        own["angle_0"] = own["angle_0"].model_copy(update={"sums": {"accuracy": ScoreSum(sum=0.0, count=20)}})
    for mine, theirs in zip(record.alone, other.alone, strict=True):
        assert mine.choices[:2] == theirs.choices[:2], "the held-out domain has no influence"
    ends = [alone(tmp_path / target, "rotateddigits", target, DIGITS).evaluations[-1] for target in ANGLES[:2]]
    assert ends[0].own["angle_60"]["angle_60"] == ends[1].own["angle_60"]["angle_60"]


def test_the_command_ends_with_the_models_at_each_site_and_report_and_figure_take_the_record(tmp_path: Path) -> None:
    def call(*words: object) -> list[str]:
        result = fdg(*words)
        assert (result.exit_code, result.stderr) == (0, "")
        return result.stdout.splitlines()

    given = [word for name, value in {**DIGITS, "rounds": 1}.items() for word in ("--set", f"{name}={value}")]
    lines = call("run", "local", "--dataset", "rotateddigits", "--to", tmp_path / "run", *given)
    assert lines[1].startswith("round 1/1 | sites 5/5 ")
    assert [line.split()[0] for line in lines if "(round " in line] == [*ANGLES[1:]]
    assert any(line.startswith("Local ") for line in call("report", tmp_path))
    call("plot", "convergence", tmp_path, "--to", tmp_path / "figures")


@pytest.mark.parametrize("stand_in", [False, True])
def test_a_sweep_gives_sites_alone_the_protocol_of_fedavg_apart_from_the_servers_step(*, stand_in: bool) -> None:
    asked = {"dataset": "pacs", "protocol": "fedomg", "methods": ("local", "fedavg"), "targets": ("sketch",)}
    request = Request(**asked, seeds=(3,), settings={"rounds": (7,), "server_lr": (0.5,)})
    found = [make_job(run, stand_in=stand_in) for run in runs_of(request)[0]]
    assert found[0].protocol == found[1].protocol
    assert [job.sites for job in found] == [1, 4]
    with pytest.raises(SettingsError):
        make_plan("local", "pacs", "sketch", 0, {"server_lr": 0.5})
