# SPDX-License-Identifier: Apache-2.0
"""The global model: steps are added or refused as a whole, messages keep their model, a fixed part is sent once."""

from pathlib import Path
from typing import Any

import pytest
import torch

from fdg_plugins.errors import DataError, FDGError
from fdg_plugins.messages import TASK_TRAIN
from fdg_plugins.models.batch_norm import NormLayer
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.state.site_memory import FIXED_FILE
from fdg_plugins.testing.inputs import same_bits
from fdg_plugins.training.global_model import GlobalModel, count_bytes, initial_model
from tests.controllers.jobs import PROTOCOL, Job

KINDS = {"w": "trainable", "running": "float_buffer", "counter": "integer_buffer"}
State = dict[str, torch.Tensor]


def model() -> GlobalModel:
    state = {"w": torch.tensor([[1.0, 2.0]]), "running": torch.tensor([0.5]), "counter": torch.tensor(3)}
    return GlobalModel(state, KINDS)


def step(w: list[float]) -> State:
    return {"w": torch.tensor([w]), "running": torch.tensor([-0.25]), "counter": torch.tensor(2)}


def test_a_step_is_added_every_dtype_kept_and_nothing_changed_in_place() -> None:
    moved = model()
    sent, kept = moved.state, {name: value.clone() for name, value in moved.state.items()}
    moved.apply({name: value.double().numpy() for name, value in step([10.0, -2.0]).items()})
    assert {name: value.tolist() for name, value in moved.state.items()} == {
        "w": [[11.0, 0.0]],
        "running": [0.25],
        "counter": 5,
    }
    assert {name: value.dtype for name, value in moved.state.items()} == {name: one.dtype for name, one in kept.items()}
    assert all(torch.equal(sent[name], value) for name, value in kept.items())


def test_the_model_owns_its_parameters() -> None:
    given = {"w": torch.nn.Parameter(torch.arange(4.0).reshape(2, 2).t()), "running": torch.zeros(1)}
    own = GlobalModel(given, KINDS)
    with torch.no_grad():
        given["w"].zero_()
        given["running"].fill_(9.0)
    assert own.state["w"].tolist() == [[0.0, 2.0], [1.0, 3.0]]
    assert own.state["running"].tolist() == [0.0]
    assert own.state["w"].is_contiguous()
    assert not own.state["w"].requires_grad


@pytest.mark.parametrize("value", [float("nan"), 3e38])
def test_a_step_out_of_the_finite_numbers_is_refused_by_name_and_changes_nothing(value: float) -> None:
    moved = GlobalModel({"a": torch.tensor([1.0]), "b": torch.tensor([3e38])}, {"a": "trainable", "b": "trainable"})
    before = moved.state
    with pytest.raises(FDGError):
        moved.apply({"a": torch.tensor([1.0]), "b": torch.tensor([value])})
    assert moved.state is before
    assert moved.state["a"].tolist() == [1.0]


KINDS_OF_VARIANCES = {"bn.running_var": "float_buffer", "w": "trainable"}


def test_variances_that_no_site_can_have_count_as_zero_in_the_mean() -> None:
    received = torch.tensor([0.5, 2.0, 0.0])
    made = GlobalModel({"bn.running_var": received, "w": torch.zeros(1)}, KINDS_OF_VARIANCES)
    honest = [torch.tensor([-0.5, 1.0, 0.25]), torch.tensor([0.25, -1.0, 0.0])]
    updates: list[dict[str, Any]] = [
        {"bn.running_var": one, "w": torch.tensor([-9.0])} for one in (*honest, -3 * received - 1)
    ]
    made.clamp_variances(updates)
    assert all(update["bn.running_var"] is one for update, one in zip(updates, honest, strict=False)), "as they came"
    assert torch.equal(updates[-1]["bn.running_var"], -received)
    assert all(update["w"].item() == -9 for update in updates)
    made.apply({"bn.running_var": -3 * received - 1, "w": torch.zeros(1)})  # which noise may make negative
    assert made.state["bn.running_var"].tolist() == [0.0, 0.0, 0.0]


