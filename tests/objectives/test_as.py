# SPDX-License-Identifier: Apache-2.0
"""FedAS at a site: alignment to its own class means, what it keeps, and the Fisher trace that it reports."""

import copy
import math
from dataclasses import replace

import pytest
import torch

from fdg_plugins.errors import ContributionError, SettingsError
from fdg_plugins.methods.fedas import (
    HELD,
    MEANS,
    MODEL,
    REPORT_FISHER_TRACE,
    ClassMeans,
    alignment_loss,
    equal_batches,
    fisher_trace,
)
from fdg_plugins.models import ExtractorClassifier, build_model
from fdg_plugins.objectives import Exchange, FeatureBatch, LocalObjective, SiteRound, Trained, make_objective, see
from tests.objectives.local_steps import copy_of, plain, same, train_steps
from tests.objectives.objective_batches import CLASSES, Batch, make_batches

SITE = SiteRound("photo", 0, seed=1, learning_rate=0.05)
NOTHING = Trained({}, 1, 1.0)
COUNTER = "num_batches_tracked"


def trained(
    model: ExtractorClassifier, batches: list[Batch], site: SiteRound = SITE, epochs: int = 2, **settings: float
) -> LocalObjective:
    """Train ``model`` in place as a site does; return the local objective, which has seen the trained model."""
    local = make_objective({"name": "as", **settings}).local({}, model, site)
    local.observe_received(model, see(model, batches), CLASSES)
    train_steps(model, local, [batches] * epochs)
    local.observe_trained(model, see(model, batches), CLASSES)
    return local


def means_of(model: ExtractorClassifier, batches: list[Batch]) -> dict[str, torch.Tensor]:
    """Return the class means as a site keeps them, computed in one piece."""
    (seen,) = see(model, [(torch.cat([images for images, _ in batches]), torch.cat([labels for _, labels in batches]))])
    held = torch.stack([(seen.targets == k).any() for k in range(CLASSES)])
    rows = [seen.features[seen.targets == k].mean(dim=0) if held[k] else torch.zeros(()) for k in range(CLASSES)]
    return {MEANS: torch.stack([row.expand(model.feature_size) for row in rows]), HELD: held}


def exchange_of(model: ExtractorClassifier) -> Exchange:
    exchange = make_objective("as").exchange(model, CLASSES)
    assert exchange is not None
    exchange.begin_round(model.state_dict())
    return exchange


# --- alignment ---


def test_the_alignment_is_the_sum_over_classes_of_the_mean_squared_distance(linear_model: ExtractorClassifier) -> None:
    # Three images of class 0, one of class 2, of which there is no mean, and two of class 1; D = 2.
    features = torch.tensor([[1.0, 0.0], [3.0, 0.0], [0.0, 2.0], [9.0, 9.0], [0.0, 1.0], [1.0, 0.0]])
    labels = torch.tensor([0, 0, 0, 2, 1, 1])
    to = ClassMeans(torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]]), torch.tensor([True, True, False]))
    first = (0 + 4 + (1 + 4)) / 3  # squared distances of class 0 to (1, 0)
    second = (1 + 1) / 2  # of class 1 to the origin
    assert float(alignment_loss(features, labels, to)) == pytest.approx((first + second) / 2)
    assert float(alignment_loss(features[3:4], labels[3:4], to)) == 0.0


