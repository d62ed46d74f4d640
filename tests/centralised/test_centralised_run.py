# SPDX-License-Identifier: Apache-2.0
"""Whole runs on a few real digits: the record and the models that they leave, twice the same, and how they stop."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from fdg_plugins.controllers import RunRecord
from fdg_plugins.data import open_domain
from fdg_plugins.errors import DataError, FDGError, SettingsError, Stopped
from fdg_plugins.lab.analysis import build_table, find_runs
from fdg_plugins.lab.analysis.figures.material import global_model
from fdg_plugins.lab.analysis.grid import to_grid
from fdg_plugins.lab.analysis.render_text import render_text
from fdg_plugins.lab.analysis.runs import Run
from fdg_plugins.lab.centralised import ALGORITHMS
from fdg_plugins.lab.centralised.plan import make_plan
from fdg_plugins.lab.centralised.run import run_centralised
from fdg_plugins.objectives import build_network
from fdg_plugins.record.run_files import LAST_FILE, RESULTS_FILE, SELECTED_FILE
from fdg_plugins.record.run_record import EvaluationRecord
from fdg_plugins.settings.site_config import SiteConfig
from fdg_plugins.storage import load_tensors
from fdg_plugins.training.global_model import initial_model

pytestmark = pytest.mark.usefixtures("no_fdg_variables")

TARGET = "angle_0"
TINY = {"steps": 4, "checkpoint_every": 2, "max_samples_per_domain": 20, "batch_size": 3, "image_size": 16}


class Watch:
    """A watcher that remembers, and that may want to stop after some steps."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.steps: list[int] = []
        self.evaluations: list[EvaluationRecord] = []
        self.begun_with: RunRecord | None = None
        self.stop_after = stop_after

    def begun(self, record: RunRecord) -> None:
        self.begun_with = record

    def stepped(self, steps_done: int) -> None:
        self.steps.append(steps_done)

    def judged(self, record: RunRecord, evaluation: EvaluationRecord) -> None:
        self.evaluations.append(evaluation)

    def should_stop(self) -> bool:
        return self.stop_after is not None and len(self.steps) >= self.stop_after


def carry_out(
    folder: Path, algorithm: str = "erm", watch: Watch | None = None, seed: int = 0, **given: Any
) -> RunRecord:
    plan = make_plan(algorithm, "rotateddigits", TARGET, seed, {**TINY, **given})
    watch = watch or Watch()
    return run_centralised(plan, SiteConfig(device="cpu"), None, folder, watch, watch.should_stop)


def read(folder: Path) -> RunRecord:
    return RunRecord.model_validate_json((folder / RESULTS_FILE).read_text(encoding="utf-8"))


