# SPDX-License-Identifier: Apache-2.0
"""StableFDG: what is shared, explored and weighed is as defined, each site is sent another's styles, nothing more."""

import copy
from typing import Any, cast

import pytest
import torch

from fdg_plugins.core.style import styles_of
from fdg_plugins.methods.stablefdg import LocalStyles, StableFDGObjective, StyleChanges, StyleExchange
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.models.styled import StyledClassifier
from fdg_plugins.objectives import SiteRound, make_objective, see
from fdg_plugins.testing.inputs import same_bits
from tests.objectives.local_steps import CLASSES, Batch, make_batches

SITE = SiteRound("photo", 3, seed=7)


def adapted(model: ExtractorClassifier, seed: int = 1, **settings: Any) -> StyledClassifier:
    shape = (next(model.extractor.parameters()).shape[1], 16, 16)
    return cast("StyledClassifier", StableFDGObjective(**settings).adapt(copy.deepcopy(model), shape, seed).train())


@pytest.fixture
def network(linear_model: ExtractorClassifier) -> StyledClassifier:
    return adapted(linear_model)


def style(seed: int = 0, channels: int = 32) -> torch.Tensor:
    """Statistics of styles as a site reports them."""
    return torch.rand(2, 2 * channels, generator=torch.Generator().manual_seed(seed)) + 0.1


def payload(statistics: torch.Tensor) -> dict[str, torch.Tensor]:
    """The two tensors in which statistics ``[2, 2C]`` travel, in either direction."""
    return {"style_mean": statistics[0], "style_deviation": statistics[1]}


def local_of(
    model: ExtractorClassifier, site: SiteRound = SITE, received: torch.Tensor | None = None, **settings: Any
) -> LocalStyles:
    sent = {} if received is None else payload(received)
    local = make_objective({"name": "stable", **settings}).local(sent, model, site)
    assert isinstance(local, LocalStyles)
    return local


def changes_of(model: StyledClassifier, labels: torch.Tensor, **settings: Any) -> StyleChanges:
    return StyleChanges(local_of(model, received=style(), **settings), model, labels)


def maps_of(number: int = 6, channels: int = 32) -> torch.Tensor:
    return torch.rand(number, channels, 5, 5, generator=torch.Generator().manual_seed(number)) + 1


def test_sharing_gives_a_centre_or_a_style_of_the_other_site(network: StyledClassifier) -> None:
    certain = torch.stack([style()[0], torch.zeros(64)])  # styles that vary not at all
    local = local_of(network, received=certain, shared_fraction=0.5)
    changed = StyleChanges(local, network, torch.arange(6)).shared(maps_of(), certain)
    found, own = styles_of(changed), styles_of(maps_of())
    torch.testing.assert_close(found[3:], certain[:1].expand(3, 64), rtol=1e-4, atol=1e-4)
    whole = StyleChanges(local_of(network, shared_fraction=1.0), network, torch.arange(6)).shared(maps_of(), certain)
    torch.testing.assert_close(styles_of(whole), certain[:1].expand(6, 64), rtol=1e-4, atol=1e-4)
    low, high = own.min(dim=0).values, own.max(dim=0).values
    assert bool((found[:3] >= low - 1e-4).all())
    assert bool((found[:3] <= high + 1e-4).all())


def test_the_first_active_stage_appends_and_every_active_one_mixes(network: StyledClassifier) -> None:
    labels = torch.tensor([0, 0, 0, 1])
    changes = changes_of(network, labels, sharing_probability=0, exploration_probability=1)
    first = changes(0, maps_of(4))
    assert len(first) == 8
    assert changes.labels.bincount().tolist() == [4, 4]
    assert len(changes(1, first)) == len(changes(2, first)) == 8
    assert not torch.equal(changes(1, first), first)


def test_what_is_appended_has_the_explored_style_and_the_label_of_its_source(network: StyledClassifier) -> None:
    labels, maps = torch.tensor([0, 0, 1, 0]), maps_of(4)
    extended = changes_of(network, labels, exploration_level=0, oversampling=0.5).extended(maps)
    torch.testing.assert_close(extended, torch.cat([maps, maps[[2, 2]]]))  # level 0 keeps the styles
    assert changes_of(network, labels, oversampling=0).extended(maps) is maps
    changes = changes_of(network, labels, exploration_level=3, oversampling=0.25)
    own = styles_of(maps)
    moved = styles_of(changes.extended(maps))[4]
    expected = own[2] + 3 * (own[2] - own.mean(dim=0))
    expected[32:].clamp_(min=0)
    torch.testing.assert_close(moved, expected, rtol=1e-3, atol=2e-3)
    assert changes.labels.tolist() == [0, 0, 1, 0, 1]


def reported(model: StyledClassifier, batches: list[Batch]) -> torch.Tensor:
    found = StableFDGObjective().report_received(model, see(model, batches), CLASSES)
    assert found.keys() == payload(style()).keys()
    return torch.stack([found["style_mean"], found["style_deviation"]])


def test_the_report_is_mean_and_deviation_of_all_images_however_they_are_batched(network: StyledClassifier) -> None:
    images, labels = make_batches(network, (9,))[0]
    with torch.no_grad():
        styles = styles_of(copy.deepcopy(network).eval().first_stage(images))
    found = reported(network, [(images, labels)])
    torch.testing.assert_close(found, torch.stack([styles.mean(dim=0), styles.std(dim=0, correction=0)]))
    torch.testing.assert_close(reported(network, [(images[:4], labels[:4]), (images[4:], labels[4:])]), found)
    assert network.training


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
def test_every_site_gives_to_exactly_one_other(number: int) -> None:
    exchange, styles = StyleExchange(2), {site: payload(style(ord(site), 2)) for site in "abcde"}
    for _ in range(number):
        exchange.begin_round({})
        exchange.finish({site: exchange.read(site, own, {}) for site, own in styles.items()})
    sent = {site: exchange.broadcast(site) for site in styles}
    sources = {site: next(one for one in styles if same_bits(sent[site], styles[one])) for site in styles}
    assert sorted(sources.values()) == sorted(styles)
    assert all(source != site for site, source in sources.items())
