# SPDX-License-Identifier: Apache-2.0
"""Every cell of the table of compositions: two rounds in one process, or a refusal in one sentence."""

import math
import re
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


REFUSED = {one.name: reason for one in compositions() if (reason := refusal(one)) is not None}
PAGE = Path(__file__).parents[2] / "docs" / "compositions.md"
PUBLISHED = set(re.findall(r"\*\*`([^`]+)`\*\*", PAGE.read_text(encoding="utf-8")))
LEGAL = [
    pytest.param(one, id=one.name, marks=pytest.mark.slow if one.name in PUBLISHED else pytest.mark.nightly)
    for one in compositions()
    if one.name not in REFUSED
]


def test_what_is_refused_is_what_contradicts_itself_and_is_told_in_one_sentence() -> None:
    steps = {f"fednova{weighting}+{part}" for weighting in ("", "+ga", "+arfl") for part in ("prox", "pac", "adg")}
    rows = {f"fedcsa{weighting}+babu" for weighting in ("", "+ga", "+arfl")}
    assert REFUSED.keys() == steps | rows | {"fednova+as"}
    for name, reason in REFUSED.items():
        assert reason.endswith("."), name
        assert ". " not in reason, name
        assert ("the effective steps" if name.startswith("fednova") else "needs the whole head") in reason


@pytest.mark.parametrize("composition", LEGAL)
def test_what_is_legal_runs_two_rounds(composition: Composition, tmp_path: Path) -> None:
    assert made(job_of(composition.name, tmp_path, **SMALL)).run()
    record = record_in(tmp_path)
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
    model = load_tensors(tmp_path / "workspace" / SIMULATOR_FOLDER / LAST_FILE)
    assert all(bool(torch.isfinite(value).all()) for value in model.values() if value.is_floating_point())
