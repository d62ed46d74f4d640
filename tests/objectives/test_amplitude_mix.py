# SPDX-License-Identifier: Apache-2.0
"""AM: batches are mixed as often, and as, the seed says; never is FedAvg to the bit."""

from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from fdg_plugins.core.spectrum import amplitude_and_phase
from fdg_plugins.methods.am import AMObjective, LocalAmplitudeMix
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives import SiteRound
from tests.objectives.objective_batches import make_batches

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