def same_tensors(one: Path, other: Path) -> bool:
    """Return whether two files hold the same bits; what they say of themselves may stand in another order."""
    first, second = load_tensors(one), load_tensors(other)
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run of each algorithm, each in a folder of its name."""
    folder = tmp_path_factory.mktemp("runs")
    for algorithm in ALGORITHMS:
        carry_out(folder / algorithm, algorithm)
    return folder


@pytest.mark.parametrize("algorithm", list(ALGORITHMS))
def test_the_record_is_that_of_a_finished_run(folder: Path, algorithm: str) -> None:
    record = read(folder / algorithm)
    assert record.status == "finished"
    assert record.stopped_because is None
    assert (record.method.aggregator, record.method.objective) == (ALGORITHMS[algorithm].__name__, {"name": "erm"})
    assert (record.method.settings["steps"], record.method.settings["optimizer"]) == (4, "adam")
    assert record.held_out == (TARGET,)
    assert len(record.sources) == 5
    assert [evaluation.after_round for evaluation in record.evaluations] == [0, 1, 2]
    assert [finished.round for finished in record.rounds] == [1, 2]
    assert record.protocol.rounds == 2
    for finished in record.rounds:
        assert finished.sites == record.sources
        assert all(local.epoch_losses and local.epoch_losses[0] > 0 for local in finished.local.values())
        assert {local.steps for local in finished.local.values()} == {2}
    for evaluation in record.evaluations:
        assert {name for name, score in evaluation.sites.items() if score.split == "test"} == {TARGET}
        assert evaluation.sites[TARGET].count == record.census[TARGET].num_test == 20
    assert record.seconds > 0


@pytest.mark.parametrize("algorithm", list(ALGORITHMS))
def test_every_reference_trains_the_head_alone_if_the_protocol_says_so(tmp_path: Path, algorithm: str) -> None:
    record = carry_out(tmp_path / "run", algorithm, trainable="head", steps=1, checkpoint_every=1)
    first = build_network(record.protocol, len(record.classes)).state_dict()
    last = load_tensors(tmp_path / "run" / LAST_FILE)
    assert {name for name in first if not torch.equal(first[name], last[name])} == {
        "classifier.weight",
        "classifier.bias",
    }


def test_the_splits_are_those_that_a_site_of_a_federated_run_has(folder: Path) -> None:
    record = read(folder / "erm")
    for domain, reply in record.census.items():
        data = open_domain(None, "rotateddigits", domain, seed=0, max_samples=20)
        assert (reply.split, reply.split_hash) == (data.split, data.split_hash)
        assert (reply.num_train, reply.num_validation) == (len(data.train), len(data.validation))


@pytest.mark.parametrize("algorithm", list(ALGORITHMS))
def test_the_models_are_those_that_the_record_chose(folder: Path, algorithm: str) -> None:
    run = Run(folder / algorithm, read(folder / algorithm))
    chosen = {choice.rule: choice.after_round for choice in run.record.choices}
    assert chosen["last"] == 2
    last, selected = (global_model(run, rule) for rule in ("last", "source_validation"))
    assert (last.after_round, selected.after_round) == (2, chosen["source_validation"])
    equal = all(torch.equal(last.state[name], selected.state[name]) for name in last.state)
    assert equal == (chosen["source_validation"] == 2)
    if selected.after_round == 0:
        start = initial_model(run.record.protocol, 10).model.state
        assert all(torch.equal(start[name], selected.state[name]) for name in start)


def test_training_starts_from_the_model_of_the_federated_runs_and_changes_it(folder: Path) -> None:
    run = Run(folder / "erm", read(folder / "erm"))
    start, last = initial_model(run.record.protocol, 10).model.state, load_tensors(folder / "erm" / LAST_FILE)
    assert start.keys() == last.keys()
    assert not all(torch.equal(start[name], last[name]) for name in start)


def test_algorithms_with_one_seed_start_from_one_model(folder: Path) -> None:
    first = [read(folder / algorithm).evaluations[0] for algorithm in ALGORITHMS]
    assert all(evaluation == first[0] for evaluation in first)


@pytest.mark.parametrize("algorithm", ["erm", "groupdro", "fishr"])
def test_two_runs_with_one_seed_agree_to_the_bit(folder: Path, tmp_path: Path, algorithm: str) -> None:
    again = carry_out(tmp_path / "again", algorithm)
    for file in (LAST_FILE, SELECTED_FILE):
        assert same_tensors(tmp_path / "again" / file, folder / algorithm / file)
    first = read(folder / algorithm)
    assert again.evaluations == first.evaluations
    assert [[local.epoch_losses for local in done.local.values()] for done in again.rounds] == [
        [local.epoch_losses for local in done.local.values()] for done in first.rounds
    ]


def test_another_seed_is_another_run(folder: Path, tmp_path: Path) -> None:
    other = carry_out(tmp_path / "other", seed=1)
    assert other.census[TARGET].split_hash != read(folder / "erm").census[TARGET].split_hash
    assert not same_tensors(tmp_path / "other" / LAST_FILE, folder / "erm" / LAST_FILE)


def test_where_checkpoints_fall_makes_no_difference_to_training(folder: Path, tmp_path: Path) -> None:
    carry_out(tmp_path / "seldom", "groupdro", checkpoint_every=4)
    assert same_tensors(tmp_path / "seldom" / LAST_FILE, folder / "groupdro" / LAST_FILE)


def test_the_report_shows_all_of_them_in_a_block_of_their_own(folder: Path) -> None:
    found = find_runs([folder])
    assert found.left_out == ()
    lines = render_text(to_grid(build_table(found.runs))).plain.splitlines()
    heading = lines.index("Centralised references (pooled source data):")
    titles = [kind.title for kind in ALGORITHMS.values()]
    assert [line.split()[0] for line in lines[heading + 1 :]][: len(titles)] == titles


def test_the_watcher_hears_of_every_step_and_every_evaluation(tmp_path: Path) -> None:
    watch = Watch()
    record = carry_out(tmp_path / "run", watch=watch)
    assert watch.begun_with is record
    assert watch.steps == [1, 2, 3, 4]
    assert watch.evaluations == record.evaluations


@pytest.mark.parametrize(("stop_after", "evaluations"), [(1, 1), (3, 2)])
def test_a_run_that_is_stopped_says_so_and_is_left_out_of_tables(
    tmp_path: Path, stop_after: int, evaluations: int
) -> None:
    with pytest.raises(Stopped):
        carry_out(tmp_path / "run", watch=Watch(stop_after))
    record = read(tmp_path / "run")
    assert record.status == "stopped"
    assert record.stopped_because == f"it was stopped after step {stop_after} of 4."
    assert len(record.evaluations) == evaluations
    ((_, reason),) = find_runs([tmp_path]).left_out
    assert reason == f"the run is not finished but stopped: it was stopped after step {stop_after} of 4."


def test_a_run_that_diverges_says_so_in_its_record(tmp_path: Path) -> None:
    with pytest.raises(FDGError, match="is not finite after step 2") as refused:
        carry_out(tmp_path / "run", optimizer="sgd", learning_rate=1e30)
    assert read(tmp_path / "run").stopped_because == str(refused.value)


def test_an_algorithm_that_cannot_train_the_network_says_so_before_anything_is_evaluated_or_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise NotImplementedError("the derivative for 'hardsigmoid_backward' is not implemented.")

    monkeypatch.setattr("fdg_plugins.lab.centralised.iga.gradient_spread", refuse)
    watch = Watch()
    with pytest.raises(SettingsError, match=r"^model is 'groupnorm_convnet', expected a network .* 'iga' needs\.$"):
        carry_out(tmp_path / "run", "iga", watch)
    assert not (tmp_path / "run").exists()
    assert (watch.begun_with, watch.evaluations) == (None, [])


def test_an_error_of_the_program_is_kept_too(tmp_path: Path) -> None:
    class Clumsy(Watch):
        def stepped(self, steps_done: int) -> None:
            raise ZeroDivisionError("by zero")

    with pytest.raises(ZeroDivisionError):
        carry_out(tmp_path / "run", watch=Clumsy())
    assert read(tmp_path / "run").stopped_because == "ZeroDivisionError: by zero"


def test_an_order_to_stop_before_anything_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        carry_out(tmp_path / "run", watch=Watch(stop_after=0))
    assert not (tmp_path / "run").exists()


def test_an_order_to_stop_during_the_census_is_followed_within_one_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[object] = []
    source = type(open_domain(None, "rotateddigits", TARGET, seed=0).images)
    monkeypatch.setattr(source, "check", lambda self, sample: checked.append(sample))
    plan = make_plan("erm", "rotateddigits", TARGET, 0, TINY)
    with pytest.raises(Stopped):
        run_centralised(plan, SiteConfig(device="cpu"), None, tmp_path / "run", Watch(), lambda: len(checked) >= 3)
    assert len(checked) == 3


def test_its_record_does_not_say_that_a_site_compiled(tmp_path: Path) -> None:
    plan = make_plan("erm", "rotateddigits", TARGET, 0, {**TINY, "steps": 1, "checkpoint_every": 1})
    watch = Watch()
    run_centralised(plan, SiteConfig(device="cpu", compile=True), None, tmp_path / "run", watch, watch.should_stop)
    assert not any(reply.compiled for reply in read(tmp_path / "run").census.values())


def test_a_folder_with_something_in_it_is_refused_and_left_alone(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "erm", tmp_path / "taken")
    before = (tmp_path / "taken" / RESULTS_FILE).read_bytes()
    (tmp_path / "file").write_text("x", encoding="utf-8")
    for taken in (tmp_path / "taken", tmp_path / "file"):
        with pytest.raises(DataError, match=r"is there already and not an empty folder, expected a new one"):
            carry_out(taken)
    assert (tmp_path / "taken" / RESULTS_FILE).read_bytes() == before
    (tmp_path / "empty").mkdir()
    assert carry_out(tmp_path / "empty").status == "finished"


def test_two_runs_do_not_share_a_folder_also_while_the_first_has_written_nothing(tmp_path: Path) -> None:
    class Second(Watch):
        def begun(self, record: RunRecord) -> None:
            super().begun(record)
            assert list((tmp_path / "run").iterdir()) == []
            with pytest.raises(DataError, match=r"run is in use by another run, expected a new folder for this one\.$"):
                carry_out(tmp_path / "run", "irm")

    first = carry_out(tmp_path / "run", watch=Second())
    assert (first.status, read(tmp_path / "run").method) == ("finished", first.method)


@pytest.mark.slow
def test_erm_learns_to_read_digits_that_are_turned_by_an_angle_it_has_not_seen(tmp_path: Path) -> None:
    record = carry_out(tmp_path / "run", steps=80, checkpoint_every=40, max_samples_per_domain=200, batch_size=16)
    accuracies = [evaluation.target for evaluation in record.evaluations]
    assert accuracies[0] is not None
    assert accuracies[0] < 0.2
    assert accuracies[-1] is not None
    assert accuracies[-1] > 0.4
