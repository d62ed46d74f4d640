# SPDX-License-Identifier: Apache-2.0
"""FedPAC: two phases at a site, prototypes and a mixture of heads for each site at the server."""

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch

from fdg_plugins.errors import ContributionError
from fdg_plugins.methods.fedpac import AFTER, BEFORE, HEAD, PRESENT, PROTOTYPES, SQUARE, PrototypeExchange
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives import Exchange, SiteRound, Trained, make_objective, see
from fdg_plugins.objectives.exchange import CLASS_COUNTS
from fdg_plugins.tasks import DEFAULT_TASK
from fdg_plugins.testing.inputs import same_bits
from fdg_plugins.testing.objectives import bits
from tests.objectives.local_steps import CLASSES, Batch, make_batches, train_steps

SITE = SiteRound("photo", 0, seed=1, learning_rate=0.05)


def head_of(model: ExtractorClassifier) -> dict[str, torch.Tensor]:
    state = model.state_dict()
    return {name: state[name].detach().clone() for name in model.head_names}


def report_of(model: ExtractorClassifier, batches: list[Batch]) -> dict[str, torch.Tensor]:
    objective = make_objective("pac")
    received = objective.report_received(model, see(model, batches), CLASSES)
    return received | objective.report_trained(model, see(model, batches), CLASSES)


def round_of(exchange: Exchange, model: ExtractorClassifier, **heads: float) -> dict[str, dict[str, torch.Tensor]]:
    """Let each site report on images of its own and move its head by a number; return the reports."""
    exchange.begin_round(model.state_dict())
    reports = {}
    for seed, (site, moved) in enumerate(heads.items()):
        reports[site] = report_of(model, make_batches(model, seed=seed))
        update = {name: torch.full_like(value, moved) for name, value in model.state_dict().items()}
        reports[site]["read"] = exchange.read(site, dict(reports[site]), update)
    exchange.finish({site: report.pop("read") for site, report in reports.items()})
    return reports


def test_a_mean_square_below_that_of_the_class_means_is_refused() -> None:
    exchange, update = PrototypeExchange(2, 2, {"classifier.weight": (2, 2)}), {"classifier.weight": torch.zeros(2, 2)}
    exchange.begin_round(update)
    means = torch.tensor([[3.0, 4.0], [6.0, 8.0]])
    report = {BEFORE: means, AFTER: means, CLASS_COUNTS: torch.tensor([5, 5])}
    for square in (62.5, 62.4999):  # of the second, rounding explains the difference
        exchange.read("art", {**report, SQUARE: torch.tensor([square])}, update)
    for square in (0.0, 62.0, -1.0):
        with pytest.raises(ContributionError):
            exchange.read("liar", {**report, SQUARE: torch.tensor([square])}, update)


def test_the_head_is_trained_first_and_then_the_extractor(linear_model: ExtractorClassifier) -> None:
    model, batches = linear_model, make_batches(linear_model)
    local = make_objective("pac").local({}, model, SITE)
    head = set(model.head_names)
    names = {name for name, _ in model.named_parameters()}
    before = bits(model)
    for moving in (head, names - head, names - head):
        train_steps(model, local, [batches])
        after = bits(model)
        assert {name for name in names if not torch.equal(after[name], before[name])} == moving
        before = after


def test_term_is_the_mean_squared_distance_to_prototypes(linear_model: ExtractorClassifier) -> None:
    model = linear_model.eval()
    prototypes = torch.randn(CLASSES, model.feature_size)
    present = torch.tensor([True, False, True])
    local = make_objective({"name": "pac", "strength": 3}).local(
        {PROTOTYPES: prototypes, PRESENT: present}, model, SITE
    )
    images, labels = torch.randn(3, 3, 16, 16), torch.tensor([0, 1, 2])
    plain = DEFAULT_TASK.loss(model(images), labels)
    local.prepare(model)
    assert torch.equal(local.loss(model, images, labels), plain), "the head has no term"
    local.prepare(model)
    distances = (model.features(images) - prototypes[labels]).square().mean(dim=1)
    torch.testing.assert_close(local.loss(model, images, labels), plain + 3 * (distances[0] + distances[2]) / 3)


