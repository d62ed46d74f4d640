# SPDX-License-Identifier: Apache-2.0
"""Compositions: those that are refused, all of them, and two rounds in one process of every pair of parts."""

import math
from functools import cache
from itertools import combinations
from pathlib import Path

import pytest
import torch

from fdg_plugins.errors import SettingsError
from fdg_plugins.objectives import OBJECTIVES
from fdg_plugins.plugins.composition import Composition, compositions
from fdg_plugins.recipes import make_recipe
from fdg_plugins.record.run_files import LAST_FILE, SIMULATOR_FOLDER
from fdg_plugins.storage import load_tensors
from tests.controllers.test_one_process import job_of, made, record_in

DATASET = "rotateddigits"
SMALL = {"max_samples_per_domain": 20, "rounds": 2, "local_epochs": 1}


def refusal(made_of: Composition) -> str | None:
    """Return why a composition cannot be run; None if it can."""
    try:
        make_recipe(made_of.name, DATASET)
    except SettingsError as error:
        return str(error)
    return None


@cache
def refused() -> dict[str, str]:
    """Return the reasons of all compositions that cannot be run."""
    return {one.name: reason for one in compositions() if (reason := refusal(one)) is not None}


def pairs(one: Composition) -> set[tuple[str | None, ...]]:
    """Return the pairs of parts that meet in a composition."""
    parts = (f"direction {one.direction}", f"weighting {one.weighting}", f"objective {one.objective}")
    return set(combinations(parts, 2))


@cache
def cover() -> list[Composition]:
    """Return legal compositions in which every two parts meet that do so in any; those with most new pairs first."""
    left = [one for one in compositions() if one.name not in refused()]
    wanted, chosen = set().union(*map(pairs, left)), list[Composition]()
    while wanted:
        chosen.append(max(left, key=lambda one: len(pairs(one) & wanted)))
        wanted -= pairs(chosen[-1])
    return chosen


def test_what_is_refused_is_what_contradicts_itself_and_is_told_in_one_sentence() -> None:
    steps = {f"fednova{weighting}+{part}" for weighting in ("", "+ga", "+arfl") for part in ("prox", "pac", "adg")}
    rows = {f"fedcsa{weighting}+babu" for weighting in ("", "+ga", "+arfl")}
    assert refused().keys() == steps | rows | {"fednova+as"}
    for name, reason in refused().items():
        assert ("divides by effective steps" if name.startswith("fednova") else "needs the whole head") in reason


# By night, but for two; the golden bits have the published compositions.
@pytest.mark.parametrize(
    "objective",
    [pytest.param(one, marks=pytest.mark.slow if one in ("iir", "dim") else pytest.mark.nightly) for one in OBJECTIVES],
)
def test_two_rounds_of_every_pair_of_parts(objective: str, tmp_path: Path) -> None:
    for composition in cover():
        if composition.objective == objective:
            check(composition, tmp_path / composition.name)


def check(composition: Composition, folder: Path) -> None:
    """Run two rounds of a composition, and check what its record says of them."""
    folder.mkdir()
    assert made(job_of(composition.name, folder, **SMALL)).run()
    record = record_in(folder)
    assert (record.status, len(record.rounds)) == ("finished", 2)
    assert record.method.objective["name"] == composition.objective
    for finished in record.rounds:
        assert (finished.failures, finished.refused_reports, finished.reason) == ({}, {}, None)
        assert finished.aggregation is not None
        assert math.isclose(sum(finished.aggregation.weights.values()), 1, rel_tol=1e-9)
        assert (finished.aggregation.gaps is not None) is (composition.weighting == "ga")
        assert (finished.aggregation.training_losses is not None) is (composition.weighting == "arfl")
    personal = [evaluation.personal is not None for evaluation in record.evaluations]
    assert personal == [OBJECTIVES[composition.objective].personalises] * 3
    model = load_tensors(folder / "workspace" / SIMULATOR_FOLDER / LAST_FILE)
    assert all(bool(torch.isfinite(value).all()) for value in model.values() if value.is_floating_point())
