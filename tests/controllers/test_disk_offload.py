# SPDX-License-Identifier: Apache-2.0
"""FLARE's disk offload during the rounds: where it writes, how much, and that nothing of it is left."""

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_opt.pt.tensor_downloader import DiskTensorConsumer
from nvflare.fuel.utils.fobs import FOBSContextKey
from safetensors.torch import save

from fdg_plugins.controllers.messenger import Request, StragglerTimeout
from fdg_plugins.controllers.rounds import Rounds
from fdg_plugins.errors import ContributionError
from fdg_plugins.flare.disk_offload import tensors_in_files
from fdg_plugins.messages import META_REPORT, META_SAMPLES, META_SITE, TASK_TRAIN
from fdg_plugins.methods.fedomg import FedOMGAggregator
from fdg_plugins.record.run_files import LOCAL_FOLDER
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.storage import load_tensors
from fdg_plugins.training.global_model import GlobalModel
from tests.controllers.federation_stubs import DOMAINS, Engine, census_reply, evaluation, honest_report, run_record

Offload = Callable[[Mapping[str, Any]], dict[str, Any]]
KINDS = {"w": "trainable", "bn.running_mean": "float_buffer", "bn.num_batches_tracked": "integer_buffer"}
MODEL_BYTES = 20
PROTOCOL: dict[str, Any] = {"rounds": 2, "enable_tensor_disk_offload": True}
NAN = float("nan")


def update(w: float) -> dict[str, torch.Tensor]:
    counter = torch.tensor(4)
    return {"w": torch.tensor([w, 1.0]), "bn.running_mean": torch.tensor([w]), "bn.num_batches_tracked": counter}


class Sites:
    """A messenger whose sites hand in updates in files; their messages stay known, as FLARE may keep the last one."""

    def __init__(self, hand_over: Offload, values: Mapping[str, float]) -> None:
        self.hand_over, self.values = hand_over, values
        self.answers: list[FLModel] = []
        self.warnings: list[str] = []
        self.departed: dict[str, str] = {}
        self.not_finite: set[str] = set()

    def warning(self, text: str) -> None:
        self.warnings.append(text)

    def ask(self, requests: Any, timeout: int, patience: StragglerTimeout | None = None) -> dict[str, str]:
        failures: dict[str, str] = {}
        for request in requests:
            for site in request.sites:
                self._ask(request, site, failures)
        return failures

    def _ask(self, request: Request, site: str, failures: dict[str, str]) -> None:
        reply = census_reply(DOMAINS[site])
        answer = FLModel(metrics=evaluation(0.5, split="test").model_dump())
        if request.task == TASK_TRAIN:
            params = self.hand_over(update(self.values[site]))
            meta = {
                META_SITE: site,
                META_SAMPLES: 8,
                META_REPORT: honest_report(Protocol(**PROTOCOL), reply).model_dump(),
            }
            answer = FLModel(params_type=ParamsType.DIFF, params=params, meta=meta)
        self.answers.append(answer)
        try:
            request.on_answer(site, answer)
        except ContributionError as error:
            failures[site] = str(error)


def make_rounds(folder: Path, hand_over: Offload, values: Mapping[str, float], **protocol: Any) -> Rounds:
    record = run_record(**{**PROTOCOL, **protocol})
    sites: Any = Sites(hand_over, values)
    return Rounds(sites, FedOMGAggregator(), GlobalModel(update(0.0), KINDS), record, folder)


WELL = {"cartoon": 1.0, "photo-1": 2.0, "photo-2": -3.0}


def test_what_lay_in_files_is_recorded_and_gone_after_the_round(
    tmp_path: Path, offload: Offload, offload_root: Path
) -> None:
    rounds = make_rounds(tmp_path, offload, WELL)
    finished, _ = rounds.run_round(1)
    assert (finished.bytes_in_files, finished.bytes_up) == (3 * MODEL_BYTES, 3 * MODEL_BYTES)
    assert finished.aggregation is not None
    assert list(offload_root.iterdir()) == []