def test_its_gradient_is_that_of_finite_differences() -> None:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(5, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    to = ClassMeans(torch.randn(CLASSES, 3, generator=generator, dtype=torch.float64), torch.ones(CLASSES).bool())
    labels = torch.tensor([0, 1, 1, 0, 2])
    assert torch.autograd.gradcheck(lambda z: alignment_loss(z, labels, to), (features,))


def test_features_at_their_class_means_are_the_minimum_and_have_no_gradient() -> None:
    means = torch.tensor([[1.0, 2.0], [0.0, -1.0], [4.0, 4.0]])
    labels = torch.tensor([2, 0, 1, 1])
    features = means[labels].clone().requires_grad_(True)
    loss = alignment_loss(features, labels, ClassMeans(means, torch.ones(CLASSES).bool()))
    (gradient,) = torch.autograd.grad(loss, features)
    assert float(loss.detach()) == 0
    assert not bool(gradient.any())


def test_the_extractor_is_aligned_alone_by_plain_sgd_and_then_everything_is_trained(
    linear_model: ExtractorClassifier,
) -> None:
    model, batches = linear_model, make_batches(linear_model, sizes=(6,))
    other = copy.deepcopy(model)
    kept = trained(copy.deepcopy(model), make_batches(model, seed=3)).memory(NOTHING)
    local = make_objective({"name": "as", "align_lr": 0.25}).local({}, model, replace(SITE, memory=kept))
    train_steps(model, local, [batches])  # the epoch of the alignment, momentum and weight decay being those of others
    other.load_state_dict({**other.state_dict(), **{n: kept[f"{MODEL}{n}"] for n in other.head_names}})
    images, labels = batches[0]
    to = ClassMeans(kept[MEANS], kept[HELD])
    parameters = dict(other.train().extractor.named_parameters(prefix="extractor"))
    gradients = torch.autograd.grad(
        alignment_loss(other.features(images), labels, to), list(parameters.values()), allow_unused=True
    )
    with torch.no_grad():
        for parameter, gradient in zip(parameters.values(), gradients, strict=True):
            parameter.sub_(0 if gradient is None else 0.25 * gradient)
    found, expected = copy_of(model), copy_of(other)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in model.head_names), "the head has no step"
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value)
    before = copy_of(model)
    train_steps(model, local, [batches])  # the local objective counts on: the second epoch is of the cross entropy
    assert all(not torch.equal(before[name], value) for name, value in model.named_parameters())


def test_alignment_brings_a_moved_extractor_back_to_the_sites_own_means() -> None:
    received = build_model("groupnorm_convnet", CLASSES, seed=1)  # whose features are the same in training
    batches = make_batches(received, sizes=(6, 6))
    kept = trained(received, batches).memory(NOTHING)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in received.extractor.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    site = replace(SITE, number=1, memory=kept)
    distances = []
    for align_lr in (0.0, 0.5):
        model = copy.deepcopy(received)
        local = make_objective({"name": "as", "align_epochs": 8, "align_lr": align_lr}).local({}, model, site)
        train_steps(model, local, [batches] * 8)
        distances.append(float((means_of(model, batches)[MEANS] - kept[MEANS]).square().sum()))
    assert distances[1] < 0.5 * distances[0]


def test_without_alignment_a_new_site_trains_as_fedavg_and_a_known_one_from_its_own_head(
    model: ExtractorClassifier, batches: list[Batch]
) -> None:
    first, expected = copy.deepcopy(model), copy.deepcopy(model)
    memory = trained(first, batches, align_epochs=0).memory(NOTHING)
    train_steps(expected, plain(expected), [batches, batches])
    assert same(copy_of(first), copy_of(expected))
    again, other = copy.deepcopy(model), copy.deepcopy(model)
    trained(again, batches, replace(SITE, number=1, memory=memory), align_epochs=0)
    other.load_state_dict({**other.state_dict(), **{n: memory[f"{MODEL}{n}"] for n in other.head_names}})
    train_steps(other, plain(other), [batches, batches])
    assert same(copy_of(again), copy_of(other))
    assert not same(copy_of(again), copy_of(expected))


def test_a_site_without_an_own_model_aligns_to_the_means_of_the_received_extractor(
    linear_model: ExtractorClassifier,
) -> None:
    model, batches = linear_model, make_batches(linear_model)
    local = make_objective("as").local({}, model, SITE)
    local.observe_received(model, see(model, batches), CLASSES)
    local.prepare(model)
    images, labels = batches[0]
    expected = means_of(model, batches)
    loss = alignment_loss(model.features(images), labels, ClassMeans(expected[MEANS], expected[HELD]))
    torch.testing.assert_close(local.loss(model, images, labels), loss)


def test_a_site_that_needs_no_means_of_the_received_extractor_does_not_read_its_images(
    linear_model: ExtractorClassifier,
) -> None:
    model = linear_model
    memory = trained(copy.deepcopy(model), make_batches(model)).memory(NOTHING)

    def unread() -> list[FeatureBatch]:
        raise AssertionError("the training split was read")

    for settings, site in (({"align_epochs": 0}, SITE), ({}, replace(SITE, memory=memory))):
        local = make_objective({"name": "as", **settings}).local({}, model, site)
        local.observe_received(model, (batch for _ in range(1) for batch in unread()), CLASSES)


