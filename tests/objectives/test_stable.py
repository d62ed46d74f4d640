# SPDX-License-Identifier: Apache-2.0
"""StableFDG: what is shared, explored and weighed is as defined, each site is sent another's styles, nothing more."""

import copy
import json
import math
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from nvflare.apis.client import Client
from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.fl_constant import ReservedKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from torch.nn.functional import cross_entropy

from fdg_plugins.core.style import styles_of
from fdg_plugins.errors import ContributionError, SettingsError
from fdg_plugins.filters import EXCHANGE_PROP, ExchangeRound, ExchangeSendFilter
from fdg_plugins.filters.wire import read_message
from fdg_plugins.flare.peers import mark_asking_sites
from fdg_plugins.methods.stablefdg import (
    LocalStyles,
    StableFDGObjective,
    StyleChanges,
    StyleExchange,
    styled_network,
)
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.models.styled import StyledClassifier
from fdg_plugins.objectives import Exchange, SiteRound, make_objective, see
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.settings.site_config import SiteConfig
from fdg_plugins.training.session import SiteSession
from tests.objectives.local_steps import same
from tests.objectives.objective_batches import CLASSES, Batch, Train, make_batches

SITE = SiteRound("photo", 3, seed=7)
OFF: dict[str, Any] = {"sharing_probability": 0, "exploration_probability": 0}


def adapted(model: ExtractorClassifier, seed: int = 1, **settings: Any) -> StyledClassifier:
    shape = (next(model.extractor.parameters()).shape[1], 16, 16)
    return styled_network(StableFDGObjective(**settings).adapt(copy.deepcopy(model), shape, seed)).train()


@pytest.fixture
def network(linear_model: ExtractorClassifier) -> StyledClassifier:
    """The network with BatchNorm and one linear layer, with attention."""
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


# --- what happens to a batch ---


def test_sharing_gives_each_sample_a_centre_of_the_batch_or_a_style_of_the_other_site(
    network: StyledClassifier,
) -> None:
    certain = torch.stack([style()[0], torch.zeros(64)])  # styles that vary not at all
    local = local_of(network, received=certain, shared_fraction=0.5)
    changed = StyleChanges(local, network, torch.arange(6)).shared(maps_of(), certain)
    found, own = styles_of(changed), styles_of(maps_of())
    torch.testing.assert_close(found[3:], certain[:1].expand(3, 64), rtol=1e-4, atol=1e-4)
    low, high = own.min(dim=0).values, own.max(dim=0).values
    assert bool((found[:3] >= low - 1e-4).all())
    assert bool((found[:3] <= high + 1e-4).all())


@pytest.mark.parametrize(
    ("fraction", "size", "new"), [(0.5, 5, 2), (0.0, 4, 0), (1.0, 4, 4), (0.29, 100, 29), (0.5, 1, 0)]
)
def test_the_share_of_the_batch_is_rounded_down(
    network: StyledClassifier, fraction: float, size: int, new: int
) -> None:
    certain = torch.stack([torch.full((64,), 50.0), torch.zeros(64)])
    local = local_of(network, received=certain, shared_fraction=fraction)
    changed = StyleChanges(local, network, torch.zeros(size).long()).shared(maps_of(size), certain)
    assert int((styles_of(changed)[:, 0] > 40).sum()) == new


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
    changes = changes_of(network, labels, exploration_level=3, oversampling=0.25)
    own = styles_of(maps)
    moved = styles_of(changes.extended(maps))[4]
    expected = own[2] + 3 * (own[2] - own.mean(dim=0))
    expected[32:].clamp_(min=0)
    torch.testing.assert_close(moved, expected, rtol=1e-3, atol=2e-3)
    assert changes.labels.tolist() == [0, 0, 1, 0, 1]


def test_nothing_is_shared_before_anything_is_received(network: StyledClassifier) -> None:
    local = local_of(network, sharing_probability=1, exploration_probability=0)
    maps = maps_of()
    assert StyleChanges(local, network, torch.arange(6))(0, maps) is maps


# --- the loss ---


def test_without_changes_of_style_the_loss_is_that_of_the_attention_network(network: StyledClassifier) -> None:
    network.eval()
    images, labels = make_batches(network, (5,))[0]  # classes 0 1 2 0 1
    maps = network.feature_map(images)
    logits = network.classifier(network.pool(maps, torch.tensor([3, 4, 2, 0, 1])))
    loss = local_of(network, **OFF).loss(network, images, labels)
    torch.testing.assert_close(loss, cross_entropy(logits, labels))
    assert not torch.equal(loss, cross_entropy(network(images), labels))  # whose queries are an image's own