def test_of_updates_in_memory_nothing_lay_in_files_and_the_step_is_the_same(tmp_path: Path, offload: Offload) -> None:
    models = []
    for hand_over, in_files in ((offload, 3 * MODEL_BYTES), (dict, 0)):
        rounds = make_rounds(tmp_path, hand_over, WELL)
        finished, _ = rounds.run_round(1)
        assert (finished.bytes_in_files, finished.bytes_up) == (in_files, 3 * MODEL_BYTES)
        models.append(rounds.model.state)
    assert all(torch.equal(models[0][name], value) for name, value in models[1].items())


@pytest.mark.parametrize(
    "values", [{**WELL, "cartoon": NAN}, {**WELL, "cartoon": NAN, "photo-1": NAN}, dict.fromkeys(WELL, NAN)]
)
def test_no_file_is_left_of_refused_updates_nor_of_a_round_that_takes_no_step(
    tmp_path: Path, offload: Offload, offload_root: Path, values: Mapping[str, float]
) -> None:
    rounds = make_rounds(tmp_path, offload, values, min_sites=2)
    finished, _ = rounds.run_round(1)
    bad = [site for site, value in values.items() if value != value]
    assert list(finished.failures) == bad
    assert (finished.aggregation is None) is (len(bad) > 1)
    assert list(offload_root.iterdir()) == []


def test_a_round_whose_files_are_gone_leaves_the_model_with_a_sentence(
    tmp_path: Path, offload: Offload, offload_root: Path
) -> None:
    rounds = make_rounds(tmp_path, offload, WELL)
    before, begin = rounds.model.state, rounds.channel.require_checks

    def lose_files() -> None:
        begin()
        for file in offload_root.rglob("*.safetensors"):
            file.unlink()

    rounds.channel.require_checks = lose_files  # type: ignore[method-assign]
    finished, _ = rounds.run_round(1)
    assert rounds.model.state is before
    assert finished.reason is not None
    assert finished.reason.endswith("cannot be read: No such file or directory.")
    assert list(offload_root.iterdir()) == []


def test_local_models_are_kept_of_updates_in_files_too(tmp_path: Path, offload: Offload, offload_root: Path) -> None:
    rounds = make_rounds(tmp_path, offload, WELL, rounds=1, keep_local_models=True)
    rounds.run_round(1)
    for site, value in WELL.items():
        local = load_tensors(tmp_path / LOCAL_FOLDER / f"{site}.safetensors")
        assert torch.equal(local["w"], update(value)["w"] + update(0.0)["w"])
    assert list(offload_root.iterdir()) == []


# --- FLARE's switch ---------------------------------------------------------------------------------


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary folder of the process."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_flare_is_told_a_folder_that_only_this_user_may_read_and_that_goes_in_the_end(
    tmp_path: Path, temporary: Path
) -> None:
    engine = Engine(tmp_path)
    with tensors_in_files(engine, True, "job-7") as folder:
        assert folder is not None
        assert (folder.parent, folder.stat().st_mode & 0o777) == (temporary, 0o700)
        assert folder.name.startswith("nvflare_tensor_offload_job-7_")
        assert engine.cell.context[FOBSContextKey.TENSOR_DISK_OFFLOAD] is True
        (folder / "chunk").write_bytes(b"an update")
    assert engine.cell.context[FOBSContextKey.TENSOR_DISK_OFFLOAD] is False
    assert list(temporary.iterdir()) == []


def test_without_the_setting_flare_is_told_nothing(tmp_path: Path, temporary: Path) -> None:
    engine = Engine(tmp_path)
    with tensors_in_files(engine, False, "job") as folder:
        assert folder is None
    assert engine.cell.context == {}
    assert list(temporary.iterdir()) == []


def test_the_folder_goes_when_the_run_fails_and_what_still_arrives_writes_no_more(
    tmp_path: Path, temporary: Path
) -> None:
    arriving: list[DiskTensorConsumer] = []

    def run() -> None:
        with tensors_in_files(Engine(tmp_path), True, "job") as folder:
            arriving.append(DiskTensorConsumer(tempfile.mkdtemp(dir=folder)))
            arriving[0].consume_items([save({"T0": torch.ones(2)})], None)
            raise RuntimeError("out of luck")

    with pytest.raises(RuntimeError, match="out of luck"):
        run()
    assert list(temporary.iterdir()) == []
    with pytest.raises(RuntimeError, match="cleaned up"):
        arriving[0].consume_items([save({"T1": torch.ones(2)})], None)
    assert list(temporary.iterdir()) == []
