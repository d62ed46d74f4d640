# SPDX-License-Identifier: Apache-2.0
"""A job in one process, by FLARE's own runners: the bits of the same job elsewhere, and ends in one sentence."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nvflare.apis.fl_constant import ConfigVarName, ReservedKey
from nvflare.apis.shareable import ReservedHeaderKey, Shareable
from nvflare.fuel.utils.config_service import ConfigService
from nvflare.private.fed.server.server_runner import ServerRunner

from fdg_plugins.data import SharedDomains
from fdg_plugins.executors.work import SiteWork
from fdg_plugins.lab.engine.evaluation import read_result
from fdg_plugins.lab.engine.local_parties import LocalSite
from fdg_plugins.lab.engine.one_process import OneProcessJob, deploy, search_for_no_lost_site
from fdg_plugins.messages import TASK_TRAIN
from fdg_plugins.plugins.composition import parse_method
from fdg_plugins.recipes import make_recipe
from fdg_plugins.record.run_files import EVALUATION_FILE, LAST_FILE, SIMULATOR_FOLDER
from fdg_plugins.storage import load_tensors, read_json
from fdg_plugins.testing.inputs import same_bits
from tests.cli.commands import fdg
from tests.controllers.jobs import DIGITS, network_for
from tests.controllers.test_every_method import run
from tests.evaluation.finished import finished_run, fitted
from tests.finished_runs import record_in


def job_of(method: str, folder: Path, **settings: Any) -> Path:
    """Write a job whose protocol is that of the stubs' jobs."""
    sizes = {name: value for name, value in DIGITS.items() if name not in ("dataset", "target")}
    sizes["model"] = network_for(parse_method(method).objective)
    recipe = make_recipe(method, "rotateddigits", name="job", target=DIGITS["target"], **{**sizes, **settings})
    recipe.export(str(folder))
    return folder / "job"


def made(job: Path) -> OneProcessJob:
    return OneProcessJob(job, job.parent / "workspace", SiteWork(SharedDomains()))


def test_the_bits_are_those_of_the_same_job_whose_messages_are_serialised(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # takes seconds

    method = "fediir+ga"
    for name in ("elsewhere", "here"):
        (tmp_path / name).mkdir()
    elsewhere = run(method, tmp_path / "elsewhere")
    assert made(job_of(method, tmp_path / "here")).run()
    model = load_tensors(tmp_path / "here" / "workspace" / SIMULATOR_FOLDER / LAST_FILE)
    assert same_bits(elsewhere.model, model)
    record = record_in(tmp_path / "here")
    assert record.status == "finished"
    assert record.evaluations == elsewhere.record.evaluations
    assert [one.aggregation for one in record.rounds] == [one.aggregation for one in elsewhere.record.rounds]
    folder = tmp_path / "here" / "workspace" / SIMULATOR_FOLDER / "tb_events"
    events = EventAccumulator(str(next(folder.iterdir())))
    events.Reload()
    assert len(events.Tags()["scalars"]) > 5


def test_what_is_on_disk_for_a_site_names_no_other_site(tmp_path: Path) -> None:
    workspace, job = tmp_path / "workspace", job_of("fedavg", tmp_path)
    (workspace / "local").mkdir(parents=True)
    (workspace / "local" / "shared.json").write_text("{}")
    sites, meta, _ = deploy(job, workspace, "job")
    assert [one["name"] for one in meta["job_clients"]] == sites
    for site in sites:
        own = read_json(workspace / site / "job" / "meta.json")
        assert own["job_clients"] == [{"name": site}]
        assert list(own["deploy_map"].values()) == [[site]]
        assert (workspace / site / "local" / "shared.json").samefile(workspace / "local" / "shared.json")


@pytest.mark.usefixtures("images_at_sites")
def test_a_site_that_trained_a_model_does_not_evaluate_it(tmp_path: Path, data_root: Path) -> None:
    run = finished_run(tmp_path / "fedavg", fitted(data_root, 0))
    assert fdg("evaluate", run, "--sites", "art_painting,cartoon,sketch", "--to", tmp_path).exit_code == 0
    for app in (tmp_path / "evaluate").glob("app_*"):
        (app / "custom").mkdir()  # without it, FLARE's own list of classes counts
    assert made(tmp_path / "evaluate").run()
    (file,) = (tmp_path / "workspace").rglob(EVALUATION_FILE)
    found = read_result(file)
    assert (list(found.sites), list(found.left_out)) == (["art_painting", "sketch"], ["cartoon"])


FORGED = "x\n2030-01-01 00:00:00,000 - FederationController - ERROR - stopped: site angle_30 lied\x1b[2J"
# After a reply with one of its codes FLARE itself would end the job.
LIES: dict[str, Callable[[Shareable], None]] = {
    "angle_15": lambda result: result.set_return_code(np.array([1, 2])),
    "angle_30": lambda result: result.set_return_code(ServerRunner.ABORT_RETURN_CODES[0]),
    "angle_45": lambda result: result.set_return_code(FORGED),
    "angle_75": lambda result: result.set_header(ReservedHeaderKey.CONTENT_TYPE, FORGED),
}


def test_forged_headers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    send = LocalSite.send_task_result

    def lie(self: LocalSite, result: Shareable, *arguments: Any, **options: Any) -> bool:
        if self.name in LIES and result.get_header(ReservedKey.TASK_NAME) == TASK_TRAIN:
            LIES[self.name](result)
        return send(self, result, *arguments, **options)

    monkeypatch.setattr(LocalSite, "send_task_result", lie)
    assert made(job_of("fedavg", tmp_path, rounds=2, min_sites=1)).run()
    record = record_in(tmp_path)
    assert record.status == "finished"
    for one in record.rounds:
        assert one.failures.keys() == LIES.keys()
        assert one.failures["angle_30"] == f"answered with the error {ServerRunner.ABORT_RETURN_CODES[0]}."
        assert one.sites == ("angle_60",)
    said = [entry.getMessage() for entry in caplog.records if "angle_30 lied" in entry.getMessage()]
    assert said
    assert all(line.isprintable() for line in said)


def test_no_site_is_looked_for_whatever_the_job_says(monkeypatch: pytest.MonkeyPatch) -> None:
    name = ConfigVarName.DEAD_CLIENT_CHECK_LEAD_TIME
    monkeypatch.setattr(ConfigService, "_var_values", {})
    search_for_no_lost_site()
    assert ConfigService.get_float_var(name, conf={name: 5.0}, default=30.0) == math.inf