# --- what a site keeps ---


def test_a_site_keeps_its_trained_model_and_its_class_means_and_is_judged_with_that_model(
    model: ExtractorClassifier, batches: list[Batch]
) -> None:
    received = copy.deepcopy(model)
    memory = trained(model, batches).memory(NOTHING)
    floats = {name: value for name, value in copy_of(model).items() if COUNTER not in name}
    assert same({name.removeprefix(MODEL): memory[name] for name in memory if name.startswith(MODEL)}, floats)
    for name, value in means_of(model, batches).items():
        torch.testing.assert_close(memory[name], value)
    objective = make_objective("as")
    own = objective.personal(copy.deepcopy(received), {}, replace(SITE, number=5, memory=memory)).network
    assert same({name: value for name, value in own.state_dict().items() if COUNTER not in name}, floats)
    fresh = objective.personal(copy.deepcopy(received), {}, SITE).network
    assert same(dict(fresh.state_dict()), copy_of(received))


def test_a_class_without_images_has_no_mean_and_no_part_in_the_alignment(linear_model: ExtractorClassifier) -> None:
    model = linear_model
    images, _ = make_batches(model, sizes=(4,))[0]
    memory = trained(model, [(images, torch.tensor([0, 0, 1, 1]))]).memory(NOTHING)
    assert memory[HELD].tolist() == [True, True, False]
    assert not bool(memory[MEANS][2].any())
    local = make_objective("as").local({}, model, replace(SITE, memory=memory))
    local.prepare(model)
    model.zero_grad(set_to_none=True)
    loss = local.loss(model, images, torch.full((4,), 2))
    loss.backward()
    assert float(loss.detach()) == 0
    assert all(p.grad is None or not bool(p.grad.any()) for p in model.parameters())


def test_training_that_diverged_leaves_what_was_kept(linear_model: ExtractorClassifier) -> None:
    model, batches = linear_model, make_batches(linear_model)
    local = make_objective("as").local({}, model, SITE)
    with torch.no_grad():
        model.last_layer.weight.fill_(float("nan"))
    local.observe_trained(model, see(model, batches), CLASSES)
    assert local.memory(NOTHING) == {}
    assert math.isnan(float(local.report(NOTHING)[REPORT_FISHER_TRACE]))


def test_memory_that_does_not_fit_is_refused_by_name(linear_model: ExtractorClassifier) -> None:
    model, objective = linear_model, make_objective("as")
    memory = trained(copy.deepcopy(model), make_batches(model)).memory(NOTHING)
    broken = {
        "'class_means' is missing": {name: value for name, value in memory.items() if name != MEANS},
        "'class_means' has shape": {**memory, MEANS: memory[MEANS][:2]},
        "'classes_held' has dtype": {**memory, HELD: memory[HELD].int()},
        "'model/classifier.bias' has 3 values that are NaN": {
            **memory,
            f"{MODEL}classifier.bias": torch.full((CLASSES,), float("nan")),
        },
        "sent 'more', expected only": {**memory, "more": torch.zeros(1)},
    }
    for said, kept in broken.items():
        for read in (objective.local, lambda sent, one, site: objective.personal(one, sent, site)):
            with pytest.raises(SettingsError, match=f"^site photo: its memory of objective 'as': {said}"):
                read({}, model, replace(SITE, memory=kept))


# --- the Fisher trace ---


def reported_trace(model: ExtractorClassifier, batches: list[Batch], size: int) -> float:
    """Return T as a site reports it that reads its training split in ``batches``."""
    local = make_objective({"name": "as", "fisher_batch": size}).local({}, model, SITE)
    local.observe_trained(model, see(model, batches), CLASSES)
    report = local.report(NOTHING)
    assert report.keys() == {REPORT_FISHER_TRACE}
    return float(report[REPORT_FISHER_TRACE])


