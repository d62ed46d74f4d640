# SPDX-License-Identifier: Apache-2.0
"""The global model: a step is added or refused as a whole, and a message that holds the old one keeps it."""

from pathlib import Path
from typing import Any

import pytest
import torch

from fdg_plugins.errors import DataError, FDGError
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.training.global_model import GlobalModel, initial_model

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
