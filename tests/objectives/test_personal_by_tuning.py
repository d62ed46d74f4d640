# SPDX-License-Identifier: Apache-2.0
"""Methods whose sites fine-tune a copy to have a model of their own: FedBABU, Per-FedAvg."""

import copy
from typing import Any

import pytest
import torch

from fdg_plugins.errors import SettingsError
from fdg_plugins.methods.perfedavg import BatchPart
from fdg_plugins.models import ExtractorClassifier, build_model
from fdg_plugins.objectives import FineTuning, SiteRound, make_objective
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.tasks import DEFAULT_TASK
from fdg_plugins.training.loop import DevicePolicy
from fdg_plugins.training.personal import fine_tune
from tests.objectives.local_steps import copy_of, plain, same, train_steps
from tests.objectives.objective_batches import CLASSES, Batch, make_batches

SITE = SiteRound("photo", 2, seed=1, learning_rate=0.1)
CPU = DevicePolicy(torch.device("cpu"))


def tune(model: ExtractorClassifier, tuning: FineTuning, batches: list[Batch], **protocol: Any) -> list[int]:
    """Fine-tune ``model`` in place; return the numbers of epochs that were asked for."""
    asked: list[int] = []

    def epochs(count: int) -> Any:
        asked.append(count)
        return iter([iter(batches)] * count) if count == 1 else (iter(batches) for _ in range(count))

    settings = Protocol(batch_size=4, **protocol)
    fine_tune(model, tuning, epochs, 0.1, settings, DEFAULT_TASK, CPU, lambda: False, num_train=4 * len(batches))
    return asked


@pytest.mark.parametrize("part", ["all", "head", "body"])
def test_fine_tuning_moves_the_part_that_it_names_also_if_it_was_frozen(
    model: ExtractorClassifier, batches: list[Batch], part: str
) -> None:
    model.hold(model.head_names)
    before = copy_of(model)
    own = make_objective({"name": "babu", "fine_tune": part, "fine_tune_epochs": 2}).personal(model, {}, SITE)
    assert own.network is model
    assert own.tuning is not None
    assert tune(model, own.tuning, batches) == [2]
    moved = {name for name, value in model.named_parameters() if not torch.equal(value, before[name])}
    parameters = {name for name, _ in model.named_parameters()}
    head = set(model.head_names)
    assert moved == {"all": parameters, "head": head, "body": parameters - head}[part]


@pytest.mark.parametrize("part", ["all", "body"])
def test_fine_tuning_leaves_what_is_frozen_outside_the_head(
    model: ExtractorClassifier, batches: list[Batch], part: str
) -> None:
    parameters = [name for name, _ in model.named_parameters()]
    held = next(name for name in parameters if name not in model.head_names)
    model.hold([held, *model.head_names])
    before = copy_of(model)
    own = make_objective({"name": "babu", "fine_tune": part, "fine_tune_epochs": 1}).personal(model, {}, SITE)
    assert own.tuning is not None
    tune(model, own.tuning, batches)
    moved = {name for name, value in model.named_parameters() if not torch.equal(value, before[name])}
    assert moved == set(parameters) - {held} - (set(model.head_names) if part == "body" else set())


@pytest.mark.parametrize(("part", "asked"), [("all", [2]), ("head", [2]), ("body", [])])
def test_fine_tuning_leaves_what_no_site_trains(
    model: ExtractorClassifier, batches: list[Batch], part: str, asked: list[int]
) -> None:
    before = copy_of(model)
    own = make_objective({"name": "babu", "fine_tune": part, "fine_tune_epochs": 2}).personal(model, {}, SITE)
    assert own.tuning is not None
    assert tune(model, own.tuning, batches, trainable="head") == asked
    moved = {name for name, value in model.named_parameters() if not torch.equal(value, before[name])}
    assert moved == (set(model.head_names) if asked else set())


def test_no_epochs_leave_the_received_model(linear_model: ExtractorClassifier) -> None:
    own = make_objective({"name": "babu", "fine_tune_epochs": 0}).personal(linear_model, {}, SITE)
    assert own == (linear_model, None)


def test_fine_tuning_with_the_sites_optimizer_is_its_training(linear_model: ExtractorClassifier) -> None:
    batches = make_batches(linear_model)
    other, names = copy.deepcopy(linear_model), tuple(name for name, _ in linear_model.named_parameters())
    tune(linear_model, FineTuning(names, epochs=2), batches)
    train_steps(other, plain(other), [batches] * 2, lr=0.1, momentum=0.9, weight_decay=5e-4)
    assert all(torch.allclose(value, copy_of(other)[name]) for name, value in copy_of(linear_model).items())


