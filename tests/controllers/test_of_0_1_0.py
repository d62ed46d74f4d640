# SPDX-License-Identifier: Apache-2.0
"""What version 0.1.0 wrote is read: records, states, ledger, audit and jobs; a run that it began is not continued."""

import importlib
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from fdg_plugins.state.left_out import read_left_out
from torch import nn
from typer.testing import CliRunner

from fdg_plugins.aggregators import make_aggregator
from fdg_plugins.audit.file import AuditLine, append_line, audit_entries
from fdg_plugins.cli.main import app
from fdg_plugins.core.accounting import gaussian_epsilon
from fdg_plugins.filters.gap import OwnModels
from fdg_plugins.flare.components import SERVER, SITE, class_paths
from fdg_plugins.lab.analysis.runs import find_runs
from fdg_plugins.messages import TASK_TRAIN
from fdg_plugins.models import NETWORKS, Network
from fdg_plugins.privacy.ledger import Ledger, Limits
from fdg_plugins.record.checkpoint import CHECKPOINT_FILE, read_checkpoint
from fdg_plugins.record.run_record import RunRecord
from fdg_plugins.state.site_memory import read_memory
from fdg_plugins.storage import load_tensors
from tests.controllers.test_methods_in_rounds import MethodJob

OF_0_1_0 = Path(__file__).parents[1] / "data" / "of_0_1_0"
RUN = "job"
SETTINGS = {"rounds": 3, "model": "tiny"}
COMPOSED: dict[str, Any] = {
    "objective": {"name": "dim", "strength": 0.1},
    "aggregator": {"name": "fedomg", "weighting": {"name": "ga"}, "server_lr": 1.0},
    "settings": SETTINGS,
}
SCAFFOLD: dict[str, Any] = {"objective": {"name": "scaffold"}, "aggregator": "fedavg", "settings": SETTINGS}

pytestmark = pytest.mark.usefixtures("wire")


