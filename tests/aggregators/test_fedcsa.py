# SPDX-License-Identifier: Apache-2.0
"""FedCSA: rows of the last layer by who holds the class, everything else as under FedAvg."""

import pytest
import torch

from fdg_plugins.aggregators import RunFacts
from fdg_plugins.errors import SettingsError
from fdg_plugins.methods.fedavg import FedAvgAggregator
from fdg_plugins.methods.fedcsa import FedCSAAggregator, class_shares, class_weights
from fdg_plugins.testing.inputs import BIAS, SITES, WEIGHT, message, random_updates, run_round, same_bits
from tests.aggregators.trained_sites import report_of

COUNTS = {"art": (10, 0, 0), "photo": (10, 20, 0), "sketch": (20, 40, 0)}
FACTS = RunFacts(COUNTS, (WEIGHT, BIAS))


def test_two_sites_and_three_classes_by_hand() -> None:
    # a = (1/4, 3/4), r = ((1, 0, 0), (1/3, 2/3, 0)). Class 0: 1/4 and 3/4 * 1/3 are equal. Class 1: only the second
    # site has it. Class 2: nobody has it, so a.
    weights, shares = torch.tensor([0.25, 0.75], dtype=torch.float64), class_shares([(10, 0, 0), (10, 20, 0)])
    assert shares.tolist() == [[1.0, 0.0, 0.0], pytest.approx([1 / 3, 2 / 3, 0.0])]
    of_classes = class_weights(weights, shares)
    assert of_classes[0].tolist() == pytest.approx([0.5, 0.0, 0.25])
    assert of_classes[1].tolist() == pytest.approx([0.5, 1.0, 0.75])


@pytest.mark.parametrize(("weighting", "server_lr"), [("samples", 1.0), ("uniform", 0.3)])
def test_the_last_layer_moves_row_by_row_and_all_else_as_under_fedavg(weighting: str, server_lr: float) -> None:
    updates, csa = random_updates(), FedCSAAggregator(weighting=weighting, server_lr=server_lr)
    csa.facts = FACTS
    result = run_round(csa, updates)
    plain = run_round(FedAvgAggregator(weighting=weighting, server_lr=server_lr), updates).params
    rest = plain.keys() - FACTS.last_layer
    assert same_bits({name: result.params[name] for name in rest}, {name: plain[name] for name in rest})
    weights = torch.tensor(report_of(result)["weights"], dtype=torch.float64)
    rows = class_weights(weights, class_shares(list(COUNTS.values())))
    for name in FACTS.last_layer:
        stacked = torch.stack([updates[site][name].double() for site in sorted(SITES)])
        expected = server_lr * torch.einsum("uk,uk...->k...", rows, stacked)
        torch.testing.assert_close(result.params[name], expected.float())
        assert not torch.equal(result.params[name], plain[name])


def test_where_the_workflow_tells_nothing_of_the_classes_the_first_contribution_ends_it() -> None:
    aggregator = FedCSAAggregator()
    aggregator.facts = RunFacts(COUNTS)
    with pytest.raises(SettingsError):
        aggregator.accept_model(message("photo", random_updates()["photo"]))
