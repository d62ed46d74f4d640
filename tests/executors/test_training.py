# SPDX-License-Identifier: Apache-2.0
"""Local training and evaluation without FLARE: what is summed, when it stops, what it leaves behind."""

from collections.abc import Callable, Iterable

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fdg_plugins.errors import Stopped
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives import ERMObjective
from fdg_plugins.randomness import seeded
from fdg_plugins.training.loop import DevicePolicy, LocalTraining, evaluate, train_locally
from fdg_plugins.training.results import make_update

CPU = torch.device("cpu")
CLASSES = 3
Batch = tuple[torch.Tensor, torch.Tensor]


def never() -> bool:
    return False


def after(looks: int) -> Callable[[], bool]:
    """Return a signal that is given at the look after ``looks`` looks."""
    seen = iter(range(looks))
    return lambda: next(seen, None) is None


def small_model() -> ExtractorClassifier:
    with seeded(1, "model"):
        layers = [nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        return ExtractorClassifier(nn.Sequential(*layers), nn.Linear(8, CLASSES))


def toy_batches(sizes: Iterable[int]) -> list[Batch]:
    """Return batches of those sizes; the class of an image is its strongest colour."""
    with seeded(2, "data"):
        batches = []
        for size in sizes:
            labels = torch.arange(size) % CLASSES
            images = torch.randn(size, 3, 6, 6) + 2 * nn.functional.one_hot(labels, 3).float()[:, :, None, None]
            batches.append((images, labels))
    return batches


def train(
    model: ExtractorClassifier,
    epochs: list[list[Batch]],
    *,
    policy: DevicePolicy | None = None,
    should_stop: Callable[[], bool] = never,
    lr: float = 0.1,
    on_epoch: Callable[[int, float], None] = lambda epoch, loss: None,
) -> LocalTraining:
    policy = policy or DevicePolicy(CPU)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    objective = ERMObjective().local({}, model)
    return train_locally(policy.place(model), objective, epochs, optimizer, policy, should_stop, on_epoch)


def count_forwards(model: nn.Module) -> list[int]:
    """Return a list that grows by the batch size at every forward pass of the model."""
    sizes: list[int] = []
    model.register_forward_hook(lambda module, inputs, output: sizes.append(len(output)))
    return sizes


# --- training ---------------------------------------------------------------------------------------


def test_one_step_is_one_step_of_plain_gradient_descent() -> None:
    model, reference, batches = small_model(), small_model(), toy_batches([8])
    train(model, [batches], lr=0.5)
    reference.train()
    cross_entropy(reference(batches[0][0]), batches[0][1]).backward()
    for (name, moved), start in zip(model.named_parameters(), reference.parameters(), strict=True):
        assert start.grad is not None
        torch.testing.assert_close(moved, start - 0.5 * start.grad, msg=name)


@pytest.mark.parametrize("batches_done", [0, 1, 4, 5])
def test_training_stops_within_one_batch_of_the_signal_also_in_a_later_epoch(batches_done: int) -> None:
    model = small_model()
    forwards = count_forwards(model)
    with pytest.raises(Stopped):
        train(model, [toy_batches([8, 8, 8])] * 2, should_stop=after(batches_done))
    assert len(forwards) == batches_done


# --- policy -------------------------------------------------------------------------------------


def test_bfloat16_is_used_in_forward_passes_while_parameters_stay_float32() -> None:
    model, batches = small_model(), toy_batches([16, 16])
    dtypes: set[torch.dtype] = set()
    model.register_forward_hook(lambda module, inputs, output: dtypes.add(output.dtype))
    training = train(model, [batches] * 12, policy=DevicePolicy(CPU, bfloat16=True))
    score = evaluate(model, batches, DevicePolicy(CPU, bfloat16=True), never)
    assert dtypes == {torch.bfloat16}
    assert {value.dtype for value in model.parameters()} == {torch.float32}
    assert training.epoch_losses[-1] < training.epoch_losses[0] / 2
    assert score.value("accuracy") > 0.9


def test_channels_last_changes_the_layout_but_not_the_result_and_the_update_is_contiguous() -> None:
    received = small_model().state_dict()
    updates = []
    for channels_last in (False, True):
        model = small_model()
        policy = DevicePolicy(CPU, channels_last=channels_last)
        train(model, [toy_batches([8, 8])], policy=policy)
        weight = model.get_parameter("extractor.0.weight")
        assert weight.is_contiguous(memory_format=torch.channels_last) is channels_last
        updates.append(make_update(model.state_dict(), received))
    assert all(value.is_contiguous() for value in updates[1].values())
    torch.testing.assert_close(updates[0], updates[1], rtol=1e-4, atol=1e-6)


def test_an_update_is_local_minus_received_with_dtype_kept_and_its_inputs_unchanged() -> None:
    local = {"w": torch.tensor([[3.0, 5.0]]).t(), "counter": torch.tensor(7)}
    received = {"w": torch.tensor([[1.0], [1.0]]), "counter": torch.tensor(3)}
    update = make_update(local, received)
    assert update["w"].tolist() == [[2.0], [4.0]]
    assert (int(update["counter"]), update["counter"].dtype) == (4, torch.int64)
    assert not any(value.requires_grad for value in update.values())
    assert (int(local["counter"]), int(received["counter"])) == (7, 3)
