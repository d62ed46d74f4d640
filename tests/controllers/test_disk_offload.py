# SPDX-License-Identifier: Apache-2.0
"""FLARE's disk offload during the rounds: where it writes, how much, and that nothing of it is left."""

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from nvflare.app_common.abstract.fl_model import FLModel
from nvflare.app_opt.pt.tensor_downloader import DiskTensorConsumer
from nvflare.fuel.utils.fobs import FOBSContextKey
from safetensors.torch import save

from fdg_plugins.controllers.rounds import Rounds
from fdg_plugins.flare.stored_tensor import tensors_in_files
from fdg_plugins.messages import TASK_TRAIN
from fdg_plugins.methods.fedomg import FedOMGAggregator
from tests.controllers.federation_stubs import Engine
from tests.controllers.rounds_stubs import MODEL_BYTES, SAMPLES, UPDATES, Answer, all_well, make_rounds, trained

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
        models.append(rounds.model.state)
    assert all(torch.equal(models[0][name], value) for name, value in models[1].items())


@pytest.mark.parametrize("bad", [("cartoon",), ("cartoon", "photo-1")])
def test_offload_leaves_no_file(tmp_path: Path, offload: Offload, offload_root: Path, bad: tuple[str, ...]) -> None:
    finished, _ = offloaded(tmp_path, offload, bad).run_round(1)
    assert tuple(finished.failures) == bad
    assert (finished.aggregation is None) is (len(bad) > 1)
    assert list(offload_root.iterdir()) == []


def test_offload_lost_files_leave_the_model(tmp_path: Path, offload: Offload, offload_root: Path) -> None:
    rounds = offloaded(tmp_path, offload)
    before = rounds.model.state

    def lose_files() -> None:
        for file in offload_root.rglob("*.safetensors"):
            file.unlink()

    rounds._raise_if_broken = lose_files  # type: ignore[method-assign]
    finished, _ = rounds.run_round(1)
    assert all(rounds.model.state[name] is value for name, value in before.items())
    assert "cannot be read" in str(finished.reason)
    assert list(offload_root.iterdir()) == []


def test_offload_folder_is_private_and_goes_with_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary, engine = tmp_path / "temporary", Engine(tmp_path)
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    arriving: list[DiskTensorConsumer] = []

    def run() -> None:
        with tensors_in_files(engine, True, "job-7") as folder:
            assert folder is not None
            assert (folder.parent, folder.stat().st_mode & 0o777) == (temporary, 0o700)
            assert folder.name.startswith("nvflare_tensor_offload_job-7_")
            assert engine.cell.context[FOBSContextKey.TENSOR_DISK_OFFLOAD] is True
            arriving.append(DiskTensorConsumer(tempfile.mkdtemp(dir=folder)))
            arriving[0].consume_items([save({"T0": torch.ones(2)})], None)
            raise RuntimeError("out of luck")

    with pytest.raises(RuntimeError):
        run()
    assert engine.cell.context[FOBSContextKey.TENSOR_DISK_OFFLOAD] is False
    with pytest.raises(RuntimeError, match="cleaned up"):
        arriving[0].consume_items([save({"T1": torch.ones(2)})], None)
    assert list(temporary.iterdir()) == []
