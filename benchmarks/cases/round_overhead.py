# SPDX-License-Identifier: Apache-2.0
"""What a round costs beside the training: a round of next to nothing at three sites, ours against FLARE's own.

FLARE's: ``ScatterAndGather`` at its defaults with its numpy trainer, which adds one to nine numbers. Ours, as recipes
export it: every source judges the model it received, trains one epoch on at most 14 images of 16 pixels (the stand-in)
and judges its own model, the held-out site judges too, and the server writes models, checkpoint and record: the ratio
holds all of that against FLARE.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path

from cases.flare import Run, federation, interval, simulate, without_custom, write_job
from cases.measure import Goal, Row
from fdg_plugins.recipes import FedAvgRecipe

SITES = ["cartoon", "photo", "sketch"]
OURS, FLARES = r"\| round \d+/", r"Round \d+ started"  # a line of each round in the server's log
GOALS = {"simulator": Goal("ratio", 1 / 8, "ratio ≤ 1/8"), "POC": Goal("ratio", 1 / 15, "ratio ≤ 1/15")}
SETTINGS = {"FDG_THREADS": "1", "FDG_DEVICE": "cpu"}


def rows(quick: bool = False) -> list[Row]:
    """Return seconds per round in the simulator and in a provisioned federation; ``quick``: few rounds, no second."""
    rounds, flares_rounds = (5, 5) if quick else (60, 20)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = {**SETTINGS, "FDG_CACHE": str(folder / "cache")}
        ours, flares = our_job(folder / "jobs", rounds), flares_job(folder / "jobs", flares_rounds)
        found = [_row("simulator", lambda job: simulate(job, len(SITES), settings), ours, flares)]
        if not quick:
            with federation(folder / "federation", settings) as poc:
                found.append(_row("POC", lambda job: poc.run(without_custom(job)), ours, flares))
    return found


def our_job(folder: Path, rounds: int) -> Path:
    """Write our job of next to nothing into ``folder`` and return its path."""
    recipe = FedAvgRecipe(
        "pacs",
        sites=SITES,
        name="ours",
        target="sketch",
        model="convnet",
        pretrained="none",
        image_size=16,
        max_samples_per_domain=14,
        rounds=rounds,
        local_epochs=1,
    )
    recipe.export(str(folder))
    return folder / recipe.name


def flares_job(folder: Path, rounds: int) -> Path:
    """Write FLARE's job of next to nothing into ``folder`` and return its path."""
    server = {
        "workflows": [
            {
                "id": "scatter_and_gather",
                "path": "nvflare.app_common.workflows.scatter_and_gather.ScatterAndGather",
                "args": {"min_clients": len(SITES), "num_rounds": rounds, "persistor_id": "persistor"},
            }
        ],
        "components": [
            {"id": "persistor", "path": "nvflare.app_common.np.np_model_persistor.NPModelPersistor", "args": {}},
            {
                "id": "shareable_generator",
                "path": "nvflare.app_common.shareablegenerators.full_model_shareable_generator"
                ".FullModelShareableGenerator",
                "args": {},
            },
            {
                "id": "aggregator",
                "path": "nvflare.app_common.aggregators.intime_accumulate_model_aggregator"
                ".InTimeAccumulateWeightedAggregator",
                "args": {"expected_data_kind": "WEIGHTS"},
            },
        ],
    }
    trainer = {"path": "nvflare.app_common.np.np_trainer.NPTrainer", "args": {}}
    return write_job(folder / "flares", SITES, server, {"executors": [{"tasks": ["train"], "executor": trainer}]})


def _row(mode: str, run: Callable[[Path], Run], ours: Path, flares: Path) -> Row:
    seconds = interval(run(ours).log, OURS), interval(run(flares).log, FLARES)
    what = f"a round of next to nothing, {len(SITES)} sites, {mode}: ours / FLARE's ScatterAndGather at its defaults"
    return Row(what, *seconds, goal=GOALS[mode])
