# SPDX-License-Identifier: Apache-2.0
"""RSC: what is muted is what the definition says, exactly so much of it, and the rest of training is FedAvg's."""

import copy

import pytest
import torch
from torch.nn.functional import cross_entropy

from fdg_plugins.methods.rsc import SMALLEST_LOSS, LocalSelfChallenge
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives import SiteRound, make_objective
from tests.objectives.local_steps import Batch, make_batches

VARIANTS = ["spatial_channel", "feature"]
SITE = SiteRound("photo", 3, seed=7)


def local_of(model: ExtractorClassifier, site: SiteRound = SITE, **settings: object) -> LocalSelfChallenge:
    local = make_objective({"name": "rsc", **settings}).local({}, model, site)
    assert isinstance(local, LocalSelfChallenge)
    return local


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


@pytest.mark.parametrize("variant", VARIANTS)
def test_loss_is_of_what_is_kept(model: ExtractorClassifier, variant: str) -> None:
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
