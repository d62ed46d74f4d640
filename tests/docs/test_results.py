# SPDX-License-Identifier: Apache-2.0
"""The command that a page of results prints is the one whose runs were kept: it plans them with the same settings."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup

from fdg_plugins.aggregators import make_aggregator
from fdg_plugins.cli.main import app
from fdg_plugins.lab.sweep.jobs import FederatedRuns
from fdg_plugins.lab.sweep.plan import PlannedRun
from fdg_plugins.lab.sweep.prepare import Asked, make_request, runs_of
from fdg_plugins.lab.sweep.request import DataFound
from fdg_plugins.lab.sweep.store import JOB
from fdg_plugins.lab.sweep.values import read_settings
from fdg_plugins.storage import read_json
from tests.docs.test_pages import RESULTS, commands_on

# Pages whose records this version wrote; those of 0.1.0 lack settings that came later.
OF_THIS_VERSION = (
    *("all-methods.md", "chosen.md", "label-skew.md", "office.md", "pacs-all.md", "pacs-batchnorm.md"),
    "rotatedmnist.md",
)
RUNS = FederatedRuns()
REAL = DataFound(stand_in=False, images={})


def planned(words: list[str]) -> tuple[str, tuple[PlannedRun, ...]]:
    """Return the name of the folder of ``fdg sweep``, called with ``words``, and its runs."""
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    options = group.commands["sweep"].make_context("sweep", words).params
    lists = {name: tuple(options[name].split(",")) for name in ("methods", "targets") if options[name]}
    asked = Asked(
        options["dataset"],
        options["protocol"] and options["protocol"].value,
        **lists,
        seeds=tuple(map(int, (options["seeds"] or "0").split(","))),
        settings=read_settings(options["settings"]),
    )
    plan, _ = runs_of(make_request(asked, None))
    return options["to"].name, plan


def settings_in(folder: Path) -> dict[str, Any]:
    """Return the settings of server and sites in the record of a run, as one mapping."""
    record = json.loads(gzip.decompress((folder / "results.json.gz").read_bytes()))
    return {**record["protocol"], "the method's": record["method"]["settings"]}


def settings_of(run: PlannedRun, folder: Path) -> dict[str, Any]:
    """Return the same of a planned run."""
    protocol = RUNS.write_job(run, REAL, folder).protocol
    config = read_json(folder / JOB / RUNS.job_file)["workflows"][0]["args"]["aggregator"]
    return {**protocol.model_dump(mode="json"), "the method's": make_aggregator(config).settings()}


def differences(folder: Path, run: PlannedRun, working: Path) -> list[str]:
    kept, now = settings_in(folder), settings_of(run, working)
    assert kept.keys() <= now.keys()
    return [f"{run.name}: {name} was {kept[name]}, now {now[name]}" for name in kept if kept[name] != now[name]]


@pytest.mark.parametrize("page", OF_THIS_VERSION)
def test_the_command_on_a_page_plans_the_runs_that_were_kept(page: str, tmp_path: Path) -> None:
    sweeps = [planned(words[2:]) for words in commands_on(RESULTS / page) if words[:2] == ["fdg", "sweep"]]
    assert sweeps
    for name, runs in sweeps:
        kept = {folder.name: folder for folder in (RESULTS / "records" / name).iterdir()}
        assert kept.keys() == {run.name for run in runs}
        different = [line for run in runs for line in differences(kept[run.name], run, tmp_path / run.name)]
        assert different == []
