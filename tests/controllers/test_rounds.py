# SPDX-License-Identifier: Apache-2.0
"""Rounds with real aggregators and scripted sites: the step, the selection, the record, files, what goes wrong."""

import os
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_opt.pt.tensor_downloader import DiskTensorConsumer
from nvflare.fuel.utils.fobs import FOBSContextKey
from safetensors.torch import save

from fdg_plugins.controllers.rounds import Rounds
from fdg_plugins.flare.stored_tensor import tensors_in_files
from fdg_plugins.messages import META_REQUEST, TASK_EVALUATE, TASK_TRAIN, TaskRequest
from fdg_plugins.methods.fedomg import FedOMGAggregator
from fdg_plugins.record.checkpoint import CHECKPOINT_FILE
from fdg_plugins.record.run_files import LAST_FILE, RESULTS_FILE, SELECTED_FILE
from fdg_plugins.storage import load_tensors
from tests.controllers.federation_stubs import HELD_OUT, SOURCES, Engine
from tests.controllers.rounds_stubs import (
    MODEL_BYTES,
    SAMPLES,
    UPDATES,
    Answer,
    all_well,
    description,
    make_rounds,
    run,
    trained,
)


def test_two_rounds_of_federated_averaging_give_the_numbers_done_by_hand(tmp_path: Path) -> None:
    rounds, _ = make_rounds(tmp_path, all_well())
    finished, received = rounds.run_round(1)
    # Weights 1/4, 2/4, 1/4: w = (1 + 0 + 4, 0 + 2 * 4 + 4) / 4; mean (1 + 2 * 3 + 0) / 4; counter the largest.
    assert rounds.run.model.state["w"].tolist() == [1.25, 3.0]
    assert rounds.run.model.state["bn.running_mean"].tolist() == [1.75]
    assert int(rounds.run.model.state["bn.num_batches_tracked"]) == 5
    assert received.after_round == 0
    assert finished.aggregation is not None
    assert finished.aggregation.weights == {"cartoon": 0.25, "photo-1": 0.5, "photo-2": 0.25}
    assert (finished.round, finished.sites, finished.failures, finished.reason) == (1, SOURCES, {}, None)
    rounds.run_round(2)
    assert rounds.run.model.state["w"].tolist() == [2.5, 6.0]
    assert int(rounds.run.model.state["bn.num_batches_tracked"]) == 10


def test_sites_get_the_model_the_round_and_the_protocol_each_with_its_own_task(tmp_path: Path) -> None:
    rounds, sites = make_rounds(tmp_path, all_well(), task_timeout=77)
    run(rounds, 2)
    tasks = [[(request.task, request.sites) for request in asked] for asked in sites.asked]
    in_a_round = [(TASK_TRAIN, SOURCES), (TASK_EVALUATE, HELD_OUT)]
    assert tasks == [in_a_round, in_a_round, [(TASK_EVALUATE, (*SOURCES, *HELD_OUT))]]
    assert sites.timeouts == [77] * 3
    for number, asked in enumerate(sites.asked, start=1):
        for request in asked:
            assert (request.data.params_type, request.data.total_rounds) == (ParamsType.FULL, 2)
            told = TaskRequest.model_validate(request.data.meta[META_REQUEST])
            assert (told.protocol, told.stand_in) == (rounds.run.record.protocol, False)
            # Rounds count from 0 on the wire. What was sent stays as it was though the model has moved since.
            assert request.data.current_round == min(number, 2) - 1
            assert request.data.params["w"].tolist() == [1.25 * (number - 1), 3.0 * (number - 1)]


def test_the_order_of_answers_changes_no_bit_of_the_model_or_the_record(tmp_path: Path) -> None:
    records = []
    for reverse in (False, True):
        rounds, _ = make_rounds(tmp_path, all_well(), FedOMGAggregator(), reverse=reverse)
        run(rounds, 2)
        times: Any = {"seconds": True, "rounds": {"__all__": {"seconds", "aggregation_seconds"}}}
        records.append((rounds.run.model.state, rounds.run.record.model_dump(exclude=times)))
    assert all(torch.equal(records[0][0][name], value) for name, value in records[1][0].items())
    assert records[0][1] == records[1][1]


def test_a_round_waits_for_the_disk_once_and_the_end_for_all_that_a_run_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds, _ = make_rounds(tmp_path, all_well())
    rounds.run_round(1)
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(Path(f"/proc/self/fd/{handle}").readlink().name))
    monkeypatch.setattr(rounds.run, "keep_selected", lambda after_round: None)
    rounds.run_round(2)
    checkpoint, folder = synced
    assert checkpoint.startswith(f".{CHECKPOINT_FILE}.")
    assert folder == rounds.run.state.name
    synced.clear()
    rounds.run.record.status = "finished"
    rounds.run.save()
    assert {name.rpartition(".")[0] for name in synced} >= {f".{LAST_FILE}", f".{RESULTS_FILE}"}


def test_a_score_that_cannot_be_read_is_refused_and_the_target_is_missing(tmp_path: Path) -> None:
    def script(task: str, site: str, number: int, sent: FLModel) -> Answer:
        return FLModel(params={"w": 1}) if site in HELD_OUT else all_well()(task, site, number, sent)

    rounds, _ = make_rounds(tmp_path, script)
    finished, received = rounds.run_round(1)
    assert finished.failures["sketch"].startswith("site sketch: evaluation: ")
    assert received.target is None
    assert finished.aggregation is not None