def test_the_loss_counts_what_was_appended(network: StyledClassifier) -> None:
    network.eval()
    images, labels = make_batches(network, (4,))[0]
    local = local_of(network, sharing_probability=0, exploration_probability=1, exploration_level=0, mixing=1e-6)
    # Mixtures at 1e-6 are all or nothing: with one image per batch the partner is the image itself or its copy.
    one = local.loss(network, images[:1], labels[:1])
    plain = local_of(network, **OFF).loss(network, images[:1], labels[:1])
    torch.testing.assert_close(one, plain, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("settings", "is_neutral"),
    [
        ({**OFF, "attention": False}, True),
        ({**OFF, "attention": True}, False),
        ({"sharing_probability": 0, "attention": False}, False),
        ({"exploration_probability": 0, "attention": False}, False),
    ],
)
def test_only_without_all_three_parts_training_is_fedavgs_of_the_plain_network_to_the_bit(
    linear_model: ExtractorClassifier, train: Train, settings: dict[str, Any], is_neutral: bool
) -> None:
    batches = make_batches(linear_model)
    own = adapted(linear_model, **settings)
    expected = train(linear_model, make_objective("erm").local({}, linear_model), batches)
    local = make_objective({"name": "stable", **settings}).local(payload(style()), own, SITE)
    assert same(train(own, local, batches), expected) == is_neutral


def test_two_rounds_alike_agree_and_the_changes_follow_seed_site_and_round(
    network: StyledClassifier, train: Train
) -> None:
    batches = make_batches(network)

    def trained(site: SiteRound) -> dict[str, torch.Tensor]:
        torch.rand(3)  # no global generator counts
        model = copy.deepcopy(network)
        return train(model, local_of(model, site, style()), batches)

    first = trained(SITE)
    assert same(trained(SITE), first)
    for other in (SiteRound("sketch", 3, seed=7), SiteRound("photo", 4, seed=7), SiteRound("photo", 3, seed=8)):
        assert not same(trained(other), first)


def test_a_batch_of_one_and_classes_that_are_missing_train_without_nan(network: StyledClassifier) -> None:
    images = make_batches(network, (1,))[0][0]
    local = local_of(network, received=style(), sharing_probability=1, exploration_probability=1)
    loss = local.loss(network, images, torch.tensor([2]))
    loss.backward()
    assert bool(loss.isfinite())
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in network.parameters())


def test_the_seed_alone_decides_attention_and_head(linear_model: ExtractorClassifier) -> None:
    first, again, other = (dict(adapted(linear_model, seed).state_dict()) for seed in (5, 5, 6))
    assert same(first, again)
    changed = {name for name in first if not torch.equal(first[name], other[name])}
    assert {name.partition(".")[0] for name in changed} == {"attention", "classifier"}


# --- the report ---


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


def test_styles_are_compared_by_the_lengths_of_mean_and_deviation() -> None:
    sizes = StyleExchange(2).sizes(torch.tensor([[3.0, 4.0, 0.0, 0.0], [0.0, 0.0, 6.0, 8.0]]))
    assert sizes == {"mean style": 5.0, "deviation of styles": 10.0}


def test_attention_is_computed_in_float32_even_under_autocast(network: StyledClassifier) -> None:
    maps = network.feature_map(make_batches(network)[0][0]).detach()
    exact = network.pool(maps)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(network.pool(maps), exact)


def test_one_image_has_no_deviation(network: StyledClassifier) -> None:
    assert reported(network, make_batches(network, (1,)))[1].abs().max().item() < 1e-3


def exchange_after(*rounds: Iterable[str]) -> StyleExchange:
    """The exchange after rounds of these sites, each with the style of its letter."""
    exchange = StyleExchange(2)
    for sites in rounds:
        exchange.begin_round({})
        exchange.finish({site: exchange.read(site, payload(style(ord(site), 2)), {}) for site in sites})
    return exchange


def source_of(exchange: Exchange, site: str) -> str:
    """The site whose style ``site`` is sent."""
    sent = exchange.broadcast_to(site)
    return next(letter for letter in "abcdef" if same(sent, payload(style(ord(letter), 2))))


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
def test_every_site_gives_to_exactly_one_other(number: int) -> None:
    exchange = exchange_after(*["abcde"] * number)
    sources = [source_of(exchange, site) for site in "abcde"]
    assert sorted(sources) == list("abcde")
    assert all(source != site for source, site in zip(sources, "abcde", strict=True))