@pytest.fixture(autouse=True, scope="module")
def _tiny() -> Iterator[None]:
    """The network of the kept runs."""

    def build(num_classes: int) -> nn.Module:
        return nn.Sequential(
            *(nn.Conv2d(1, 4, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()), nn.Linear(4, num_classes)
        )

    NETWORKS.add(Network(name="tiny", build=build, channels=1, small=True))
    yield
    NETWORKS.remove("tiny")


def contains(whole: Any, part: Any) -> bool:
    """Return whether every field of the JSON value ``part`` is in ``whole``, with the same value."""
    if isinstance(part, dict):
        return all(name in whole and contains(whole[name], value) for name, value in part.items())
    if isinstance(part, list):
        return len(whole) == len(part) and all(map(contains, whole, part))
    return bool(whole == part)


def test_a_record_is_read_and_nothing_of_it_is_lost() -> None:
    text = (OF_0_1_0 / "results.json").read_text(encoding="utf-8")
    record = RunRecord.model_validate_json(text)
    assert record.versions["fdg-plugins"] == "0.1.0"
    assert record.protocol.batch_norm == "average", "what 0.1.0 did"
    assert contains(json.loads(record.model_dump_json()), json.loads(text))
    (run,) = find_runs([OF_0_1_0 / "results.json"]).runs
    assert run.record == record


def test_a_report_of_it_has_its_numbers() -> None:
    result = CliRunner().invoke(app, ["report", str(OF_0_1_0 / "results.json")])
    assert result.exit_code == 0, result.output
    record = json.loads((OF_0_1_0 / "results.json").read_text(encoding="utf-8"))
    (chosen,) = (one["after_round"] for one in record["choices"] if one["rule"] == "source_validation")
    (target,) = (one["target"] for one in record["evaluations"] if one["after_round"] == chosen)
    assert f"{100 * target:.1f}" in result.stdout
    assert "fdg-plugins 0.1.0" in result.stdout


@pytest.mark.parametrize("name", ["composed", "scaffold"])
@pytest.mark.parametrize("file", [CHECKPOINT_FILE, "checkpoint_before.safetensors"])
def test_a_checkpoint_is_read(name: str, file: str) -> None:
    found = read_checkpoint(OF_0_1_0 / name / "fdg_state" / RUN / file, RUN)
    assert len(found.record.rounds) == (2 if file == CHECKPOINT_FILE else 1)
    assert set(found.model) == {"extractor.0.weight", "extractor.0.bias", "classifier.weight", "classifier.bias"}
    assert found.exchange is not None
    assert found.exchange["tensors"] == sorted(found.exchange_tensors)
    assert found.exchange_tensors


def test_the_state_of_a_weighting_is_that_of_the_run() -> None:
    found = read_checkpoint(OF_0_1_0 / "composed" / "fdg_state" / RUN / CHECKPOINT_FILE, RUN)
    aggregator = make_aggregator(COMPOSED["aggregator"])
    aggregator.restore(found.aggregator)
    assert aggregator.state() == found.aggregator
    assert found.aggregator["weighting"]


def test_what_sites_kept_is_read() -> None:
    sites = sorted((OF_0_1_0 / "scaffold" / "sites").iterdir())
    assert len(sites) == 6
    for site in sites:
        folder = site / "fdg_state" / RUN
        trains = site.name != "angle_0"
        assert bool(read_memory(folder, 2)) == trains
        assert bool(OwnModels(folder / "fdg_gap.json").before(2)) == trains
        assert read_left_out(folder) == frozenset()


def begun(folder: Path, name: str, job: dict[str, Any]) -> MethodJob:
    """Return a job that goes on with a run of 0.1.0, in a copy of what server and sites kept of it."""
    shutil.copytree(OF_0_1_0 / name, folder, dirs_exist_ok=True)
    return MethodJob(folder, resume=RUN, **job)


@pytest.mark.parametrize(("name", "job"), [("composed", COMPOSED), ("scaffold", SCAFFOLD)])
def test_a_run_that_it_began_is_not_continued_and_the_sentence_says_why(
    tmp_path: Path, name: str, job: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fdg_plugins.versions._version", lambda package: "0.2.0")
    resumed = begun(tmp_path, name, job)
    resumed.run()
    assert resumed.panics == ["run job cannot go on: its version of fdg-plugins was 0.1, but is now 0.2."]
    assert TASK_TRAIN not in {task for task, _ in resumed.asked}


def test_releases_of_one_minor_version_continue_each_other_s_runs_from_states_that_are_those_of_0_1_0(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("fdg_plugins.versions._version", lambda package: "0.1.7")
    resumed = begun(tmp_path, "scaffold", SCAFFOLD).finished()
    assert resumed.record.resumed_after == [2]
    (other,) = resumed.record.resumed_with
    assert other.keys() == {"server", *resumed.record.census}
    assert other["angle_15"]["torch"] == "0.1.7"
    assert "goes on at angle_15 with fdg-plugins 0.1.7, nvflare 0.1.7, torch 0.1.7, torchvision 0.1.7" in caplog.text
    unbroken = load_tensors(OF_0_1_0 / "scaffold" / "global_model.safetensors")
    for name, value in resumed.model.items():
        torch.testing.assert_close(value, unbroken[name])


def test_the_privacy_ledger_counts_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "fdg_privacy" / "ledger.json"
    path.parent.mkdir()
    shutil.copy(OF_0_1_0 / "ledger.json", path)
    limits = Limits(clip_norm=1.0, noise_multiplier=8.0, max_epsilon=3.0, delta=1e-5)
    assert Ledger(path, "photo").spend("next", 0, limits) == gaussian_epsilon([8.0] * 3, 1e-5)
    assert [one.round for one in Ledger(path, "photo").read().releases] == [0, 1, 0]


def test_the_audit_is_read_and_continued_in_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "fdg_audit.jsonl"
    shutil.copy(OF_0_1_0 / path.name, path)
    lines = [line for line in audit_entries(path) if isinstance(line, AuditLine)]
    assert len(lines) == len(path.read_text(encoding="utf-8").splitlines()) == 4
    append_line(path, lines[-1])
    assert list(audit_entries(path)) == [*lines, lines[-1]]


def test_a_job_is_built_and_needs_no_class_that_its_allow_lists_lack() -> None:
    allowed = json.loads((OF_0_1_0 / "class_allow_list.json").read_text(encoding="utf-8"))
    folder = OF_0_1_0 / "pacs_fedomg_ga_dim"
    for end, file in (
        (SERVER, "app_server/config/config_fed_server.json"),
        (SITE, "app_site/config/config_fed_client.json"),
    ):
        config = json.loads((folder / file).read_text(encoding="utf-8"))
        for component in components_of(config):
            module, _, name = component["path"].rpartition(".")
            getattr(importlib.import_module(module), name)(**component.get("args", {}))
            assert component["path"] in allowed[end] or component["path"].startswith("nvflare.")
        # Aggregators have moved to their methods; jobs name them without a path.
        assert {path for path in allowed[end] if ".aggregators." not in path} <= set(class_paths(end))
        ours = {path for path in class_paths(end) if re.match(r"fdg_plugins\.(?!methods\.)", path)}
        assert ours <= set(allowed[end])


def components_of(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every object with a class path in a JSON value."""
    if isinstance(value, dict):
        if "path" in value:
            yield value
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from components_of(item)
