# SPDX-License-Identifier: Apache-2.0
"""FedNova: normalised updates, by hand and against training that is written out."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from fdg_plugins.core.layout import ModelLayout
from fdg_plugins.core.steps import effective_steps
from fdg_plugins.errors import ContributionError
from fdg_plugins.methods.fednova import FedNovaAggregator
from tests.aggregators.trained_sites import aggregate, contribution, report_of

Params = dict[str, Any]
MakeUpdate = Callable[..., Params]

SITES = {"photo": 10, "sketch": 30, "art": 60}
STEPS = {"photo": 1.0, "sketch": 3.0, "art": 12.5}


def vector(*values: float) -> Params:
    return {"w": np.asarray(values, np.float64)}


def same_bits(first: Params, second: Params) -> bool:
    return all(np.asarray(first[name]).tobytes() == np.asarray(second[name]).tobytes() for name in second)


# --- how far steps go ---


def test_effective_steps_are_the_displacement_under_a_constant_unit_gradient() -> None:
    for momentum in [0.0, 0.3, 0.9]:
        for steps in [1, 2, 7, 100]:
            parameter = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
            optimizer = torch.optim.SGD([parameter], lr=0.25, momentum=momentum)
            increment = total = 0.0
            for _ in range(steps):
                parameter.grad = torch.ones(1, dtype=torch.float64)
                optimizer.step()
                increment = momentum * increment + 1
                total += increment
            assert effective_steps(steps, momentum) == pytest.approx(-parameter.item() / 0.25)
            assert effective_steps(steps, momentum) == pytest.approx(total)


# --- coefficients ---


def test_two_sites_by_hand() -> None:
    # p = (1, 3) / 4 and |a| = (2, 6): tau_eff = 5, coefficients 5/4 / 2 = 0.625 and 15/4 / 6 = 0.625.
    # Updates of two and six steps of length one along different axes are thus both 0.625 of themselves, and in the
    # step they are 5 p_u: 1.25 and 3.75. The mean would have been 0.5 and 4.5.
    result = aggregate(
        FedNovaAggregator(),
        [
            contribution("art", vector(2.0, 0.0), 1, effective_steps=2.0),
            contribution("photo", vector(0.0, 6.0), 3, effective_steps=6.0),
        ],
    )
    assert result.params["w"].tolist() == pytest.approx([1.25, 3.75])
    report = report_of(result)
    assert report["weights"] == [0.25, 0.75]
    assert report["coefficients"] == pytest.approx([0.625, 0.625])
    assert report["effective_steps"] == [2.0, 6.0]
    assert report["update_norms"] == [2.0, 6.0]
    assert report["mean_norm"] == pytest.approx((0.5**2 + 4.5**2) ** 0.5)
    assert report["direction_norm"] == pytest.approx((1.25**2 + 3.75**2) ** 0.5)
    assert report["cosines_with_mean"] == pytest.approx([0.5 / 20.5**0.5, 4.5 / 20.5**0.5])
    assert report["cosines_with_direction"] == pytest.approx([1.25 / 15.625**0.5, 3.75 / 15.625**0.5])


# --- as an aggregator ---


def sites_of(make_update: MakeUpdate) -> list[Any]:
    return [
        contribution(site, make_update(sorted(SITES).index(site)), SITES[site], effective_steps=STEPS[site])
        for site in SITES
    ]


def test_a_site_whose_steps_are_not_known_is_refused_by_name_and_the_round_goes_on(
    make_update: MakeUpdate, layout: ModelLayout
) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"said": False}, "did not say how far its steps went, by which its update is divided"),
        ({"effective_steps": float("inf")}, "effective_steps is inf"),
        ({"effective_steps": float("nan")}, "effective_steps is nan"),
        ({"effective_steps": 1e6, "steps": 10}, "effective_steps is 1e\\+06 after 10 steps, expected from 10 to 55"),
        ({"effective_steps": 9.0, "steps": 10}, "effective_steps is 9 after 10 steps"),
        ({"effective_steps": 0.5}, "effective_steps is 0.5"),
        ({"effective_steps": -3.0}, "effective_steps is -3.0"),
        ({"effective_steps": "many"}, "effective_steps is 'many'"),
    ]
    for report, message in cases:
        aggregator = FedNovaAggregator()
        aggregator.begin_round(layout, [*SITES, "cartoon"])
        with pytest.raises(ContributionError, match=rf"^site cartoon: .*{message}"):
            aggregator.accept_model(contribution("cartoon", make_update(9), **report))
        expected = aggregate(FedNovaAggregator(), sites_of(make_update)).params
        assert same_bits(aggregate(aggregator, sites_of(make_update)).params, expected)
