# SPDX-License-Identifier: Apache-2.0
"""AM: batches are mixed as often, and as, the seed says; never is FedAvg to the bit."""

import copy
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from fdg_plugins.core.spectrum import amplitude_and_phase, mix_amplitudes
from fdg_plugins.errors import SettingsError
from fdg_plugins.methods.am import AMObjective, LocalAmplitudeMix
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives import ERMObjective, LocalObjective, SiteRound
from tests.objectives.objective_batches import CLASSES, Batch, Train, make_batches

SITE = SiteRound("a", 3, seed=1)


def images_of(count: int = 6, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, 3, 16, 16, generator=torch.Generator().manual_seed(seed))


def mix_of(probability: float = 1.0, site: SiteRound = SITE) -> LocalAmplitudeMix:
    local = AMObjective(probability).local({}, unread_model(), site)
    assert isinstance(local, LocalAmplitudeMix)
    return local


def unread_model() -> Any:
    """What stands for a model where none is looked at."""
    return None


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(first[name], second[name]) for name in first)


def test_batches_that_are_not_drawn_are_trained_on_to_the_bit_as_they_came(
    linear_model: ExtractorClassifier,
) -> None:
    local, plain = mix_of(0.5), ERMObjective().local({}, linear_model)
    linear_model.eval()
    images, labels = make_batches(linear_model)[0]
    losses = [local.loss(linear_model, images, labels) for _ in range(40)]
    kept = [torch.equal(loss, plain.loss(linear_model, images, labels)) for loss in losses]
    assert 10 < sum(kept) < 30


def test_the_loss_is_the_cross_entropy_of_the_mixed_images_with_their_own_labels(
    linear_model: ExtractorClassifier,
) -> None:
    linear_model.eval()
    images, labels = make_batches(linear_model)[0]
    loss = mix_of().loss(linear_model, images, labels)
    assert torch.equal(loss, cross_entropy(linear_model(mix_of().augmented(images)), labels))


def partner_and_share(own: torch.Tensor, index: int, mixed: torch.Tensor) -> tuple[int, float]:
    """Recover the partner of an image, and what the image kept of its own, from amplitudes ``own [B, P]`` alone."""
    moved, towards = mixed - own[index], own - own[index]
    if moved.norm() < 1e-5 * own[index].norm():
        return index, 1.0
    lengths = (towards @ moved) / towards.square().sum(dim=1)  # NaN for the image itself
    errors = (moved - lengths[:, None] * towards).norm(dim=1).nan_to_num(torch.inf)
    partner = int(errors.argmin())
    return partner, 1.0 - float(lengths[partner])


def test_partners_are_a_permutation_of_the_batch_and_every_image_has_a_share_of_its_own() -> None:
    local, all_shares = mix_of(), []
    for seed in range(20):
        images = images_of(seed=seed)
        mixed = local.augmented(images)
        own, new = (amplitude_and_phase(value.double())[0].flatten(1) for value in (images, mixed))
        found = [partner_and_share(own, index, row) for index, row in enumerate(new)]
        assert sorted(partner for partner, _ in found) == list(range(6))
        all_shares += [share for index, (partner, share) in enumerate(found) if partner != index]
    assert len({round(share, 6) for share in all_shares}) == len(all_shares)
    assert -1e-3 < min(all_shares) < 0.1
    assert 0.9 < max(all_shares) < 1.001
    assert sum(all_shares) / len(all_shares) == pytest.approx(0.5, abs=0.1)


def test_what_is_drawn_depends_on_seed_site_and_round_alone() -> None:
    images = images_of()
    expected = mix_of().augmented(images)
    torch.rand(3)  # the global generator plays no part
    assert torch.equal(mix_of(site=SiteRound("a", 3, 1, learning_rate=0.5)).augmented(images), expected)
    for other in (SiteRound("b", 3, seed=1), SiteRound("a", 4, seed=1), SiteRound("a", 3, seed=2)):
        assert not torch.equal(mix_of(site=other).augmented(images), expected)


def test_the_global_generator_is_left_as_it_was() -> None:
    before = torch.get_rng_state()
    mix_of().augmented(images_of())
    assert torch.equal(torch.get_rng_state(), before)


def test_every_batch_draws_anew() -> None:
    local, images = mix_of(), images_of()
    assert not torch.equal(local.augmented(images), local.augmented(images))


@pytest.mark.parametrize("count", [1, 2])
def test_small_batches_are_mixed_too_and_one_image_alone_stays(count: int) -> None:
    images = images_of(count)
    mixed = mix_of().augmented(images)
    assert mixed.shape == images.shape
    if count == 1:
        torch.testing.assert_close(mixed, images, rtol=1e-4, atol=1e-5)


def test_the_batch_itself_is_left_as_it_came() -> None:
    images = images_of()
    kept = images.clone()
    mix_of().augmented(images)
    assert torch.equal(images, kept)


def test_under_autocast_images_are_mixed_in_float32(linear_model: ExtractorClassifier) -> None:
    images, labels = make_batches(linear_model)[0]
    expected = mix_of().augmented(images)
    local = mix_of()
    with torch.autocast("cpu", torch.bfloat16):
        mixed = mix_of().augmented(images)
        loss = local.loss(linear_model, images, labels)
    loss.backward()
    assert torch.equal(mixed, expected)
    assert loss.dtype == torch.float32
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in linear_model.parameters())


def test_training_differs_from_fedavg_and_is_repeated_to_the_bit(
    model: ExtractorClassifier, batches: list[Batch], train: Train
) -> None:
    def trained(local: LocalObjective) -> dict[str, torch.Tensor]:
        return train(copy.deepcopy(model), local, batches)

    first, again, plain = trained(mix_of()), trained(mix_of()), trained(ERMObjective().local({}, model))
    assert same(first, again)
    assert not same(first, plain)


def test_nothing_is_exchanged_reported_or_kept(linear_model: ExtractorClassifier) -> None:
    objective = AMObjective()
    assert objective.exchange(linear_model, CLASSES) is None
    assert objective.report is None
    assert objective.adapt(linear_model, (3, 16, 16), 0) is linear_model
    with pytest.raises(SettingsError, match="sent for objective 'am': sent 'bank', expected only nothing"):
        objective.local({"bank": torch.zeros(1)}, linear_model)


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan"), True, "0.5", None])
def test_a_probability_out_of_range_is_refused_by_name(value: Any) -> None:
    with pytest.raises(SettingsError, match=r"^probability is .*, expected a number from 0 to 1\.0\.$"):
        AMObjective(value)


def test_mixing_two_images_by_hand() -> None:
    """Two constant images of 1 and 3, one channel: their amplitudes are 1 and 3 at frequency zero, nothing else."""
    images = torch.stack([torch.full((1, 16, 16), 1.0), torch.full((1, 16, 16), 3.0)])
    mixed = mix_amplitudes(images, torch.tensor([1, 0]), torch.tensor([0.25, 0.5]))
    # 0.25 * 1 + 0.75 * 3 = 2.5 and 0.5 * 3 + 0.5 * 1 = 2
    torch.testing.assert_close(mixed, torch.stack([torch.full((1, 16, 16), 2.5), torch.full((1, 16, 16), 2.0)]))