def test_initial_model_missing_file_stops_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FDG_PRETRAINED_FILE", str(tmp_path / "none.pth"))
    with pytest.raises(DataError):
        initial_model(Protocol(model="resnet18", pretrained="imagenet"), 7)


HEAD = {"classifier.weight", "classifier.bias"}
IN_JOBS = pytest.mark.usefixtures("wire", "images_at_sites")


def head_job(folder: Path, **settings: Any) -> Job:
    """Return a job that trains the head of the network alone."""
    protocol = {**PROTOCOL, "trainable": "head", **settings}
    return Job(folder, protocol=protocol, aggregator="fedavg")


def names_sent(job: Job) -> dict[str, list[set[str]]]:
    """Return the names of the parameters in each task, by site."""
    return {site: [set(model) for _, asked, model in job.requests if asked == site] for site in job.sites}


@IN_JOBS
def test_fixed_part_is_sent_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = head_job(tmp_path / "once").finished()
    assert set(job.model) > HEAD
    assert list(names_sent(job).values()) == [[set(job.model), HEAD, HEAD]] * 4
    models = [model for *_, model in job.requests]
    of_rounds = [sum(map(count_bytes, models[start : start + 4])) for start in (0, 4)]
    assert [one.bytes_down for one in job.record.rounds] == of_rounds, "what the record counts is what was sent"
    assert of_rounds[0] == 4 * count_bytes(job.model)
    assert of_rounds[1] == 4 * count_bytes({name: job.model[name] for name in HEAD}) < of_rounds[0] / 10

    note = "fdg_plugins.controllers.rounds.ModelSender.note"
    monkeypatch.setattr(note, lambda sender, sites, failures: None)  # nobody is known to hold it
    whole = head_job(tmp_path / "whole").finished()
    assert list(names_sent(whole).values()) == [[set(job.model)] * 3] * 4
    assert same_bits(job.model, whole.model)
    assert job.record.evaluations == whole.record.evaluations


@IN_JOBS
def test_a_site_that_no_longer_has_it_is_out_for_one_task_and_then_gets_it_again(tmp_path: Path) -> None:
    def meddle(site: str, task: str, count: int) -> None:
        if (site, task, count) == ("photo", TASK_TRAIN, 2):
            (file,) = (tmp_path / "sites" / site).rglob(FIXED_FILE)
            content = bytearray(file.read_bytes())
            content[-1] ^= 1
            file.write_bytes(content)

    job = head_job(tmp_path, rounds=3, min_sites=2)
    job.meddle = meddle
    job.finished()
    whole, names = set(job.model), names_sent(job)
    assert names["photo"] == [whole, HEAD, whole, HEAD]
    assert names["cartoon"] == [whole, HEAD, HEAD, HEAD]
    first, second, third = (one.failures for one in job.record.rounds)
    assert (first, third) == ({}, {})
    assert second["photo"].startswith(
        "it does not hold the model's fixed part, which the server sends again with the next task"
    )


def test_statistics_that_are_measured_anew_are_not_fixed() -> None:
    state = {
        "w": torch.zeros(9),
        "bn.running_mean": torch.zeros(2),
        "bn.running_var": torch.ones(2),
        "b": torch.ones(1),
    }
    kinds = {"w": "trainable", "b": "trainable", "bn.running_mean": "float_buffer", "bn.running_var": "float_buffer"}
    model = GlobalModel(state, kinds, shared=["b"], reestimated={"bn": NormLayer(2, 1)})
    assert model.fixed == ("w",)
    model.replace({"bn.running_mean": torch.ones(2)})
    model.apply({"b": torch.ones(1)})
    assert all(torch.equal(model.state[name], state[name]) for name in model.fixed)
    assert GlobalModel(state, kinds, shared=["b"]).fixed == ("w", "bn.running_mean", "bn.running_var")
    assert GlobalModel(state, kinds, shared=["w"]).fixed == ()