def test_a_number_of_steps_may_end_within_an_epoch_or_span_several(linear_model: ExtractorClassifier) -> None:
    batches = make_batches(linear_model)
    names = tuple(name for name, _ in linear_model.named_parameters())
    for steps, passes in ((1, 1), (3, 1), (4, 2), (6, 2), (7, 3)):
        model, other = copy.deepcopy(linear_model), copy.deepcopy(linear_model)
        assert tune(model, FineTuning(names, steps=steps, learning_rate=0.02), batches) == [passes]
        taken = [*batches, *batches, *batches][:steps]
        train_steps(other, plain(other), [taken], lr=0.02, momentum=0, weight_decay=0)
        assert all(torch.allclose(value, copy_of(other)[name]) for name, value in copy_of(model).items())


# --- Per-FedAvg -----------------------------------------------------------------------------------------------------


def meta_step_by_hand(model: ExtractorClassifier, batch: Batch, rate: float) -> dict[str, torch.Tensor]:
    """Return the parameters after one first-order step, written out for a network without BatchNorm."""
    images, labels = batch
    halves = [(images[:2], labels[:2]), (images[2:], labels[2:])]
    adapted = copy.deepcopy(model)
    for part, one in zip(halves, (model, adapted), strict=True):
        one.zero_grad()
        DEFAULT_TASK.loss(one(part[0]), part[1]).backward()
        if one is model:
            with torch.no_grad():
                for own, of_model in zip(adapted.parameters(), model.parameters(), strict=True):
                    assert of_model.grad is not None
                    own.sub_(rate * of_model.grad)
    pairs = zip(model.named_parameters(), adapted.parameters(), strict=True)
    return {name: value.detach() - rate * other.grad for (name, value), other in pairs if other.grad is not None}


@pytest.mark.parametrize("head", ["linear", "two_layer"])
def test_a_step_is_along_the_gradient_of_the_second_half_after_a_step_on_the_first(head: str) -> None:
    model = build_model("groupnorm_convnet", CLASSES, seed=1, head=head).train()
    batches = make_batches(model)
    expected = meta_step_by_hand(copy.deepcopy(model), batches[0], 0.1)
    local = make_objective("peravg").local({}, model, SITE)
    train_steps(model, local, [batches[:1]], lr=0.1, momentum=0, weight_decay=0)
    for name, value in model.named_parameters():
        torch.testing.assert_close(value.detach(), expected[name])


@pytest.mark.parametrize("form", ["first_order", "hessian_product"])
def test_without_adaptation_it_is_fedavg_bit_for_bit_and_with_it_is_not(
    model: ExtractorClassifier, batches: list[Batch], form: str
) -> None:
    other, third = copy.deepcopy(model), copy.deepcopy(model)
    train_steps(
        model, make_objective({"name": "peravg", "adaptation": 0, "form": form}).local({}, model, SITE), [batches]
    )
    train_steps(other, plain(other), [batches])
    train_steps(third, make_objective({"name": "peravg", "form": form}).local({}, third, SITE), [batches])
    assert same(copy_of(model), copy_of(other))
    assert not same(copy_of(third), copy_of(other))
    assert all(bool(value.isfinite().all()) for value in third.state_dict().values())


def test_parts_are_disjoint_and_a_small_batch_serves_as_every_part() -> None:
    batch = torch.arange(7)
    found = [BatchPart(3, number).of(batch).tolist() for number in range(3)]
    assert [number for part in found for number in part] == batch.tolist()
    assert all(len(part) >= 2 for part in found)
    assert BatchPart(3, 1).of(batch[:5]).tolist() == [0, 1, 2, 3, 4]
    assert BatchPart(2).of(batch).tolist() == batch.tolist()


def test_the_own_model_takes_plain_steps_of_the_adaptations_length(linear_model: ExtractorClassifier) -> None:
    objective = make_objective({"name": "peravg", "adaptation": 0.5, "adaptation_steps": 3})
    names = tuple(name for name, _ in linear_model.named_parameters())
    own = objective.personal(linear_model, {}, SITE)
    assert own == (linear_model, FineTuning(names, steps=3, learning_rate=0.05))
    linear_model.hold(linear_model.head_names)
    tuned = objective.personal(linear_model, {}, SITE).tuning
    assert tuned is not None
    assert not set(linear_model.head_names) & set(tuned.parameters), "what is frozen stays so"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"name": "babu", "fine_tune": "tail"}, "fine_tune is 'tail', expected"),
        ({"name": "babu", "fine_tune_epochs": -1}, "fine_tune_epochs is -1, expected"),
        ({"name": "peravg", "adaptation": -1}, "adaptation is -1, expected"),
        ({"name": "peravg", "form": "exact"}, "form is 'exact', expected"),
        ({"name": "peravg", "difference": 0}, "difference is 0, expected"),
        ({"name": "peravg", "adaptation_steps": 0}, "adaptation_steps is 0, expected"),
    ],
)
def test_a_setting_out_of_range_is_refused_by_name(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        make_objective(spec)
