# SPDX-License-Identifier: Apache-2.0
"""Sharpness-aware steps: the gradient is that of the ascended point, and nothing else of the ascent remains."""

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy
from torch.utils._python_dispatch import TorchDispatchMode

from fdg_plugins.core.sharpness import ascended, sharpness_aware_gradients, unchanged_buffers
from fdg_plugins.errors import SettingsError
from fdg_plugins.methods.fedsam import FedSAMObjective
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives import make_objective
from tests.objectives.local_steps import copy_of, plain, same, train_steps
from tests.objectives.objective_batches import Batch, make_batches

RADII = [0.05, 0.6, 5.0]


class Point(nn.Module):
    """A model that is its parameters, in two tensors."""

    def __init__(self, *values: list[float]) -> None:
        super().__init__()
        self.parts = nn.ParameterList([nn.Parameter(torch.tensor(value, dtype=torch.float64)) for value in values])

    def whole(self) -> torch.Tensor:
        return torch.cat([part.flatten() for part in self.parts])


def gradients_of(model: nn.Module, loss: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor]:
    """Return what a site hands to an objective's step."""

    def compute() -> torch.Tensor:
        model.zero_grad(set_to_none=True)
        value = loss()
        value.backward()
        return value.detach()

    return compute


def batch_gradients(model: ExtractorClassifier, batch: Batch) -> Callable[[], torch.Tensor]:
    return gradients_of(model, lambda: cross_entropy(model(batch[0]), batch[1]))


def grads(model: nn.Module) -> list[torch.Tensor]:
    return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]


# --- the gradient ---


@pytest.mark.parametrize("radius", RADII)
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e8])
def test_on_a_quadratic_the_gradient_grows_by_the_share_of_the_radius(radius: float, scale: float) -> None:
    """f = a/2 |w|^2: g = a w, e = rho w / |w|, and g~ = a w (1 + rho / |w|)."""
    point = Point([3.0, 0.0], [4.0])
    loss = sharpness_aware_gradients(
        point, gradients_of(point, lambda: scale / 2 * point.whole().square().sum()), radius
    )
    expected = scale * point.whole() * (1 + radius / 5)
    # 1e-7 in the norm of 5 a shortens the ascent by that share
    torch.testing.assert_close(torch.cat(grads(point)), expected.detach(), rtol=1e-4, atol=0)
    assert loss.item() == pytest.approx(scale / 2 * 25)


