# SPDX-License-Identifier: Apache-2.0
"""MoFedSAM: the direction is an exponential average, beta one is FedSAM, and m is a mean of gradients' scale."""

import copy
import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from fdg_plugins.errors import ContributionError
from fdg_plugins.methods.mofedsam import MoFedSAMObjective, MomentumExchange
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives import Exchange, SiteFacts, SiteRound, Trained
from fdg_plugins.testing.objectives import bits
from fdg_plugins.training.results import make_update
from tests.objectives.local_steps import CLASSES, Batch, ReportRound, train_steps

RATE = 0.25


WEIGHT, BIAS = "w", "b"
SHAPES = {WEIGHT: (2, 1), BIAS: (1,)}
GLOBAL = {WEIGHT: torch.zeros(2, 1), BIAS: torch.zeros(1), "running_mean": torch.zeros(3)}


def update_of(*values: float) -> dict[str, torch.Tensor]:
    """An update of ``SHAPES``, a buffer among it."""
    return {
        WEIGHT: torch.tensor([[values[0]], [values[1]]]),
        BIAS: torch.tensor([values[2]]),
        "running_mean": torch.ones(3),
    }


def report_of(length: float) -> dict[str, torch.Tensor]:
    return {"step_length": torch.tensor([length])}


def play(exchange: Exchange, *rounds: dict[str, tuple[float, dict[str, torch.Tensor]]]) -> dict[str, torch.Tensor]:
    """Rounds of sites, by name: step length and update."""
    for sites in rounds:
        of_round = ReportRound(exchange, GLOBAL)
        for site, (length, update) in sites.items():
            of_round.accept(site, report_of(length), update)
        of_round.finish(sites)
    return exchange.broadcast()


TWO = {"a": (0.5, update_of(-1.0, 2.0, 0.0)), "b": (2.0, update_of(-4.0, 0.0, 1.0))}


def test_m_of_two_sites_by_hand() -> None:
    """-(Delta/length): a: [2, -4, 0], b: [2, 0, -1/2]; each site counts the same, whatever its length."""
    down = play(MomentumExchange(SHAPES), TWO)
    assert sorted(down) == sorted(SHAPES)
    assert down[WEIGHT].tolist() == [[2.0], [-2.0]]
    assert down[BIAS].tolist() == [-0.25]


def test_a_length_that_no_steps_have_is_refused() -> None:
    of_round, update = ReportRound(MomentumExchange(SHAPES), GLOBAL), update_of(1.0, 1.0, 1.0)
    for length in (0.0, -0.5, math.nan, math.inf, 1e16, 1e-30):  # of the last the quotient is too large
        with pytest.raises(ContributionError):
            of_round.accept("a", report_of(length), update)
    with pytest.raises(ContributionError):
        of_round.accept("a", report_of(1.0), {BIAS: update[BIAS]})
    facts = {"a": SiteFacts(2, 2.0, 0.25, 10, (10,))}
    of_round = ReportRound(MomentumExchange(SHAPES), GLOBAL, facts)
    of_round.accept("a", report_of(0.5), update)
    with pytest.raises(ContributionError):
        of_round.accept("a", report_of(0.501), update)


@pytest.mark.parametrize("beta", [0.1, 0.6])
def test_direction_is_an_average(beta: float, model: ExtractorClassifier, batches: list[Batch]) -> None:
    """rho = 0, tau = 1, plain SGD: d_r = beta g_r + (1 - beta) d_{r-1}, d before the first round zero."""
    objective = MoFedSAMObjective(radius=0, beta=beta)
    exchange = objective.exchange(model, CLASSES)
    images, labels = batches[0]
    average = {name: torch.zeros_like(value) for name, value in model.named_parameters()}
    for number in range(4):
        before, probe = bits(model), copy.deepcopy(model)
        probe.zero_grad()
        cross_entropy(probe(images), labels).backward()
        gradients = {name: value.grad for name, value in probe.named_parameters() if value.grad is not None}
        average = {name: beta * gradients[name] + (1 - beta) * old for name, old in average.items()}

        of_round = ReportRound(exchange, before)
        local = objective.local(exchange.broadcast(), model, SiteRound("a", number, learning_rate=RATE))
        training = train_steps(model, local, [[(images, labels)]], lr=RATE, momentum=0.0, weight_decay=0.0)
        update = make_update(model.state_dict(), before)
        of_round.accept("a", local.report(Trained(update, training.steps, training.steps)), update)
        of_round.finish(["a"])
        for name, expected in average.items():
            torch.testing.assert_close(-update[name] / RATE, expected, rtol=1e-3, atol=2e-5)
