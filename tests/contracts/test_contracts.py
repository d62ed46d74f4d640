# SPDX-License-Identifier: Apache-2.0
"""The contract of every registered aggregator, weighting, objective and algorithm: a new one is tested unnamed."""

import doctest
from collections.abc import Callable, Iterable
from typing import Any

import pytest

import fdg_plugins.testing
from fdg_plugins.aggregators import AGGREGATORS, WEIGHTINGS
from fdg_plugins.centralised import ALGORITHMS
from fdg_plugins.objectives import OBJECTIVES
from fdg_plugins.testing import AGGREGATOR_CONTRACT, ALGORITHM_CONTRACT, OBJECTIVE_CONTRACT, WEIGHTING_CONTRACT

Promise = Callable[[Any], None]


def cases(members: Iterable[str], promises: Iterable[Promise]) -> list[Any]:
    """Return every member with every promise, called by both."""
    promised = tuple(promises)
    return [pytest.param(name, promise, id=f"{name}-{promise.__name__}") for name in members for promise in promised]


@pytest.mark.parametrize(("name", "promise"), cases(AGGREGATORS, AGGREGATOR_CONTRACT))
def test_aggregator(name: str, promise: Promise) -> None:
    promise(AGGREGATORS[name])


@pytest.mark.parametrize(("name", "promise"), cases(WEIGHTINGS, WEIGHTING_CONTRACT))
def test_weighting(name: str, promise: Promise) -> None:
    promise(WEIGHTINGS[name])


@pytest.mark.parametrize(("name", "promise"), cases(OBJECTIVES, OBJECTIVE_CONTRACT))
def test_objective(name: str, promise: Promise) -> None:
    promise(OBJECTIVES[name])


@pytest.mark.parametrize(("name", "promise"), cases(ALGORITHMS, ALGORITHM_CONTRACT))
def test_algorithm(name: str, promise: Promise) -> None:
    promise(ALGORITHMS[name])


def test_the_page_of_the_assertions_is_true() -> None:
    outcome = doctest.testmod(fdg_plugins.testing)
    assert outcome.attempted > 0
    assert outcome.failed == 0
