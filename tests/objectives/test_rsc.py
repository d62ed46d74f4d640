# SPDX-License-Identifier: Apache-2.0
"""RSC: what is muted is what the definition says, exactly so much of it, and the rest of training is FedAvg's."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fdg_plugins.errors import SettingsError
from fdg_plugins.methods.rsc import (
    SMALLEST_LOSS,
    LocalSelfChallenge,
    RSCObjective,
    label_gradient,
    largest,
    spatial_scores,
)
from fdg_plugins.models import ExtractorClassifier, build_model
from fdg_plugins.objectives import SiteRound, make_objective
from tests.objectives.objective_batches import CLASSES, Batch, Train, make_batches
from tests.random_tensors import normal

VARIANTS = ["spatial_channel", "feature"]
SITE = SiteRound("photo", 3, seed=7)


def local_of(model: ExtractorClassifier, site: SiteRound = SITE, **settings: object) -> LocalSelfChallenge:
    local = make_objective({"name": "rsc", **settings}).local({}, model, site)
    assert isinstance(local, LocalSelfChallenge)
    return local


def with_dropout(model: ExtractorClassifier) -> ExtractorClassifier:
    """``model`` with a head whose output depends on its mode."""
    size, hidden = model.feature_size, nn.Linear(model.feature_size, model.feature_size)
    model.classifier = nn.Sequential(hidden, nn.Dropout(0.5), nn.Linear(size, CLASSES))
    return model


def parameters_alike(one: nn.Module, other: nn.Module) -> bool:
    first, second = one.state_dict(), other.state_dict()
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


# --- what is muted, as defined ---


def defined(
    model: ExtractorClassifier, maps: torch.Tensor, labels: torch.Tensor, positions: bool, least: float = -1.0
) -> torch.Tensor:
    """What is kept of ``maps: [B, D, H, W]`` with fractions 1/3, sample by sample, from the gradient of the maps."""
    maps = maps.detach().requires_grad_()
    logits = model.classifier(maps.mean(dim=(2, 3)))
    (gradient,) = torch.autograd.grad(sum(logits[b, y] for b, y in enumerate(labels.tolist())), maps)
    kept, lost = torch.ones_like(maps, dtype=torch.bool), []
    for b, y in enumerate(labels.tolist()):
        mean = gradient[b].mean(dim=(1, 2))
        scores = (maps[b] * mean[:, None, None]).sum(dim=0).flatten() if positions else mean
        top = scores.topk(len(scores) // 3).indices
        if positions:
            kept[b].flatten(1)[:, top] = False
        else:
            kept[b, top] = False
        muted = model.classifier((maps[b] * kept[b]).mean(dim=(1, 2)))
        lost.append((logits[b].softmax(0)[y] - muted.softmax(0)[y]).item())
    chosen = sorted(range(len(labels)), key=lambda b: -lost[b])[: len(labels) // 3]
    for b in range(len(labels)):
        if b not in chosen or lost[b] <= least:
            kept[b] = True
    return kept


def maps_and_labels(model: ExtractorClassifier, number: int) -> Batch:
    """Feature maps and labels of six images, in double precision, where no two scores are equal."""
    images, labels = make_batches(model, (6,), seed=number)[0]
    return model.double().feature_map(images.double()), labels


def test_what_is_muted_is_as_defined_and_both_kinds_come_up(model: ExtractorClassifier) -> None:
    local, seen = local_of(model), []
    for number in range(6):
        maps, labels = maps_and_labels(model, number)
        kept = local.kept(model, maps, labels)
        positions = kept.shape == (6, 1, *maps.shape[2:])
        assert positions or kept.shape == (*maps.shape[:2], 1, 1)
        assert torch.equal(kept.expand_as(maps), defined(model, maps, labels, positions, SMALLEST_LOSS))
        seen.append(positions)
    assert set(seen) == {True, False}


def test_the_feature_variant_mutes_channels_alone(model: ExtractorClassifier) -> None:
    local = local_of(model, variant="feature")
    for number in range(6):
        maps, labels = maps_and_labels(model, number)
        kept = local.kept(model, maps, labels)
        assert kept.shape == (*maps.shape[:2], 1, 1)
        assert torch.equal(kept.expand_as(maps), defined(model, maps, labels, positions=False))


def test_the_gradient_of_a_linear_head_is_the_row_of_the_label() -> None:
    head, labels = nn.Linear(5, 3).double(), torch.tensor([2, 0, 0, 1])
    assert torch.equal(label_gradient(head, normal(0, 4, 5).double(), labels), head.weight.detach()[labels])
    assert head.weight.grad is None


def test_the_gradient_of_a_two_layer_head_agrees_with_finite_differences() -> None:
    head = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    features, labels = normal(0, 2, 5).double(), torch.tensor([2, 0])
    numeric = torch.zeros_like(features)
    for b in range(2):
        for d in range(5):
            moved = torch.zeros_like(features)
            moved[b, d] = 1e-6
            difference = head(features + moved) - head(features - moved)
            numeric[b, d] = difference[b, labels[b]].item() / 2e-6
    torch.testing.assert_close(label_gradient(head, features, labels), numeric, rtol=1e-6, atol=1e-8)


def test_the_score_of_a_position_is_its_channels_weighted_by_the_gradient() -> None:
    maps = torch.tensor([[[[1.0, 2.0]], [[3.0, -1.0]]]])  # one sample, two channels, one row of two positions
    scores = spatial_scores(maps, torch.tensor([[10.0, 1.0]]))
    assert scores.tolist() == [[[[13.0, 19.0]]]]


# --- how much is muted ---


@pytest.mark.parametrize("size", [1, 2, 3, 4, 49, 128, 512])
def test_exactly_the_floor_of_a_third_is_largest(size: int) -> None:
    chosen = largest(normal(size, 6, size), 1 / 3)
    assert chosen.sum(dim=1).tolist() == [size // 3] * 6


@pytest.mark.parametrize(("fraction", "count"), [(0, 0), (0.29, 29), (0.57, 57), (0.295, 29), (1, 100)])
def test_a_fraction_that_means_a_whole_number_gives_it(fraction: float, count: int) -> None:
    assert int(largest(normal(0, 1, 100), fraction).sum()) == count


def test_the_largest_are_larger_than_all_others_and_of_equal_ones_the_first() -> None:
    scores = normal(1, 5, 30)
    chosen = largest(scores, 0.4)
    for row, mask in zip(scores, chosen, strict=True):
        assert row[mask].min() > row[~mask].max()
    assert largest(torch.zeros(2, 6), 0.5).tolist() == [[True] * 3 + [False] * 3] * 2
    assert largest(torch.tensor([[1.0, 2.0, 1.0, 2.0, 1.0]]), 0.6).tolist() == [[True, True, False, True, False]]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("fraction", [0.1, 0.5, 1.0])
def test_a_sample_is_muted_by_the_exact_floor_or_left_whole(
    linear_model: ExtractorClassifier, variant: str, fraction: float
) -> None:
    model = linear_model
    local = local_of(model, variant=variant, feature_fraction=fraction, batch_fraction=0.5)
    for number in range(4):
        images, labels = make_batches(model, (7,), seed=number)[0]
        kept = local.kept(model, model.feature_map(images), labels).flatten(1)
        muted = (~kept).sum(dim=1)
        whole = math.floor(fraction * kept.shape[1])
        assert set(muted.tolist()) <= {0, whole}
        samples = int((muted > 0).sum())
        assert samples == (3 if whole else 0) if variant == "feature" else samples <= 3


def certain_head(model: ExtractorClassifier) -> ExtractorClassifier:
    """``model`` whose logits do not depend on the image: nothing that is muted changes a probability."""
    nn.init.zeros_(model.last_layer.weight)
    return model


def test_a_sample_that_loses_nothing_is_left_whole_unless_as_domainbed(linear_model: ExtractorClassifier) -> None:
    model, (images, labels) = certain_head(linear_model), make_batches(linear_model, (6,))[0]
    maps = model.feature_map(images)
    assert all(bool(local_of(model).kept(model, maps, labels).all()) for _ in range(4))
    kept = local_of(model, variant="feature").kept(model, maps, labels)
    assert (~kept).flatten(1).any(dim=1).tolist() == [True, True, False, False, False, False]  # of equal ones the first


def test_every_muted_sample_loses_more_than_those_left_whole(linear_model: ExtractorClassifier) -> None:
    local, model = local_of(linear_model, feature_fraction=0.5, batch_fraction=1.0), linear_model
    images, labels = make_batches(model, (9,))[0]
    maps = model.feature_map(images).detach()
    for _ in range(6):
        kept = local.kept(model, maps, labels)
        with torch.no_grad():
            both = [model.classifier(model.pool(one)).softmax(dim=1) for one in (maps, maps * kept)]
        lost = (both[0] - both[1])[torch.arange(9), labels]
        muted = ~kept.flatten(1).all(dim=1)
        assert bool((lost[muted] > SMALLEST_LOSS).all())
        assert bool((lost[~muted] == 0).all())


# --- what training sees ---


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_loss_is_the_cross_entropy_of_what_is_kept_with_the_gradient_of_the_extractor(
    model: ExtractorClassifier, variant: str
) -> None:
    images, labels = make_batches(model, (6,))[0]
    twin = copy.deepcopy(model)
    loss = local_of(model, variant=variant).loss(model, images, labels)
    maps = twin.feature_map(images)
    kept = local_of(twin, variant=variant).kept(twin, maps, labels)
    expected = cross_entropy(twin.classifier((maps * kept).mean(dim=(2, 3))), labels)
    torch.testing.assert_close(loss, expected)
    assert not bool(kept.all())
    for one, other in zip(
        torch.autograd.grad(loss, list(model.parameters())),
        torch.autograd.grad(expected, list(twin.parameters())),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("zero", ["feature_fraction", "batch_fraction"])
def test_with_a_fraction_of_zero_training_is_that_of_fedavg_to_the_bit(
    linear_model: ExtractorClassifier, train: Train, variant: str, zero: str
) -> None:
    model, batches = linear_model, make_batches(linear_model)
    plain, ours = copy.deepcopy(model), make_objective({"name": "rsc", "variant": variant, zero: 0})
    train(plain, make_objective("erm").local({}, plain), batches)
    train(model, ours.local({}, model, SITE), batches)
    assert parameters_alike(model, plain)


@pytest.mark.parametrize("variant", VARIANTS)
def test_batches_too_small_to_mute_a_sample_train_as_fedavg_to_the_bit(
    model: ExtractorClassifier, train: Train, variant: str
) -> None:
    plain, batches = copy.deepcopy(model), make_batches(model, (2, 2))
    train(plain, make_objective("erm").local({}, plain), batches)
    train(model, local_of(model, variant=variant), batches)
    assert parameters_alike(model, plain)


@pytest.mark.parametrize("variant", VARIANTS)
def test_two_rounds_alike_agree_and_training_is_not_that_of_fedavg(
    linear_model: ExtractorClassifier, train: Train, variant: str
) -> None:
    model, batches = linear_model, make_batches(linear_model)
    plain, again = copy.deepcopy(model), copy.deepcopy(model)
    train(plain, make_objective("erm").local({}, plain), batches)
    train(model, local_of(model, variant=variant), batches)
    torch.rand(3)  # no global generator counts
    train(again, local_of(again, variant=variant), batches)
    assert parameters_alike(model, again)
    assert not parameters_alike(model, plain)
    assert all(bool(value.isfinite().all()) for value in model.state_dict().values())


def test_site_round_and_seed_decide_what_is_drawn(linear_model: ExtractorClassifier) -> None:
    def drawn(site: SiteRound) -> list[int]:
        local = local_of(linear_model, site)
        return [int(torch.randint(2, (), generator=local.generator)) for _ in range(40)]

    others = [SiteRound("sketch", 3, seed=7), SiteRound("photo", 4, seed=7), SiteRound("photo", 3, seed=8)]
    assert drawn(SITE) == drawn(SITE)
    assert all(drawn(other) != drawn(SITE) for other in others)


def test_the_extractor_runs_once_per_step_and_no_mode_is_changed(linear_model: ExtractorClassifier) -> None:
    model = with_dropout(linear_model)
    model.get_submodule("extractor.1").eval()  # one BatchNorm frozen
    plain, modes = copy.deepcopy(model), [module.training for module in model.modules()]
    images, labels = make_batches(model, (6,))[0]
    local_of(model).loss(model, images, labels)
    plain(images)
    assert parameters_alike(model, plain)  # running statistics and counters among them
    assert [module.training for module in model.modules()] == modes
    assert all(parameter.grad is None for parameter in model.parameters())


def test_scores_are_those_of_evaluation_mode(linear_model: ExtractorClassifier) -> None:
    model = with_dropout(linear_model)
    images, labels = make_batches(model, (6,))[0]
    maps = model.feature_map(images)
    first, second = [local_of(model).kept(model, maps, labels) for _ in range(2)]
    assert torch.equal(first, second)
    assert torch.equal(first, local_of(model.eval()).kept(model, maps, labels))


@pytest.mark.parametrize("variant", VARIANTS)
def test_scores_are_float32_also_under_autocast(model: ExtractorClassifier, variant: str) -> None:
    images, labels = make_batches(model, (6,))[0]
    with torch.autocast("cpu", torch.bfloat16):
        maps = model.feature_map(images)
        kept = local_of(model, variant=variant).kept(model, maps, labels)
        loss = local_of(model, variant=variant).loss(model, images, labels)
    assert torch.equal(kept, local_of(model, variant=variant).kept(model, maps.float(), labels))
    loss.backward()
    assert loss.dtype == torch.float32
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters())


@pytest.mark.parametrize("variant", VARIANTS)
def test_everything_muted_and_classes_that_are_missing_give_numbers(
    linear_model: ExtractorClassifier, variant: str
) -> None:
    images = make_batches(linear_model, (5,))[0][0]
    local = local_of(linear_model, variant=variant, feature_fraction=1, batch_fraction=1)
    loss = local.loss(linear_model, images, torch.full((5,), 2))
    loss.backward()
    assert bool(loss.isfinite())
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in linear_model.parameters())


# --- settings ---


def test_defaults_are_those_of_the_released_codes() -> None:
    assert make_objective("rsc") == RSCObjective("spatial_channel", 1 / 3, 1 / 3)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("variant", "spatial"),
        ("variant", None),
        ("feature_fraction", 1.1),
        ("feature_fraction", -0.1),
        ("batch_fraction", math.nan),
        ("batch_fraction", True),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(setting: str, value: object) -> None:
    with pytest.raises(SettingsError, match=rf"^{setting} is .*, expected .*\.$"):
        make_objective({"name": "rsc", setting: value})


@pytest.mark.parametrize("fraction", [0, 0.5])
def test_nothing_is_exchanged_and_nothing_may_be_received(linear_model: ExtractorClassifier, fraction: float) -> None:
    objective = make_objective({"name": "rsc", "batch_fraction": fraction})
    assert objective.exchange(linear_model, CLASSES) is None
    assert objective.report is None
    with pytest.raises(SettingsError, match=r"^sent for objective 'rsc': sent 'insight', expected only nothing\.$"):
        objective.local({"insight": torch.zeros(1)}, linear_model)


def test_resnet_is_challenged_at_its_last_map() -> None:
    model = build_model("resnet18", CLASSES, seed=0).train()
    images, labels = make_batches(model, (3,))[0]
    maps = model.feature_map(images.repeat(1, 1, 4, 4))
    assert maps.shape == (3, 512, 2, 2)
    kept = local_of(model, variant="feature").kept(model, maps, labels)
    assert sorted((~kept).flatten(1).sum(dim=1).tolist()) == [0, 0, 170]
