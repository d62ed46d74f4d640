# SPDX-License-Identifier: Apache-2.0
"""Every method and every composition that the papers print: whole rounds of all sites, as a recipe sets it up."""

import json
from pathlib import Path
from typing import Any

import pytest

from fdg_plugins.errors import SettingsError
from fdg_plugins.plugins.composition import Composition, compositions, published
from fdg_plugins.recipes import make_recipe
from tests.controllers.test_methods_in_rounds import MethodJob, same

pytestmark = pytest.mark.usefixtures("wire")

OF_RUN = ("dataset", "target", "model", "image_size", "rounds", "local_epochs", "batch_size", "learning_rate")


def arguments(method: str, folder: Path) -> dict[str, Any]:
    """Return what the exported job says of its method: its aggregator, and the protocol but for the run's size."""
    recipe = make_recipe(method, "rotateddigits")
    recipe.export(str(folder))
    file = folder / recipe.name / "app_server" / "config" / "config_fed_server.json"
    said = json.loads(file.read_text(encoding="utf-8"))["workflows"][0]["args"]
    protocol = {name: value for name, value in said["protocol"].items() if name not in OF_RUN}
    objective = protocol.pop("objective", "erm")
    return {"objective": objective, "aggregator": said["aggregator"], "settings": protocol}


def run(method: str, folder: Path, **settings: Any) -> MethodJob:
    """Run a method with ``settings`` of the protocol, in a folder of its own."""
    said = arguments(method, folder / "job")
    said["settings"] |= settings
    return MethodJob(folder / "run", **said).finished()


# One that keeps state in its objective, one in its model, one in its optimizer.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "settings"),
    [("scaffold", {}), ("fedpac", {"momentum": 0.0, "validate_all": True}), ("fedavg", {"keep_momentum": True})],
)
def test_memory_survives_new_processes(method: str, settings: dict[str, Any], tmp_path: Path) -> None:
    said = arguments(method, tmp_path / "job")
    said["settings"] |= {"rounds": 3, "sites_per_round": 3, **settings}
    stays = MethodJob(tmp_path / "stays", **said).finished()
    torn = MethodJob(tmp_path / "torn", **said)
    torn.new_processes = True
    torn.finished()
    assert {len(finished.sites) for finished in torn.record.rounds} == {3}
    assert same(stays, torn)
    assert stays.record.evaluations == torn.record.evaluations  # of the sites' own models too


CHANCE = 0.1  # ten digits
LONGER = {
    **{"max_samples_per_domain": 100, "target": "angle_30", "rounds": 5},
    **{"local_epochs": 2, "learning_rate": 0.05, "momentum": 0.0},
}
# FedOMG's Table 4 has 0.6, for networks from ImageNet weights: from scratch the loss stays where a guess is.
OWN = {"mofedsam": {"radius": 0.05}}


@pytest.mark.nightly
@pytest.mark.parametrize("method", [*published(), "fedomg+ga+dim", "fedomg+iir"])
def test_every_method_learns(method: str, tmp_path: Path) -> None:
    said = arguments(method, tmp_path)
    said["settings"] |= LONGER
    if method in OWN:
        said["objective"] |= OWN[method]
    job = MethodJob(tmp_path / "run", **said).finished()
    assert max(evaluation.target or 0.0 for evaluation in job.record.evaluations[1:]) > 2.5 * CHANCE


def refusal(made_of: Composition) -> str | None:
    """Return why a composition cannot be run; None if it can."""
    try:
        make_recipe(made_of.name, "rotateddigits")
    except SettingsError as error:
        return str(error)
    return None


@pytest.mark.slow
def test_of_all_compositions_those_are_refused_that_contradict_themselves() -> None:
    refused = {one.name: reason for one in compositions() if (reason := refusal(one)) is not None}
    steps = {f"fednova{weighting}+{part}" for weighting in ("", "+ga", "+arfl") for part in ("prox", "pac", "adg")}
    rows = {f"fedcsa{weighting}+babu" for weighting in ("", "+ga", "+arfl")}
    assert refused.keys() == steps | rows | {"fednova+as"}
    for name, reason in refused.items():
        assert ("divides by effective steps" if name.startswith("fednova") else "needs the whole head") in reason