def test_too_few_updates_leave_the_model_and_the_record_says_why(tmp_path: Path) -> None:
    def script(task: str, site: str, number: int, sent: FLModel) -> Answer:
        return "is away." if number == 1 and site != "cartoon" else all_well()(task, site, number, sent)

    rounds, sites = make_rounds(tmp_path, script, min_sites=2)
    before = rounds.run.model.state
    finished, _ = rounds.run_round(1)
    assert all(rounds.run.model.state[name] is value for name, value in before.items())
    assert finished.reason == "1 usable updates came, fewer than min_sites 2."
    assert (finished.aggregation, finished.sites) == (None, ("cartoon",))
    assert finished.failures == {"photo-1": "is away.", "photo-2": "is away.", "sketch": "is away."}
    assert sites.warnings == [f"The model stays as it was: {finished.reason}"]
    again, _ = rounds.run_round(2)
    assert again.sites == SOURCES
    assert rounds.run.model.state["w"].tolist() == [1.25, 3.0], "the lone update of round 1 must be forgotten"


def test_the_score_on_the_held_out_domain_never_changes_the_selection(tmp_path: Path) -> None:
    sources = {1: 0.3, 2: 0.8, 3: 0.5}
    kept = []
    for target in ({1: 0.0, 2: 0.5, 3: 1.0}, {1: 1.0, 2: 0.0, 3: 0.0}):
        rounds, _ = make_rounds(tmp_path, all_well(sources.__getitem__, target.__getitem__))
        run(rounds, 2)
        chosen = {choice.rule: choice.after_round for choice in rounds.run.record.choices}
        assert chosen["oracle"] == max(target, key=target.__getitem__) - 1
        selected = load_tensors(tmp_path / SELECTED_FILE)["w"].tolist()
        kept.append((chosen["source_validation"], selected, rounds.run.model.state["w"].tolist()))
    assert kept[0] == kept[1]
    assert kept[0] == (1, [1.25, 3.0], [2.5, 6.0])
    assert [description(tmp_path / name)["after_round"] for name in (SELECTED_FILE, LAST_FILE)] == ["1", "2"]


Offload = Callable[[Mapping[str, Any]], dict[str, Any]]


def offloaded(folder: Path, hand_over: Offload, bad: tuple[str, ...] = ()) -> Rounds:
    """Return rounds whose sites hand in updates in files, those of ``bad`` sites with NaN."""

    def script(task: str, site: str, number: int, sent: FLModel) -> Answer:
        if task != TASK_TRAIN:
            return all_well()(task, site, number, sent)
        w = UPDATES[site]["w"] * (torch.nan if site in bad else 1.0)
        return trained(site, hand_over({**UPDATES[site], "w": w}), samples=SAMPLES[site])

    protocol: dict[str, Any] = {"enable_tensor_disk_offload": True, "min_sites": 2}
    return make_rounds(folder, script, FedOMGAggregator(), **protocol)[0]


def test_of_updates_in_memory_nothing_lay_in_files_and_the_step_is_the_same(tmp_path: Path, offload: Offload) -> None:
    models = []
    for hand_over, in_files in ((offload, 3 * MODEL_BYTES), (dict, 0)):
        rounds = offloaded(tmp_path, hand_over)
        finished, _ = rounds.run_round(1)
        assert (finished.bytes_in_files, finished.bytes_up) == (in_files, 3 * MODEL_BYTES)
        models.append(rounds.run.model.state)
    assert all(torch.equal(models[0][name], value) for name, value in models[1].items())


@pytest.mark.parametrize("bad", [("cartoon",), ("cartoon", "photo-1")])
def test_offload_leaves_no_file(tmp_path: Path, offload: Offload, offload_root: Path, bad: tuple[str, ...]) -> None:
    finished, _ = offloaded(tmp_path, offload, bad).run_round(1)
    assert tuple(finished.failures) == bad
    assert (finished.aggregation is None) is (len(bad) > 1)
    assert list(offload_root.iterdir()) == []


def test_offload_lost_files_leave_the_model(tmp_path: Path, offload: Offload, offload_root: Path) -> None:
    rounds = offloaded(tmp_path, offload)
    before = rounds.run.model.state

    def lose_files() -> None:
        for file in offload_root.rglob("*.safetensors"):
            file.unlink()

    rounds._raise_if_broken = lose_files  # type: ignore[method-assign]
    finished, _ = rounds.run_round(1)
    assert all(rounds.run.model.state[name] is value for name, value in before.items())
    assert "cannot be read" in str(finished.reason)
    assert list(offload_root.iterdir()) == []


def test_offload_folder_is_private_and_goes_with_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary, engine = tmp_path / "temporary", Engine(tmp_path)
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    with suppress(InterruptedError), tensors_in_files(engine, True, "job-7") as folder:
        assert folder is not None
        assert (folder.parent, folder.stat().st_mode & 0o777) == (temporary, 0o700)
        assert folder.name.startswith("nvflare_tensor_offload_job-7_")
        assert engine.cell.context[FOBSContextKey.TENSOR_DISK_OFFLOAD] is True
        arriving = DiskTensorConsumer(tempfile.mkdtemp(dir=folder))
        arriving.consume_items([save({"T0": torch.ones(2)})], None)
        raise InterruptedError
    assert engine.cell.context[FOBSContextKey.TENSOR_DISK_OFFLOAD] is False
    with pytest.raises(RuntimeError, match="cleaned up"):
        arriving.consume_items([save({"T1": torch.ones(2)})], None)
    assert list(temporary.iterdir()) == []
