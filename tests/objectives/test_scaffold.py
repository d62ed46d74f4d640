# SPDX-License-Identifier: Apache-2.0
"""SCAFFOLD: c is the mean of all sites' control variates, and a step of one site is a step of all."""

import copy

import pytest
import torch
from torch import nn

from fdg_plugins.errors import ContributionError
from fdg_plugins.methods.scaffold import ControlExchange, SCAFFOLDObjective
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives import SiteFacts, SiteRound, Trained
from fdg_plugins.testing.objectives import bits
from tests.objectives.local_steps import Batch, train_steps
from tests.random_tensors import normal

RATE = 0.1
NAME = "classifier.weight"


def one(value: float) -> dict[str, torch.Tensor]:
    return {NAME: torch.tensor([[value]])}


def at_a_point(value: float) -> ExtractorClassifier:
    """A model with one parameter."""
    model = ExtractorClassifier(nn.Flatten(), nn.Linear(1, 1, bias=False))
    model.load_state_dict(one(value))
    return model


def trained(
    start: float, optimum: float, sent: dict[str, torch.Tensor], memory: dict[str, torch.Tensor]
) -> tuple[float, dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Take one step of a site with the loss ``(x - optimum)^2 / 2``; return its update, its report and its memory."""
    model = at_a_point(start)
    local = SCAFFOLDObjective().local(sent, model, SiteRound("a", 0, 0, RATE, memory=memory))

    def compute() -> torch.Tensor:
        model.last_layer.weight.grad = model.last_layer.weight.detach() - optimum
        return torch.zeros(())

    local.step(model, compute, torch.optim.SGD(model.parameters(), lr=RATE))
    update = model.last_layer.weight.item() - start
    done = Trained(one(update), 1, 1.0)
    return update, local.report(done), local.memory(done)


def test_two_sites_by_hand() -> None:
    # x = 0, b = (-1, -3), rate 0.1, one step: gradients 1 and 3, updates -0.1 and -0.3, which over 0.1 are c_u = 1, 3;
    # c = 2 and x = -0.2. Then site a: gradient 0.8, corrected by 2 - 1: 1.8; its update is -0.18, so its control
    # becomes 1 - 2 + 1.8 = 0.8, the new gradient. Only it reports: c = 2 + (0.8 - 1) / 2 = 1.9.
    exchange = ControlExchange({NAME: (1, 1)}, num_sites=2)
    first, second = (trained(0.0, optimum, {}, {}) for optimum in (-1.0, -3.0))
    assert [first[0], second[0]] == pytest.approx([-0.1, -0.3])
    torch.testing.assert_close([first[2], second[2]], [one(1.0), one(3.0)])
    exchange.begin_round(one(0.0))
    exchange.finish({site: exchange.read(site, own[1], one(own[0])) for site, own in (("a", first), ("b", second))})
    torch.testing.assert_close(exchange.broadcast(), one(2.0))
    update, report, memory = trained(-0.2, -1.0, exchange.broadcast(), first[2])
    assert update == pytest.approx(-0.18)
    torch.testing.assert_close(memory, one(0.8))
    exchange.begin_round(one(-0.2))
    exchange.finish({"a": exchange.read("a", report, one(update))})
    torch.testing.assert_close(exchange.broadcast(), one(1.9))


@pytest.mark.parametrize(("was_sent", "has_memory"), [(False, False), (True, True)])
def test_a_step_follows_the_gradient_plus_c_minus_its_own_control(
    model: ExtractorClassifier, batches: list[Batch], was_sent: bool, has_memory: bool
) -> None:
    shapes = {name: value.shape for name, value in model.named_parameters()}
    server, own = ({name: 0.1 * normal(seed, *shape) for name, shape in shapes.items()} for seed in (1, 2))
    server, own = server if was_sent else {}, own if has_memory else {}
    before, gradients = bits(model), copy.deepcopy(model)
    images, labels = batches[0]
    loss = nn.functional.cross_entropy(gradients(images), labels)
    loss.backward()
    local = SCAFFOLDObjective().local(server, model, SiteRound(memory=own))
    training = train_steps(model, local, [batches[:1]], lr=0.5, momentum=0.0, weight_decay=0.0)
    assert training.epoch_losses[0] == pytest.approx(loss.item())
    for name, parameter in gradients.named_parameters():
        assert parameter.grad is not None
        corrected = parameter.grad + (server[name] if server else 0) - (own[name] if own else 0)
        torch.testing.assert_close(model.state_dict()[name], before[name] - 0.5 * corrected)


def test_a_change_that_does_not_follow_from_the_update_is_refused() -> None:
    exchange = ControlExchange({NAME: (1, 1)}, num_sites=2)
    exchange.begin_round(one(0.0), {"a": SiteFacts(2, 2.0, RATE, 10, (10,))})
    exchange.read("a", one(1.0), one(-0.2))
    exchange.read("a", one(1.005), one(-0.2))  # rounded to bfloat16
    for change in (1.02, -1.0):
        with pytest.raises(ContributionError):
            exchange.read("a", one(change), one(-0.2))
