# SPDX-License-Identifier: Apache-2.0
"""What one of five sites reports takes no round, under any weighting, and moves no other site far, by any exchange."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
import torch

from fdg_plugins.aggregators import WEIGHTINGS, Contribution, RoundOf
from fdg_plugins.core.weighting import limited_weights
from fdg_plugins.errors import ContributionError
from fdg_plugins.objectives import OBJECTIVES, SiteFacts
from fdg_plugins.testing.inputs import ROUNDS
from fdg_plugins.testing.objectives import CLASS_COUNTS, CLASSES, EPOCHS, RATE, network, report_of
from fdg_plugins.testing.weightings import of_round

FIVE = ("art", "cartoon", "liar", "photo", "sketch")
LIES = (0.0, 99.0, 1e12)
FACTS = SiteFacts(2 * EPOCHS, 2.0 * EPOCHS, RATE, sum(CLASS_COUNTS), CLASS_COUNTS)
Reports = Mapping[str, tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]]


def lie(one: Contribution, factor: float) -> Contribution:
    """Multiply the reports and the training losses of a contribution."""
    reports = {name: value * factor if isinstance(value, float) else value for name, value in one.reports.items()}
    training: Any = one.training
    scores = [score.model_copy(update={"loss": score.loss * factor}) for score in training.training_split]
    return replace(one, reports=reports, training=training.model_copy(update={"training_split": tuple(scores)}))


@pytest.mark.parametrize("factor", LIES)
@pytest.mark.parametrize("name", WEIGHTINGS)
def test_a_weight_has_at_most_ten_times_the_odds_of_its_site(name: str, factor: float) -> None:
    weigh = WEIGHTINGS[name]()
    honest = of_round(WEIGHTINGS[name], ["art"])[0]
    told = [replace(honest, site=site) for site in FIVE]
    told[2] = lie(told[2], factor)
    for number in range(ROUNDS):
        weights = limited_weights(weigh(told, RoundOf(number, ROUNDS, FIVE)), [one.num_samples for one in told])
        assert float(weights[2]) <= 10 / 14 + 1e-9


def test_weights_within_the_limit_keep_their_bits_and_what_is_above_goes_to_the_others() -> None:
    for counts in ([1, 10**6, 3], [1, 1, 1]):
        weights = torch.tensor(counts, dtype=torch.float64) / sum(counts)
        assert limited_weights(weights, counts) is weights
    only = torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64)
    assert limited_weights(only, [10, 10, 30]).tolist() == pytest.approx([1 / 24, 5 / 6, 1 / 8])
    assert float(limited_weights(only, [10, None, 30])[1]) == pytest.approx(5 / 6)
    assert limited_weights(torch.ones(1), [7]).tolist() == [1.0]
    assert limited_weights(torch.zeros(2), [7, 8]).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("name", [name for name, class_ in OBJECTIVES.items() if class_.report is not None])
def test_a_report_that_lies_is_refused_or_moves_what_others_receive_by_ten_times_at_most(name: str) -> None:
    objective = OBJECTIVES[name]()

    def received(reports: Reports) -> float:
        """Return the length of the longest tensor that a site but the first receives after a round."""
        model = network(objective)
        exchange = objective.exchange(model, CLASSES, num_sites=5)
        assert exchange is not None
        exchange.begin_round(model.state_dict(), dict.fromkeys(reports, FACTS))
        read = {}
        for site, sent in reports.items():
            with suppress(ContributionError):
                read[site] = exchange.read(site, *sent)
        outliers = exchange.outliers(read, 10.0)
        exchange.finish({site: report for site, report in read.items() if site not in outliers})
        tensors = [value for site in sorted(reports)[1:] for value in exchange.broadcast(site).values()]
        return max((float(value.double().norm()) for value in tensors), default=0.0)

    reports = {f"site-{seed}": report_of(objective, {}, seed) for seed in range(5)}
    honest = received(reports)
    report, update = reports["site-0"]
    for field, value in list(report.items())[:4]:  # SCAFFOLD has one for each parameter
        for factor in LIES:
            lied = {**report, field: (value * factor).to(value.dtype)}
            assert received({**reports, "site-0": (lied, update)}) <= 10 * honest, (field, factor)
