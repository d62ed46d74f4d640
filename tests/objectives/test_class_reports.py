# SPDX-License-Identifier: Apache-2.0
"""Class counts in a report, against what the site counted in the census."""

import pytest
import torch

from fdg_plugins.errors import ContributionError
from fdg_plugins.objectives.class_reports import check_counts
from fdg_plugins.objectives.exchange import PayloadValidator, SiteFacts

VALIDATOR = PayloadValidator("site photo: report", ContributionError)


def facts(num_train: int, *class_counts: int) -> SiteFacts:
    return SiteFacts(steps=1, effective_steps=1.0, learning_rate=0.1, num_train=num_train, class_counts=class_counts)


@pytest.mark.parametrize("most", [(4, 6), (2**53 * 224**2, 2**80)])
def test_counts_of_the_training_split_may_be_any_that_the_census_leaves_room_for(most: tuple[int, int]) -> None:
    check_counts(VALIDATOR, torch.tensor([4, 6]), facts(10, *most))


@pytest.mark.parametrize(
    ("counts", "most", "reason"),
    [
        ([4, 5], (4, 6), "'class_counts' add up to 9, expected 10 as in the census"),
        ([2**53, 2**53], (4, 6), f"'class_counts' add up to {2**54}, expected 10 as in the census"),
        ([6, 4], (4, 2**80), "'class_counts' has more samples of a class than the site counted in the census"),
    ],
)
def test_other_counts_are_refused(counts: list[int], most: tuple[int, int], reason: str) -> None:
    with pytest.raises(ContributionError, match=f"^site photo: report: {reason}"):
        check_counts(VALIDATOR, torch.tensor(counts), facts(10, *most))