def test_prototypes_weigh_samples_and_each_site_gets_a_mixture_of_its_own(model: ExtractorClassifier) -> None:
    exchange = make_objective("pac").exchange(model, CLASSES)
    assert exchange is not None
    reports = round_of(exchange, model, cartoon=0.0, photo=1.0)
    counts = torch.stack([report[CLASS_COUNTS] for report in reports.values()]).double()
    means = torch.stack([report[AFTER] for report in reports.values()]).double()
    sent = {site: exchange.broadcast(site) for site in (*reports, "new")}
    expected = (counts[..., None] * means).sum(dim=0) / counts.sum(dim=0)[:, None]
    torch.testing.assert_close(sent["new"][PROTOTYPES], expected.float())
    assert sent["new"].keys() == {PROTOTYPES, PRESENT} == exchange.broadcast().keys()
    head = head_of(model)
    for site in reports:
        for name, value in head.items():
            moved = sent[site][f"{HEAD}{name}"] - value
            assert bool(((moved > -1e-6) & (moved < 1 + 1e-6)).all()), "a mixture of both heads"
            torch.testing.assert_close(moved, moved.mean().expand_as(moved))


def test_an_absent_sites_mixture_and_a_lacking_class_stay(linear_model: ExtractorClassifier) -> None:
    model = linear_model
    exchange = make_objective("pac").exchange(model, CLASSES)
    assert exchange is not None
    round_of(exchange, model, cartoon=0.0, photo=1.0)
    kept = exchange.broadcast("photo")
    exchange.begin_round(model.state_dict())
    images, _ = make_batches(model, seed=5)[0]
    report = report_of(model, [(images, torch.tensor([0, 0, 1, 1]))])
    assert report[BEFORE].shape == (2, model.feature_size)
    exchange.finish({"cartoon": exchange.read("cartoon", report, dict(model.state_dict()))})
    later = exchange.broadcast("photo")
    assert torch.equal(later[PROTOTYPES][2], kept[PROTOTYPES][2])
    assert bool(later[PRESENT].all())
    assert not torch.equal(later[PROTOTYPES][0], kept[PROTOTYPES][0])
    assert all(torch.equal(later[name], value) for name, value in kept.items() if name.startswith(HEAD))


def test_site_starts_from_its_mixture_and_keeps_its_head(model: ExtractorClassifier) -> None:
    objective = make_objective("pac")
    mixture = {name: torch.full_like(value, 0.25) for name, value in head_of(model).items()}
    sent: dict[str, Any] = {f"{HEAD}{name}": value for name, value in mixture.items()}
    sent |= {PROTOTYPES: torch.zeros(CLASSES, model.feature_size), PRESENT: torch.zeros(CLASSES, dtype=torch.bool)}
    received, trained = copy.deepcopy(model), copy.deepcopy(model)
    local = objective.local(sent, trained, SITE)
    assert same_bits(head_of(trained), head_of(received)), "judged as received"
    local.begin(trained)
    assert same_bits(head_of(trained), mixture)
    update = {name: torch.full_like(value, 0.5) for name, value in received.state_dict().items()}
    memory = local.memory(Trained(update, 1, 1.0))
    assert same_bits(memory, {name: value + 0.5 for name, value in head_of(received).items()})
    own = objective.personal(copy.deepcopy(received), sent, replace(SITE, memory=memory))
    assert isinstance(own.network, ExtractorClassifier)
    assert same_bits(head_of(own.network), memory)
    fresh = objective.personal(copy.deepcopy(received), {}, SITE)
    assert same_bits(dict(fresh.network.state_dict()), dict(received.state_dict()))