def test_the_trace_is_the_sum_of_squared_gradients_of_batches_in_evaluation_mode(
    linear_model: ExtractorClassifier,
) -> None:
    model, ((images, labels),) = linear_model, make_batches(linear_model, sizes=(8,))
    total = 0.0
    model.eval()
    for part, targets in zip(images.split(2), labels.split(2), strict=True):
        model.zero_grad()
        torch.nn.functional.cross_entropy(model(part), targets).backward()
        total += sum(float(p.grad.double().square().sum()) for p in model.parameters() if p.grad is not None)
    model.zero_grad(set_to_none=True)
    assert reported_trace(model.train(), [(images, labels)], 2) == pytest.approx(total, rel=1e-5)
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("size", [1, 3, 4])
def test_the_trace_does_not_depend_on_how_the_images_arrive(linear_model: ExtractorClassifier, size: int) -> None:
    images, labels = make_batches(linear_model, sizes=(8,))[0]
    traces = [
        reported_trace(linear_model, list(zip(images.split(way), labels.split(way), strict=True)), size)
        for way in ([8], [3, 5], [1] * 8, [4, 4])
    ]
    assert traces == pytest.approx([traces[0]] * 4, rel=1e-5)


def test_an_image_that_fills_no_batch_does_not_move_the_trace_and_few_images_are_one_batch(
    linear_model: ExtractorClassifier,
) -> None:
    images, labels = make_batches(linear_model, sizes=(9,))[0]
    whole = reported_trace(linear_model, [(images[:8], labels[:8])], 4)
    assert reported_trace(linear_model, [(images, labels)], 4) == pytest.approx(whole, rel=1e-5)
    few = [(images[:2], labels[:2]), (images[2:3], labels[2:3])]
    assert [len(part) for part, _ in equal_batches(few, 4)] == [3]
    one = float(fisher_trace(linear_model, [(images[:3], labels[:3])]))
    assert reported_trace(linear_model, few, 4) == pytest.approx(one, rel=1e-5)


def test_a_frozen_parameter_has_no_part_in_the_trace(linear_model: ExtractorClassifier) -> None:
    model = linear_model
    batches = make_batches(model, sizes=(4,))
    everything = float(fisher_trace(model, batches))
    for parameter in model.extractor.parameters():
        parameter.requires_grad_(False)
    head = float(fisher_trace(model, batches))
    assert 0 < head < everything


# --- the server side ---


def test_the_server_reads_a_number_and_learns_and_sends_nothing(linear_model: ExtractorClassifier) -> None:
    exchange = exchange_of(linear_model)
    assert exchange.read("photo", {REPORT_FISHER_TRACE: torch.tensor([0.0])}, {}) == 0.0
    read = exchange.read("photo", {REPORT_FISHER_TRACE: torch.tensor([2.5])}, {})
    assert read == 2.5
    exchange.finish({"photo": read})
    assert (exchange.broadcast(), exchange.broadcast_to("photo"), exchange.tensors()) == ({}, {}, {})
    other = exchange_of(linear_model)
    other.restore(exchange.state(), {})
    assert other.state() == exchange.state()
    with pytest.raises(SettingsError, match=r"^state of the exchange: 'tensors' is"):
        other.restore(exchange.state(), {"more": torch.zeros(1)})


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (torch.tensor([-1.0]), "'fisher_trace' is -1, expected at least 0"),
        (torch.tensor([float("inf")]), "'fisher_trace' has 1 values that are NaN or infinite"),
        (torch.tensor([1e16]), "'fisher_trace' has values beyond 1e"),
        (torch.tensor(1.0), r"'fisher_trace' has shape \[\], expected \[1\]"),
        (torch.tensor([1]), "'fisher_trace' has dtype torch.int64, expected floating-point numbers"),
        (1.0, "'fisher_trace' is a float, expected a dense array"),
        (None, "'fisher_trace' is nothing, expected a dense array"),
    ],
)
def test_a_trace_that_is_none_is_refused_by_its_site(
    linear_model: ExtractorClassifier, value: object, said: str
) -> None:
    with pytest.raises(ContributionError, match=f"^site photo: {said}"):
        exchange_of(linear_model).read("photo", {REPORT_FISHER_TRACE: value}, {})


def test_a_setting_out_of_range_is_refused_by_name() -> None:
    wrong = {"align_epochs": -1, "align_lr": -1, "fisher_batch": 0}
    for name, value in wrong.items():
        with pytest.raises(SettingsError, match=f"{name} is {value}, expected"):
            make_objective({"name": "as", name: value})
    with pytest.raises(SettingsError, match="fisher_batch is 65, expected at most 64"):
        make_objective({"name": "as", "fisher_batch": 65})