@pytest.mark.parametrize("radius", RADII)
def test_it_is_the_gradient_at_the_ascended_point_by_the_definition(
    radius: float, model: ExtractorClassifier, batches: list[Batch]
) -> None:
    model.double()
    images, labels = batches[0][0].double(), batches[0][1]
    parameters, buffers = dict(model.named_parameters()), {name: b.clone() for name, b in model.named_buffers()}

    def gradient_at(values: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        own = {name: value.detach().clone().requires_grad_() for name, value in values.items()}
        state = {**own, **{name: value.clone() for name, value in buffers.items()}}
        loss = cross_entropy(functional_call(model, state, (images,)), labels)
        return dict(zip(own, torch.autograd.grad(loss, list(own.values())), strict=True))

    first = gradient_at(dict(parameters))
    norm = sum(float(value.square().sum()) for value in first.values()) ** 0.5
    expected = gradient_at({name: value + radius * first[name] / (norm + 1e-7) for name, value in parameters.items()})
    sharpness_aware_gradients(model, batch_gradients(model, (images, labels)), radius)
    for name, parameter in parameters.items():
        torch.testing.assert_close(parameter.grad, expected[name], rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("radius", RADII)
@pytest.mark.parametrize("size", [1e-20, 1.0, 1e20])
def test_the_ascent_is_along_the_gradient_and_of_the_length_of_the_radius(radius: float, size: float) -> None:
    """Over all parameters jointly, with 1e-7 added to the gradient's length, also where float32 has no squares."""
    parameters = [nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(1))]
    for parameter, direction in zip(parameters, ([2.0, -1.0], [2.0]), strict=True):
        parameter.grad = size * torch.tensor(direction)
    with ascended(parameters, radius):
        moved = torch.cat([parameter.detach().clone() for parameter in parameters])
    length = radius * 3 * size / (3 * size + 1e-7)
    torch.testing.assert_close(moved, length * torch.tensor([2.0, -1.0, 2.0]) / 3)


def test_to_first_order_the_ascent_raises_the_loss_by_radius_times_gradient(
    model: ExtractorClassifier, batches: list[Batch]
) -> None:
    model.double().eval()
    compute = batch_gradients(model, (batches[0][0].double(), batches[0][1]))
    before = compute().item()
    parameters = list(model.parameters())
    slope = torch.cat([gradient.flatten() for gradient in grads(model)]).norm().item()
    with ascended(parameters, 1e-4), torch.no_grad():
        above = cross_entropy(model(batches[0][0].double()), batches[0][1]).item()
    assert (above - before) / 1e-4 == pytest.approx(slope, rel=1e-2)


def test_with_radius_zero_there_is_one_pass_and_its_gradient() -> None:
    point = Point([3.0], [4.0])
    calls: list[None] = []
    compute = gradients_of(point, lambda: point.whole().pow(4).sum())
    compute()
    expected = grads(point)

    def counted() -> torch.Tensor:
        calls.append(None)
        return compute()

    sharpness_aware_gradients(point, counted, 0.0)
    assert (len(calls), all(map(torch.equal, grads(point), expected))) == (1, True)
    sharpness_aware_gradients(point, counted, 0.1)
    assert (len(calls), any(map(torch.equal, grads(point), expected))) == (3, False)


def test_a_gradient_of_zero_moves_nothing() -> None:
    point = Point([0.0], [0.0, 0.0])
    sharpness_aware_gradients(point, gradients_of(point, lambda: point.whole().square().sum()), 0.6)
    assert torch.cat(grads(point)).tolist() == [0.0, 0.0, 0.0]


def test_a_gradient_that_is_not_finite_gives_one_that_is_not_and_leaves_the_parameters() -> None:
    point = Point([1.0], [2.0])
    sharpness_aware_gradients(point, gradients_of(point, lambda: point.whole().sum() * math.inf), 0.6)
    assert not torch.cat(grads(point)).isfinite().any()
    assert point.whole().tolist() == [1.0, 2.0]


def test_parameters_without_gradient_neither_move_nor_count() -> None:
    point = Point([3.0], [100.0])
    point.parts[1].requires_grad_(False)
    seen: list[float] = []

    def loss() -> torch.Tensor:
        seen.append(point.parts[1].item())
        return point.whole().square().sum() / 2

    sharpness_aware_gradients(point, gradients_of(point, loss), 0.5)
    assert point.parts[0].grad is not None
    assert point.parts[0].grad.item() == pytest.approx(3.5, rel=1e-6)
    assert point.parts[1].grad is None
    assert seen == [100.0, 100.0]


# --- what remains ---


@pytest.mark.parametrize("radius", RADII)
def test_parameters_have_their_bits_and_buffers_those_of_the_first_pass(
    radius: float, model: ExtractorClassifier, batches: list[Batch]
) -> None:
    reference = copy.deepcopy(model)
    plain_loss = batch_gradients(reference, batches[0])()
    loss = sharpness_aware_gradients(model, batch_gradients(model, batches[0]), radius)
    assert same(copy_of(model), copy_of(reference))
    assert torch.equal(loss, plain_loss)
    assert not all(map(torch.equal, grads(model), grads(reference)))


def test_the_ascent_itself_would_not_be_undone_by_subtraction() -> None:
    """The case for copying: a parameter so large that the ascent rounds."""
    point = nn.Parameter(torch.tensor([1.0, 1e-9]))
    point.grad = torch.tensor([1.0, 1.0])
    before = point.detach().clone()
    with ascended([point], 0.6):
        step = 0.6 / 2**0.5
        subtracted = point.detach() - step
        assert point[0].item() == pytest.approx(1 + step)
    assert torch.equal(point.detach(), before)
    assert not torch.equal(subtracted, before)


class LargeTensors(TorchDispatchMode):
    """Collects the memory of results of at least ``size`` elements."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.found: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and result.numel() >= self.size:
            self.found.add(result.untyped_storage().data_ptr())
        return result


def test_the_ascent_takes_the_memory_of_one_copy_of_the_parameters() -> None:
    point = nn.Parameter(torch.ones(10_000))
    point.grad = torch.ones(10_000)
    with LargeTensors(5_000) as large, ascended([point], 0.6):
        pass
    assert len(large.found - {point.data_ptr(), point.grad.data_ptr()}) == 1


def test_an_error_during_the_second_pass_puts_parameters_and_buffers_back(
    linear_model: ExtractorClassifier,
) -> None:
    reference, passes = copy.deepcopy(linear_model), iter([False, True])
    batch = make_batches(linear_model)[0]
    compute = batch_gradients(linear_model, batch)
    batch_gradients(reference, batch)()

    def stopping() -> torch.Tensor:
        loss = compute()
        if next(passes):
            raise InterruptedError
        return loss

    with pytest.raises(InterruptedError):
        sharpness_aware_gradients(linear_model, stopping, 0.6)
    assert same(copy_of(linear_model), copy_of(reference))


def test_buffers_change_within_and_are_put_back_in_place() -> None:
    norm = nn.BatchNorm1d(2)
    tensors = list(norm.buffers())
    with unchanged_buffers(norm):
        norm(torch.tensor([[1.0, 2.0], [3.0, 5.0]]))
        assert norm.running_mean is not None
        assert norm.running_mean.tolist() == pytest.approx([0.2, 0.35])
    assert norm.running_mean.tolist() == [0.0, 0.0]
    assert norm.num_batches_tracked is not None
    assert int(norm.num_batches_tracked) == 0
    assert all(one is other for one, other in zip(norm.buffers(), tensors, strict=True))


# --- FedSAM ---


def test_a_step_is_the_optimisers_with_the_sharpness_aware_gradient(
    model: ExtractorClassifier, batches: list[Batch]
) -> None:
    reference = copy.deepcopy(model)
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    for batch in batches:
        sharpness_aware_gradients(reference, batch_gradients(reference, batch), 0.6)
        optimizer.step()
    unswerving = copy.deepcopy(model)
    train_steps(unswerving, plain(unswerving), [batches])
    train_steps(model, FedSAMObjective(radius=0.6).local({}, model), [batches])
    assert same(copy_of(model), copy_of(reference))
    assert not same(copy_of(model), copy_of(unswerving))


def test_the_loss_told_is_that_before_the_step_and_each_batch_counts_once_in_batchnorm(
    linear_model: ExtractorClassifier,
) -> None:
    reference, batches = copy.deepcopy(linear_model), make_batches(linear_model)[:1]
    local = FedSAMObjective(radius=0.6).local({}, linear_model)
    training = train_steps(linear_model, local, [batches])
    assert training.epoch_losses == train_steps(reference, plain(reference), [batches]).epoch_losses
    counters = [value for name, value in linear_model.state_dict().items() if name.endswith("num_batches_tracked")]
    assert {int(value) for value in counters} == {1}
    for name, value in reference.named_buffers():
        assert torch.equal(dict(linear_model.named_buffers())[name], value)


def test_training_lowers_the_loss(linear_model: ExtractorClassifier) -> None:
    local = FedSAMObjective().local({}, linear_model)
    losses = train_steps(linear_model, local, [make_batches(linear_model)] * 4, momentum=0.0).epoch_losses
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("value", [-0.1, math.inf, math.nan, True, "0.1", None])
def test_a_radius_out_of_range_is_refused_by_name(value: Any) -> None:
    with pytest.raises(SettingsError, match=r"^radius is .*, expected a finite number of at least 0\.$"):
        make_objective({"name": "sam", "radius": value})


def test_it_exchanges_nothing_and_refuses_to_be_sent_something(linear_model: ExtractorClassifier) -> None:
    objective = FedSAMObjective()
    assert objective.exchange(linear_model, 3) is None
    assert objective.report is None
    with pytest.raises(SettingsError, match=r"^sent for objective 'sam': sent 'insight', expected only nothing\.$"):
        objective.local({"insight": torch.zeros(1)}, linear_model)
