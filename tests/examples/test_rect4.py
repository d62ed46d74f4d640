# SPDX-License-Identifier: Apache-2.0
"""Rect-4: the domains are what they are said to be, the steps what the mathematics promises, the pictures in step."""

import doctest
import math

import pytest
import rect4_rounds
import torch
from rect4_rounds import Domain, Round, Step, deal, make_domains, play_round


@pytest.fixture(scope="module")
def domains() -> dict[str, Domain]:
    """The four domains."""
    return make_domains()


@pytest.fixture(scope="module")
def everyone(domains: dict[str, Domain]) -> Round:
    """The FL setting: all four train and are judged."""
    return play_round(domains, "ABCD", "ABCD")


def named(result: Round) -> dict[str, Step]:
    """Return a round's steps by name."""
    return {step.name: step for step in result.steps}


def test_the_example_in_the_docstring_is_what_comes_out() -> None:
    assert doctest.testmod(rect4_rounds) == (0, 2)


def test_no_step_within_the_radius_leaves_a_site_less_behind_than_fedomgs(everyone: Round) -> None:
    steps = named(everyone)
    best = everyone.least_inner_product(steps["FedOMG"])
    assert best > everyone.least_inner_product(steps["FedAvg"])
    mean = steps["FedAvg"].vector
    angles = torch.linspace(0, 2 * math.pi, 721, dtype=torch.float64)
    circle = torch.stack([angles.cos(), angles.sin()], dim=1)
    for fraction in (0.25, 0.5, 0.75, 1.0):
        tried = mean + fraction * 0.5 * mean.norm() * circle
        assert (tried @ everyone.updates.T).min(dim=1).values.max() <= best + 1e-9


def test_iid_sites_agree_so_that_fedomg_steps_where_fedavg_does(domains: dict[str, Domain]) -> None:
    dealt = deal(domains, "ABC")
    own, whole = (torch.cat([made[name].points for name in "ABC"]) for made in (dealt, domains))
    assert torch.equal(own.sort(dim=0).values, whole.sort(dim=0).values)
    apart, alike = (play_round(made, "ABC", "D") for made in (domains, dealt))
    least = [float(result.cosines(named(result)["FedAvg"]).min()) for result in (apart, alike)]
    assert least[0] < 0.96 < 0.99 < least[1]
    mean, matched = (named(alike)[name].vector for name in ("FedAvg", "FedOMG"))
    assert float(matched @ mean) > 0.999 * float(matched.norm() * mean.norm())
    assert float(matched.norm()) == pytest.approx(1.5 * float(mean.norm()), rel=0.01)


def test_fedavg_is_the_mean_and_a_radius_of_zero_makes_fedomg_the_same(domains: dict[str, Domain]) -> None:
    result = play_round(domains, "ABCD", "ABCD", kappa=0.0)
    assert torch.allclose(named(result)["FedAvg"].vector, result.updates.mean(dim=0))
    assert torch.allclose(named(result)["FedOMG"].vector, result.updates.mean(dim=0))
