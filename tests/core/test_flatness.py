# SPDX-License-Identifier: Apache-2.0
"""Perturbed heads: of the stated length, in the direction in which predictions change most, and without a trace."""

import copy

import pytest
import torch
from torch import nn

from fdg_plugins.core.flatness import Kind, Perturbed, adversarial_predictions, divergence_from
from tests.random_tensors import normal_double as normal

KINDS: list[Kind] = ["singular", "weight"]
HEADS = {"linear": nn.Linear(6, 4), "two layers": nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4))}


@pytest.fixture(params=HEADS)
def head(request: pytest.FixtureRequest) -> nn.Module:
    """A head in double precision, with known weights."""
    made: nn.Module = copy.deepcopy(HEADS[request.param]).double()
    with torch.no_grad():
        for number, parameter in enumerate(made.parameters()):
            parameter.copy_(normal(number, *parameter.shape))
    return made


def test_singular_values_move_by_the_perturbation_and_never_below_zero() -> None:
    head = nn.Linear(6, 4).double()
    perturbed = Perturbed.of(head, "singular")
    values = torch.linalg.svdvals(head.weight.detach())
    delta = torch.tensor([0.5, -0.5, 0.5, -0.5], dtype=torch.float64)
    logits = perturbed.logits(torch.eye(6, dtype=torch.float64), {"weight": delta}, 2.0)
    found = torch.linalg.svdvals((logits - head.bias).T)
    expected = (values + 2.0 * delta).clamp_min(0).sort(descending=True).values
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("reference", ["its own predictions", "those of another classifier"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_direction_is_the_gradient_by_finite_differences(kind: Kind, reference: str) -> None:
    head = nn.Linear(3, 2).double()
    perturbed = Perturbed.of(head, kind)
    start = perturbed.drawn(lambda shape: normal(3, *shape))["weight"]
    features = normal(4, 5, 3)
    own = reference == "its own predictions"
    p = head(features).softmax(dim=1).detach() if own else normal(5, 5, 2).softmax(dim=1)

    def divergence(delta: torch.Tensor) -> float:
        return divergence_from(p, perturbed.logits(features, {"weight": delta}, 0.1)).item()

    numeric = torch.zeros_like(start)
    for place in range(start.numel()):
        moved = torch.zeros_like(start)
        moved.view(-1)[place] = 1e-5
        numeric.view(-1)[place] = (divergence(start + moved) - divergence(start - moved)) / 2e-5
    worst = perturbed.unit({"weight": numeric})
    expected = perturbed.logits(features, worst, 0.3).softmax(dim=1)
    q = adversarial_predictions(perturbed, features, p, lambda shape: normal(3, *shape), 0.1, 0.3)
    torch.testing.assert_close(q, expected, rtol=1e-5, atol=1e-7)


def test_the_divergence_of_a_hand_sized_example() -> None:
    # KL((1/2, 1/2) || (1/4, 3/4)) = 1/2 log 2 + 1/2 log(2/3)
    q, p = torch.tensor([[0.5, 0.5]]), torch.tensor([[0.25, 0.75]])
    expected = 0.5 * torch.log(torch.tensor(2.0)) + 0.5 * torch.log(torch.tensor(2 / 3))
    torch.testing.assert_close(divergence_from(q, p.log()), expected)
