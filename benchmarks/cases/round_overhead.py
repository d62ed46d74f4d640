# SPDX-License-Identifier: Apache-2.0
"""What a round costs beside the training: an empty round at three sites, ours against FLARE's own.

FLARE's: ``ScatterAndGather`` at its defaults with its numpy trainer, which adds one to nine numbers. Ours is a job as
recipes export it, with models, checkpoint and record written in each round. Its sites answer at once in the first row
of each mode; in the second they work on next to nothing: a source judges the model it received, trains one epoch on at
most 14 images of 16 pixels (the stand-in) and judges its own model, and the held-out site judges.
"""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path

from cases.flare import Run, federation, interval, simulate, without_custom, write_job
from cases.measure import Goal, Row
from fdg_plugins.recipes import FDGRecipe

SITES = ["cartoon", "photo", "sketch"]
OURS, FLARES = r"\| round \d+/", r"Round \d+ started"  # a line of each round in the server's log
GOALS = {"simulator": Goal("ratio", 1 / 8, "ratio ≤ 1/8"), "POC": Goal("ratio", 1 / 15, "ratio ≤ 1/15")}
INSTANT = "echo_parts.InstantSite"
SETTINGS = {"FDG_THREADS": "1", "FDG_DEVICE": "cpu"}


def rows(quick: bool = False) -> list[Row]:
    """Return seconds per round in the simulator and in a provisioned federation; ``quick``: few rounds, no second."""
    rounds, flares_rounds = (5, 5) if quick else (60, 20)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = {**SETTINGS, "FDG_CACHE": str(folder / "cache")}
        ours, flares = our_job(folder / "jobs", rounds), flares_job(folder / "jobs", flares_rounds)
        empty = with_instant_sites(our_job(folder / "empty", rounds))
        found = _rows("simulator", lambda job: simulate(job, len(SITES), settings), empty, ours, flares)
        if not quick:
            with federation(folder / "federation", settings) as poc:
                poc.allow(INSTANT)
                poc.allow_job(flares)
                found += _rows("POC", lambda job: poc.run(without_custom(job)), empty, ours, flares)
    return found


def our_job(folder: Path, rounds: int, sites: list[str] = SITES) -> Path:
    """Write our job of next to nothing into ``folder`` and return its path."""
    recipe = FDGRecipe(
        "fedavg",
        "pacs",
        sites=sites,
        min_sites=1,
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


def with_instant_sites(job: Path) -> Path:
    """Put an executor that has nothing to do in the place of a job's own; return the job's path."""
    for file in job.glob("*/config/config_fed_client.json"):
        config = json.loads(file.read_text())
        for entry in config["executors"]:
            entry["executor"]["path"] = INSTANT
        file.write_text(json.dumps(config))
    return job


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


def _rows(mode: str, run: Callable[[Path], Run], empty: Path, ours: Path, flares: Path) -> list[Row]:
    reference = interval(run(flares).log, FLARES)
    against = f"{len(SITES)} sites, {mode}: ours / FLARE's ScatterAndGather at its defaults"
    return [
        Row(f"an empty round, {against}", interval(run(empty).log, OURS), reference, goal=GOALS[mode]),
        Row(f"a round of next to nothing, {against}", interval(run(ours).log, OURS), reference),
    ]