def test_all_others_come_before_one_comes_again() -> None:
    for site in "abcd":
        sources = [source_of(exchange_after(*["abcd"] * number), site) for number in (1, 2, 3)]
        assert sorted(sources) == sorted(set("abcd") - {site})


def test_a_new_site_receives_the_styles_of_another_and_an_absent_one_is_not_passed_on() -> None:
    exchange = exchange_after(("a", "b", "c"), ("a", "b"))
    assert {source_of(exchange, site) for site in "abcdef"} <= {"a", "b"}
    assert source_of(exchange, "a") == "b"


def test_a_site_that_is_alone_is_sent_nothing() -> None:
    assert exchange_after(("a",)).broadcast_to("a") == {}
    assert source_of(exchange_after(("a",)), "b") == "a"
    assert exchange_after().broadcast_to("a") == {}


def test_no_style_is_published() -> None:
    assert exchange_after(("a", "b"), ("a", "b")).published() == {}


def test_a_resumed_server_sends_every_site_the_same() -> None:
    exchange, other = exchange_after(("a", "b", "c"), ("a", "b", "c")), StyleExchange(2)
    other.restore(json.loads(json.dumps(exchange.state())), exchange.tensors())
    for site in "abcd":
        assert same(other.broadcast_to(site), exchange.broadcast_to(site))


@pytest.mark.parametrize("claimed", ["a", "b", "c"])
def test_the_servers_filter_sends_each_site_its_own_payload_whatever_it_calls_itself(claimed: str) -> None:
    exchange = exchange_after(("a", "b", "c"))
    runner = SimpleNamespace(process_task_request=lambda client, fl_ctx: ("train", client.name, Shareable()))
    mark_asking_sites(runner)
    for site in "abc":
        peer, context = FLContext(), FLContext()
        peer.set_prop(ReservedKey.IDENTITY_NAME, claimed, private=False, sticky=False)
        context.set_peer_context(peer)
        context.set_prop(EXCHANGE_PROP, ExchangeRound(exchange, 1), private=True, sticky=False)
        assert runner.process_task_request(Client(site, "token"), context)[:2] == ("train", site)
        task = DXO(DataKind.WEIGHTS, data={"weight": torch.zeros(2)}).to_shareable()
        sent = read_message(ExchangeSendFilter().process(task, context))
        assert sent is not None
        assert sent.tensors is not None
        assert same(sent.tensors, payload(style(ord(source_of(exchange, site)), 2)))


@pytest.mark.parametrize("place", [(1, 0), (1, 3), (0, 2)])
def test_a_negative_deviation_is_refused_at_both_ends(network: StyledClassifier, place: tuple[int, int]) -> None:
    exchange = exchange_after()
    exchange.begin_round({})
    wrong = style(0, 2)
    wrong[place] = -0.1
    with pytest.raises(ContributionError, match=r"^site a: 'style_mean' or .* has a negative standard deviation\.$"):
        exchange.read("a", payload(wrong), {})
    sent = style()
    sent[1, 0] = -0.1
    with pytest.raises(SettingsError, match=r"^sent for objective 'stable': .* has a negative .*\.$"):
        local_of(network, received=sent)


# --- settings, and a site that forbids ---


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("sharing_probability", 1.5),
        ("shared_fraction", -0.1),
        ("exploration_probability", math.nan),
        ("exploration_level", -1),
        ("oversampling", 2),
        ("mixing", 0),
        ("attention", 1),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(setting: str, value: object) -> None:
    with pytest.raises(SettingsError, match=rf"^{setting} is .*, expected .*\.$"):
        make_objective({"name": "stable", setting: value})


def test_a_network_that_was_not_adapted_is_refused(linear_model: ExtractorClassifier) -> None:
    with pytest.raises(SettingsError, match=r"^objective 'stable' got a network whose stages are not known, .*\.$"):
        make_objective("stable").local({}, linear_model, SITE)


def test_a_site_that_forbids_the_report_refuses_to_train(data_root: Path) -> None:
    protocol = Protocol(model="convnet", target="sketch", image_size=16, rounds=1, objective={"name": "stable"})
    config = SiteConfig(device="cpu", data_root=data_root, allowed_reports=("gap",))
    site = SiteSession("photo", config, protocol)
    with pytest.raises(SettingsError, match=r"forbids the report 'style_statistics'.*objective 'stable' needs"):
        site.train({}, 0, lambda: False, lambda epoch, loss: None)
